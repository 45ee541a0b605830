"""A language model continues the text before a gap, all that it sees: the reference for what both sides are worth."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from ddot.network.denoiser import Denoiser
from ddot.network.trunk import Cache

Tokens = Int[np.ndarray, "_"]


@torch.inference_mode()
def continuations(model: Denoiser, before: Sequence[Tokens], lengths: Sequence[int], never: int) -> list[Tokens]:
    """After each text, which may not be empty, its `lengths` likeliest next tokens, one at a time; `never` is not one.

    Read as the trunk was trained: without what DDOT adds to it.
    """
    trunk, base = model.trunk, model.vocabulary.base
    widest = max(map(len, before))
    x = torch.zeros(len(before), widest, dtype=torch.long, device=model.device)
    seen = torch.zeros_like(x, dtype=torch.bool)
    for row, tokens in enumerate(before):  # texts end together; padding is not attended to
        x[row, widest - len(tokens) :] = torch.from_numpy(tokens)
        seen[row, widest - len(tokens) :] = True
    cache, time, written = Cache(len(x), x.device), torch.ones(len(x), device=x.device), []
    for place in range(max(lengths)):
        cache.grow(seen)
        first = widest + place - x.shape[1]
        positions = torch.arange(first, widest + place, dtype=torch.float32, device=x.device).expand(x.shape)
        hidden = trunk.hidden(trunk.embed(x), positions, time, cache)
        logits = trunk.logits(hidden[:, -1])[:, :base].float()
        logits[:, never] = -torch.inf
        x = logits.argmax(-1)[:, None]
        seen = torch.ones_like(x, dtype=torch.bool)
        written.append(x)
    found = torch.cat(written, 1).cpu().numpy()
    return [tokens[:length] for tokens, length in zip(found, lengths, strict=True)]
