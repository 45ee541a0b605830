"""Previews during training: sentences of a corpus with a block missing, filled by the plan's own method."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from jaxtyping import Int

from ddot.core.records import Example
from ddot.core.rng import generator, row_keys
from ddot.data.masks import Block
from ddot.data.shards import Corpus
from ddot.data.tokenizer import Tokenizer
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser
from ddot.training.batches import Batches, Plan, WholeSentences

_COUNT, _TRIES, _STEPS = 3, 60, 16


@torch.inference_mode()
def preview(
    model: Denoiser, corpus: Corpus, plans: Sequence[Plan], tokenizer: Tokenizer, edges: bool
) -> list[dict[str, str]]:
    """The same few texts at every call, filled by the first plan whose method can fill; none without one.

    Each has a `prompt` with its blank shown as ___, the `original` text, and the text as `filled`.
    """
    plan, method = next(((plan, plan.method) for plan in plans if isinstance(plan.method, Method)), (None, None))
    if plan is None or method is None:
        return []
    L, rng = plan.lengths[0], generator(0)
    blanked = replace(plan, mask=Block(L // 4), cut=WholeSentences(), whole_words=1.0, sources=())
    batches = Batches([(1.0, corpus)], [blanked], tokenizer, L, 0, edges)
    draws = (batches.example(0, L, rng) for _ in range(_TRIES))
    suitable = (example for example in draws if 0 < (~example.is_prompt).sum() < example.is_prompt.sum())
    examples = [replace(example, gap_length=None) for example in islice(suitable, _COUNT)]
    if not examples:
        return []
    *_, last = method.sample(model, examples, L, _STEPS, row_keys(0, len(examples)))

    def decoded(tokens: Int[np.ndarray, "n"]) -> str:
        return tokenizer.decode(tokens[tokens != tokenizer.edge]).strip()

    def shown(example: Example) -> str:
        starts = np.flatnonzero(np.diff(example.is_prompt, prepend=~example.is_prompt[:1]))
        runs = zip(np.split(example.tokens, starts[1:]), example.is_prompt[starts], strict=True)
        return " ".join(filter(None, (decoded(run) if given else "___" for run, given in runs)))

    texts = method.texts(last, model.vocabulary)
    return [
        {"prompt": shown(example), "original": decoded(example.tokens), "filled": decoded(text)}
        for example, text in zip(examples, texts, strict=True)
    ]
