"""`ddot nats`: how well a network knows the words of a blank, without decoding.

The true words of one blank are revealed from left to right. The network sees both sides and, where slots are laid out,
how many tokens are missing; where blanks are written after an outline, it also has to know where they end. A language
model, for comparison, sees the text before the blank only.
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

SETS = {"people": None, "rocstories": 50, "1bw-block": 90}  # how many items, None: all
LONGEST = 14  # words of a sentence's gap: blanks people leave are about as long
WIDEST = 160  # slots; longer texts are left out
_MULTIPLE = 32  # of slots, so that more states share a batch
Nats = tuple[float, int]  # of all counted tokens, and their number


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
            raise ValueError(f"{dataset} has no text with one blank; wanted people, rocstories or a block set")
        about = {"dataset": dataset, "split": split, "task": "located", "steps": 1, "seed": 0, "items": len(items)}
        prompts = [item.prompted(tokenizer, True) for item in items]
        found, ends = {}, dict[str, float]()
        if model.config.order == "outline":
            found[NATS], (nats, blanks) = after_outline(model, prompts)
            ends = {"nats_end": nats / max(1, blanks)}
        else:
            found[NATS] = both_sides(model, prompts)
        if language_model is not None:
            found[BASE] = before_only(language_model, items)
        for method, (nats, tokens) in found.items():
            mean = {"tokens": tokens, "nats": nats / max(1, tokens)}
            rows.append({"model": name, "method": method, **about, **mean, **(ends if method == NATS else {})})
    return rows


def chosen(items: Sequence[Item], limit: int | None = None) -> list[Item]:
    """The first items with exactly one blank; of sentences, a short one."""
    texts = [item for item in items if len(item.fills) == 1 and not isinstance(item, Program)]
    return [item for item in texts if isinstance(item, Passage) or len(item.fills[0].split()) <= LONGEST][:limit]


def both_sides(model: Denoiser, prompts: Sequence[Prompted], at_once: int = 64) -> Nats:
    """Nats of each missing token given both sides, the length, and the missing tokens before it."""
    asked = [each for prompt in prompts for each in _states(prompt, model)]
    asked.sort(key=lambda each: each[0].x.shape[1])
    total = 0.0
    for _, group in groupby(asked, key=lambda each: each[0].x.shape[1]):
        some = list(group)
        for first in range(0, len(some), at_once):
            states, slots, answers = zip(*some[first : first + at_once], strict=True)
            columns = {f.name: torch.cat([getattr(state, f.name) for state in states]) for f in fields(State)}
            state = to_device(State(**columns), model.device)
            with torch.inference_mode():
                hidden = model.read(state)[0][torch.arange(len(slots)), torch.tensor(slots)]
                logits = model.logits(hidden).float()[:, : model.vocabulary.base]
                total += cross_entropy(logits, torch.tensor(answers, device=logits.device), reduction="sum").item()
    return total, len(asked)


@torch.inference_mode()
def after_outline(model: Denoiser, prompts: Sequence[Prompted], at_once: int = 32) -> tuple[Nats, Nats]:
    """(nats of each missing token among ordinary tokens, nats of what is said of the end) given both sides.

    At every token of a gap the network also says that the gap goes on, and at last that it ends: all of that is the
    end's. The sum of both is what writing the gap costs.
    """
    base, words, ends, tokens, blanks = model.vocabulary.base, 0.0, 0.0, 0, 0
    examples = [example for each in prompts if len((example := _whole(each)).tokens) <= WIDEST]
    for first in range(0, len(examples), at_once):
        some = examples[first : first + at_once]
        L, rows = max(len(example.tokens) for example in some), len(some)
        keys = np.zeros(rows, np.uint64)
        slots = Outline(3.0).prepare(some, L, np.zeros(rows, np.float32), keys, model.vocabulary)
        slots = to_device(slots, model.device)
        asked, target = targets(slots, model.vocabulary)
        logits, true = model.logits(model.read(slots.state(), left_to_right)[0][asked]).float(), target[asked]
        word = true < base
        among_words = cross_entropy(logits[word, :base], true[word], reduction="sum").item()
        words, ends = words + among_words, ends + cross_entropy(logits, true, reduction="sum").item() - among_words
        tokens, blanks = tokens + int(word.sum()), blanks + int((~word).sum())
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
    """(what the network sees, the slot asked for, the token that belongs there) for each missing token."""
    missing, told = prompted.missing, prompted.prompt.with_gap_lengths(prompted.gap_lengths)
    L = -(-(len(told) + len(missing)) // _MULTIPLE) * _MULTIPLE
    if L > WIDEST:
        return []
    start = FixedLength().start([told.example], L, np.zeros(1, np.uint64), model.vocabulary)
    slots = (start.x[0] == model.vocabulary.mask).nonzero()[:, 0].tolist()
    states = []
    for known, slot in enumerate(slots):
        x = start.x.clone()
        x[0, slots[:known]] = torch.from_numpy(missing[:known])
        t = torch.full((1,), 1 - known / len(slots))
        states.append((State(x, start.z, start.hint, start.gap_length, t), slot, int(missing[known])))
    return states


def before_only(model: Causal, items: Sequence[Item]) -> Nats:
    """Nats of the same words under a language model that reads the text before the blank."""
    rows, counts = [], []
    for prompted in (item.prompted(model.tokenizer, True) for item in items):
        (gap,) = np.flatnonzero(prompted.gap_lengths)
        rows.append([*prompted.prompt.example.tokens[: gap + 1].tolist(), *prompted.missing.tolist()])
        counts.append(len(prompted.missing))
    return float(model.nats(rows, counts).sum()), sum(counts)
