"""Fluency: perplexity of texts under a causal language model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, nan
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.metrics.sums import Sums
from ddot.network.denoiser import Denoiser
from ddot.network.folder import load_config, load_model
from ddot.network.llama import LlamaConfig
from ddot.network.places import model_folder
from ddot.network.trunk import left_to_right

# Texts → (total nats of each text, number of tokens counted in each).
LanguageModel = Callable[[Sequence[str]], tuple[Float[np.ndarray, "texts"], Int[np.ndarray, "texts"]]]


def perplexity(texts: Sequence[str], language_model: LanguageModel) -> Sums:
    """exp(nats per token) over all texts."""
    nats, tokens = language_model(texts)
    if not tokens.sum():
        raise ValueError(f"perplexity needs at least one token; the {len(texts)} texts have none")
    return Sums(np.column_stack([nats, tokens]).astype(float), _perplexity)


def _perplexity(sums: Float[np.ndarray, "2"]) -> float:
    return exp(sums[0] / sums[1]) if sums[1] else nan


@dataclass(frozen=True)
class Causal:
    """A left-to-right Llama-family language model.

    A text is preceded by the end-of-text token, so that its first token counts too. If the tokenizer has no such token,
    the first token of a text is not counted.
    """

    denoiser: Denoiser
    tokenizer: Tokenizer
    batch: int = 16
    name: str = "language model"

    def __call__(self, texts: Sequence[str]) -> tuple[Float[np.ndarray, "texts"], Int[np.ndarray, "texts"]]:
        has_edge = self.tokenizer.edge < self.tokenizer.vocabulary.base
        start = [self.tokenizer.edge] if has_edge else []
        rows = [[*start, *tokens.tolist()] for tokens in self.tokenizer.encode_batch(list(texts))]
        counts = [max(0, len(row) - 1) for row in rows]
        return self.nats(rows, counts), np.array(counts)

    def nats(self, rows: Sequence[Sequence[int]], counts: Sequence[int]) -> Float[np.ndarray, "rows"]:
        """Total nats of the last `counts` tokens of each row."""
        trunk, base = self.denoiser.trunk, self.tokenizer.vocabulary.base  # base: without the tokens that DDOT adds
        nats, device = np.zeros(len(rows)), self.denoiser.device
        by_length = sorted((i for i, count in enumerate(counts) if count), key=lambda i: len(rows[i]))
        for first in range(0, len(by_length), self.batch):
            batch = by_length[first : first + self.batch]
            # Padding comes last and is never attended to, so any token will do.
            x = pad_sequence([torch.tensor(rows[i]) for i in batch], batch_first=True).to(device)
            positions = torch.arange(x.shape[1], dtype=torch.float32, device=device).expand(x.shape)
            with torch.inference_mode():
                hidden = trunk.hidden(trunk.embed(x), positions, torch.ones(len(batch), device=device), left_to_right)
                for i, tokens, h in zip(batch, x, hidden, strict=True):
                    end = len(rows[i])
                    logits = trunk.logits(h[end - counts[i] - 1 : end - 1])[:, :base]
                    nats[i] = cross_entropy(logits, tokens[end - counts[i] : end], reduction="sum").item()
        return nats


def causal_model(folder: Path | str, batch: int = 16, device: str = "cpu") -> Causal:
    """Load a Llama-family language model converted by `ddot convert`."""
    config = load_config(folder).trunk
    if not isinstance(config, LlamaConfig):
        raise ValueError(f"{folder} has a {type(config).__name__} trunk; perplexity needs a Llama-family model")
    if "step" in json.loads((model_folder(folder) / "meta.json").read_text()):
        raise ValueError(f"{folder} was trained to fill blanks; perplexity needs a base model made by `ddot convert`")
    model, tokenizer = load_model(folder)
    return Causal(model.to(device), tokenizer, batch, str(folder))
