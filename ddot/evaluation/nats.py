"""`ddot nats`: how well a network predicts the true words of a blank, without decoding.

The true words of one blank are revealed from left to right. The network sees both sides. With slots laid out, it also
knows how many tokens are missing; after an outline, it must predict where the blank ends. A language model, for
comparison, sees only the text before the blank.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ddot.core.codes import NOT_PROMPT
from ddot.core.records import Example, State, to_device
from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.items import Item, Passage, Program, Prompted, read_set
from ddot.evaluation.metrics.fluency import Causal
from ddot.evaluation.rows import BASE, NATS
from ddot.methods.fixed_length import FixedLength
from ddot.methods.outline import Outline, targets
from ddot.network.denoiser import Denoiser
from ddot.network.trunk import left_to_right

SETS = {"people": None, "rocstories": 50, "1bw-block": 90}  # number of items; None: all
LONGEST = 14  # words in the gap of a sentence: about as long as the blanks people leave
WIDEST = 160  # slots; longer texts are skipped
_MULTIPLE = 32  # slots are rounded up to it, so that more states share a batch
Nats = tuple[float, int]  # total, and number of tokens


def measure(
    name: str,
    model: Denoiser,
    tokenizer: Tokenizer,
    bench: Path,
    datasets: Sequence[str] = tuple(SETS),
    split: str = "dev",
    limit: int | None = None,
    language_model: Causal | None = None,
) -> list[dict[str, Any]]:
    """Rows for each set: nats per token of the network, called `name`, and of the language model."""
    rows: list[dict[str, Any]] = []
    for dataset in datasets:
        items = chosen(read_set(bench, dataset, split), limit or SETS.get(dataset))
        if not items:
            raise ValueError(f"{dataset} has no text with one blank; use people, rocstories or a block set")
        task = {"dataset": dataset, "split": split, "task": "located", "steps": 1, "seed": 0, "items": len(items)}
        prompts = [item.prompted(tokenizer, True) for item in items]
        totals, end = {}, dict[str, float]()
        with model.half_precision():
            if model.config.order == "outline":
                totals[NATS], (nats, blanks) = after_outline(model, prompts)
                end = {"nats_end": nats / max(1, blanks)}
            else:
                totals[NATS] = both_sides(model, prompts)
        if language_model is not None:
            totals[BASE] = before_only(language_model, items)
        for method, (nats, tokens) in totals.items():
            mean = {"tokens": tokens, "nats": nats / max(1, tokens)}
            read = language_model.name if language_model and method == BASE else name
            rows.append({"model": read, "method": method, **task, **mean, **(end if method == NATS else {})})
    return rows


def chosen(items: Sequence[Item], limit: int | None = None) -> list[Item]:
    """The first items with exactly one blank, which must be short in sentences."""
    texts = [item for item in items if len(item.fills) == 1 and not isinstance(item, Program)]
    return [item for item in texts if isinstance(item, Passage) or len(item.fills[0].split()) <= LONGEST][:limit]


def both_sides(model: Denoiser, prompts: Sequence[Prompted], at_once: int = 64) -> Nats:
    """Nats of each missing token given both sides, the length, and the missing tokens before it."""
    questions = [question for prompt in prompts for question in _states(prompt, model)]
    questions.sort(key=lambda question: question[0].x.shape[1])
    total = 0.0
    for _, group in groupby(questions, key=lambda question: question[0].x.shape[1]):
        same_width = list(group)
        for first in range(0, len(same_width), at_once):
            states, slots, answers = zip(*same_width[first : first + at_once], strict=True)
            columns = {f.name: torch.cat([getattr(state, f.name) for state in states]) for f in fields(State)}
            state = to_device(State(**columns), model.device)
            with torch.inference_mode():
                hidden = model.read(state)[0][torch.arange(len(slots)), torch.tensor(slots)]
                logits = model.logits(hidden).float()[:, : model.vocabulary.base]
                total += cross_entropy(logits, torch.tensor(answers, device=logits.device), reduction="sum").item()
    return total, len(questions)


@torch.inference_mode()
def after_outline(model: Denoiser, prompts: Sequence[Prompted], at_once: int = 32) -> tuple[Nats, Nats]:
    """(nats of the missing tokens among ordinary tokens, nats of where gaps end), given both sides.

    At each token the network also predicts that the gap continues, and finally that it ends; all of this counts
    towards the end. The sum of both is the cost of writing the gap.
    """
    base, words, ends, tokens, blanks = model.vocabulary.base, 0.0, 0.0, 0, 0
    examples = [example for prompt in prompts if len((example := _whole(prompt)).tokens) <= WIDEST]
    for first in range(0, len(examples), at_once):
        batch = examples[first : first + at_once]
        L, rows = max(len(example.tokens) for example in batch), len(batch)
        keys = np.zeros(rows, np.uint64)
        slots = Outline(3.0).prepare(batch, L, np.zeros(rows, np.float32), keys, model.vocabulary)
        slots = to_device(slots, model.device)
        counted, target = targets(slots, model.vocabulary)
        logits, true = model.logits(model.read(slots.state(), left_to_right)[0][counted]).float(), target[counted]
        is_word = true < base
        among_words = cross_entropy(logits[is_word, :base], true[is_word], reduction="sum").item()
        words, ends = words + among_words, ends + cross_entropy(logits, true, reduction="sum").item() - among_words
        tokens, blanks = tokens + int(is_word.sum()), blanks + int((~is_word).sum())
    return (words, tokens), (ends, blanks)


def _whole(prompted: Prompted) -> Example:
    """The item with its missing tokens in place."""
    given = prompted.prompt.example
    before = np.cumsum(prompted.gap_lengths) - prompted.gap_lengths
    is_prompt = np.zeros(len(given.tokens) + len(prompted.missing), bool)
    is_prompt[np.arange(len(given.tokens)) + before] = True
    tokens, hint = np.zeros(len(is_prompt), np.int64), np.full(len(is_prompt), NOT_PROMPT)
    tokens[is_prompt], tokens[~is_prompt], hint[is_prompt] = given.tokens, prompted.missing, given.hints
    return Example(tokens, is_prompt, hint)


def _states(prompted: Prompted, model: Denoiser) -> list[tuple[State, int, int]]:
    """(what the network sees, the slot to predict, its true token) for each missing token."""
    missing, prompt = prompted.missing, prompted.prompt.with_gap_lengths(prompted.gap_lengths)
    L = -(-(len(prompt) + len(missing)) // _MULTIPLE) * _MULTIPLE
    if L > WIDEST:
        return []
    start = FixedLength().start([prompt.example], L, np.zeros(1, np.uint64), model.vocabulary)
    slots = (start.x[0] == model.vocabulary.mask).nonzero()[:, 0].tolist()
    states = []
    for known, slot in enumerate(slots):
        x = start.x.clone()
        x[0, slots[:known]] = torch.from_numpy(missing[:known])
        t = torch.full((1,), 1 - known / len(slots))
        states.append((State(x, start.z, start.hint, start.gap_length, t), slot, int(missing[known])))
    return states


def before_only(model: Causal, items: Sequence[Item]) -> Nats:
    """Nats of the same words under a language model that sees only the text before the blank."""
    rows, counts = [], []
    for prompted in (item.prompted(model.tokenizer, True) for item in items):
        (gap,) = np.flatnonzero(prompted.gap_lengths)
        rows.append([*prompted.prompt.example.tokens[: gap + 1].tolist(), *prompted.missing.tolist()])
        counts.append(len(prompted.missing))
    return float(model.nats(rows, counts).sum()), sum(counts)
