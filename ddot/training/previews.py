"""Previews of a model in training: sentences of a corpus with a block missing, and how the model fills them.

The plan's own method samples, so a preview shows what is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

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

_TRIES = 20  # draws per preview: a sentence of a single word leaves no prompt


@dataclass(frozen=True)
class Sample:
    """A prompt with its blank shown as ___, the original text, and the model's."""

    prompt: str
    original: str
    filled: str


def _blanked(
    corpus: Corpus, plan: Plan, tokenizer: Tokenizer, edges: bool, rng: np.random.Generator
) -> tuple[Example, str, str] | None:
    """(example, prompt, original) of a sentence with one to half of its words missing in a block.

    Hinted as in the plan. None for a sentence of a single word.
    """
    passage = WholeSentences(1)(corpus, plan.lengths[0] - 2 * edges, rng)
    tokens, words = passage.tokens, tokenizer.words(passage.tokens)
    count = int(words[-1]) + 1
    if count < 2:
        return None
    missing = int(rng.integers(1, count // 2 + 1))
    start = int(rng.integers(0, count - missing + 1))
    before, after = words < start, words >= start + missing
    parts = (tokenizer.decode(tokens[before]).strip(), "___", tokenizer.decode(tokens[after]).strip())
    original, is_prompt = tokenizer.decode(tokens).strip(), before | after
    if edges:
        tokens, is_prompt = with_edges(tokens, is_prompt, passage.begins, passage.ends, tokenizer)
    hint = gap_hints(is_prompt, open_gaps(is_prompt)) if plan.telling.located > 0 else None
    return Example(tokens, is_prompt, hint), " ".join(filter(None, parts)), original


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
    """The same few blanks at every call, filled by the first plan whose method can fill; none without one."""
    plan, method = next(((plan, plan.method) for plan in plans if isinstance(plan.method, Method)), (None, None))
    if plan is None or method is None:
        return []
    rng = generator(0)
    draws = (_blanked(corpus, plan, tokenizer, edges, rng) for _ in range(_TRIES * count))
    blanks = list(islice(filter(None, draws), count))
    if not blanks:
        return []
    *_, last = method.sample(model, [blank[0] for blank in blanks], plan.lengths[0], steps, row_keys(0, len(blanks)))
    return [
        Sample(prompt, original, tokenizer.decode(text[text != tokenizer.edge]).strip())
        for (_, prompt, original), text in zip(blanks, method.texts(last, model.vocabulary), strict=True)
    ]
