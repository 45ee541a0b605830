"""A look at a model while it trains: sentences of a corpus with a block blanked, and what it fills in.

The plan's own method samples, so what is seen is what is trained. Knows no file and no training state.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ddot.core.gaps import gap_hints, open_gaps
from ddot.core.records import Example
from ddot.core.rng import generator, row_keys
from ddot.data.shards import Corpus
from ddot.data.tokenizer import Tokenizer
from ddot.network.denoiser import Denoiser
from ddot.training.batches import Plan, WholeSentences, with_edges

BLANK = "___"
_TRIES = 20  # draws for each sentence wanted: those of one word leave nothing to fill from


@dataclass(frozen=True)
class Sample:
    """A prompt as a reader sees it, its blank shown as ___; what the corpus has there; what the model says."""

    prompt: str
    original: str
    filled: str


@dataclass(frozen=True)
class Blanked:
    """A sentence with a block of its words missing."""

    example: Example
    prompt: str
    original: str


def blanked(
    corpus: Corpus, plan: Plan, tokenizer: Tokenizer, edges: bool, count: int, rng: np.random.Generator
) -> list[Blanked]:
    """Up to `count` sentences, each with a block of one to half of its words missing, told as the plan tells."""
    found: list[Blanked] = []
    cut = WholeSentences(1)
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        passage = cut(corpus, plan.lengths[0] - 2 * edges, rng)
        words = tokenizer.words(passage.tokens)
        if words[-1] < 1:
            continue
        missing = int(rng.integers(1, int(words[-1] + 1) // 2 + 1))
        start = int(rng.integers(0, int(words[-1] + 1) - missing + 1))
        before, after = words < start, words >= start + missing
        tokens, is_prompt = passage.tokens, before | after
        parts = (tokenizer.decode(tokens[before]).strip(), BLANK, tokenizer.decode(tokens[after]).strip())
        original = tokenizer.decode(tokens).strip()
        if edges:
            tokens, is_prompt = with_edges(tokens, is_prompt, passage.begins, passage.ends, tokenizer)
        hint = gap_hints(is_prompt, open_gaps(is_prompt)) if plan.telling.located > 0 else None
        found.append(Blanked(Example(tokens, is_prompt, hint), " ".join(part for part in parts if part), original))
    return found


@torch.inference_mode()
def look(
    model: Denoiser, corpus: Corpus, plan: Plan, tokenizer: Tokenizer, edges: bool, count: int = 3, steps: int = 16
) -> list[Sample]:
    """The same few blanks at every call, as the model fills them."""
    some = blanked(corpus, plan, tokenizer, edges, count, generator(0))
    if not some:
        return []
    examples = [blank.example for blank in some]
    *_, last = plan.method.sample(model, examples, plan.lengths[0], steps, row_keys(0, len(some)))
    texts = plan.method.texts(last, model.vocabulary)
    return [
        Sample(blank.prompt, blank.original, tokenizer.decode(text[text != tokenizer.edge]).strip())
        for blank, text in zip(some, texts, strict=True)
    ]
