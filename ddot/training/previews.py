"""Previews of a model in training: sentences of a corpus with a block blanked out, and how the model fills them.

The plan's own method samples, so a preview shows what is trained. Knows no file and no training state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ddot.core.gaps import gap_hints, open_gaps
from ddot.core.records import Example
from ddot.core.rng import generator, row_keys
from ddot.data.shards import Corpus
from ddot.data.tokenizer import Tokenizer
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser
from ddot.training.batches import Plan, WholeSentences, with_edges

BLANK = "___"
_TRIES = 20  # draws per sentence: one of a single word leaves no prompt


@dataclass(frozen=True)
class Sample:
    """A prompt with its blank shown as ___, the original text, and the text the model made of it."""

    prompt: str
    original: str
    filled: str


@dataclass(frozen=True)
class Blanked:
    """A sentence with a block of words missing."""

    example: Example
    prompt: str
    original: str


def blanked(
    corpus: Corpus, plan: Plan, tokenizer: Tokenizer, edges: bool, count: int, rng: np.random.Generator
) -> list[Blanked]:
    """Up to `count` sentences, each with one to half of its words missing in a block, hinted at as the plan does."""
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
def preview(
    model: Denoiser,
    corpus: Corpus,
    plans: Sequence[Plan],
    tokenizer: Tokenizer,
    edges: bool,
    count: int = 3,
    steps: int = 16,
) -> list[Sample]:
    """The same few blanks at every call, filled by the first plan whose method can fill them; none without one."""
    plan, method = next(((plan, plan.method) for plan in plans if isinstance(plan.method, Method)), (None, None))
    if plan is None or method is None:
        return []
    blanks = blanked(corpus, plan, tokenizer, edges, count, generator(0))
    if not blanks:
        return []
    examples = [blank.example for blank in blanks]
    *_, last = method.sample(model, examples, plan.lengths[0], steps, row_keys(0, len(blanks)))
    return [
        Sample(blank.prompt, blank.original, tokenizer.decode(text[text != tokenizer.edge]).strip())
        for blank, text in zip(blanks, method.texts(last, model.vocabulary), strict=True)
    ]
