"""Candidate words for a one-word blank, with their probabilities: words of one token and of two."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ddot.core import absorbing, gap_lengths
from ddot.core.records import State, to_device
from ddot.infill import passes
from ddot.infill.alphabet import LATER
from ddot.infill.draft import CONTINUE, COUNTED
from ddot.infill.engine import Engine, Step, Steps, Window
from ddot.infill.planned_lengths import conditioned
from ddot.infill.reading import Reader, Slot
from ddot.infill.view import lay_out
from ddot.methods.fixed_length import FixedLength

_MOST_TOKENS = 2


class Candidate(NamedTuple):
    """A word, and the probability that it is the missing one."""

    word: str
    chance: float


def candidates(window: Window, k: int, engine: Engine) -> Steps[list[Candidate]]:
    """The k likeliest words for the one blank of a window; those of two tokens begin with one of the k likeliest."""
    if engine.writes_left_to_right:
        return (yield from _written(window, k, engine))
    (chances,) = yield from engine.length_chances([window])
    words: dict[str, float] = {}
    for length, length_chance in _length_chances(window, chances, engine).items():
        beams: list[tuple[tuple[int, ...], float]] = [((), length_chance)]
        for place in range(length):
            longer = []
            for tokens, chance in beams:
                next_chances = _next_chances(window, length, tokens, engine)
                yield Step()
                best = next_chances.topk(min(k, len(next_chances)))
                longer += [
                    ((*tokens, token), chance * p)
                    for p, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
                    if p > 0
                ]
            beams = sorted(longer, key=lambda beam: -beam[1])[: k if place + 1 < length else None]
        for tokens, chance in beams:
            _add(words, tokens, chance, engine)
    return _ranked(words, k)


def _add(words: dict[str, float], tokens: Sequence[int], chance: float, engine: Engine) -> None:
    word = engine.alphabet.spell(np.array(tokens)).strip()
    words[word] = words.get(word, 0.0) + chance


def _ranked(words: dict[str, float], k: int) -> list[Candidate]:
    ranked = sorted(words.items(), key=lambda item: -item[1])
    return [Candidate(word, chance) for word, chance in ranked[:k]]


def _written(window: Window, k: int, engine: Engine) -> Steps[list[Candidate]]:
    """The same where blanks are written: a token, then the end of the blank or another token of the word."""
    model, greedy = engine.model, passes.Candidate(window, engine)
    slots, reader = [*greedy.outline, *greedy.unread_slots], Reader(model, 1, masked=False)
    allowed = engine.rules[greedy.draft.rule()].clone()
    given, after = window.view.prompt.example.tokens, window.view.after[0]
    allowed[given[after : after + 2]] = False  # not the words beside the blank
    first = _shares(model.logits(reader.read([slots], [0], len(slots))[:, -1]), allowed)[0]
    yield Step()
    best = first.topk(min(k, int((first > 0).sum())))
    reader.select(torch.zeros(len(best.indices), dtype=torch.long, device=model.device))
    tokens = [[Slot(token)] for token in best.indices.tolist()]
    sep = model.vocabulary.sep
    longer = engine.rules[CONTINUE].clone() & torch.from_numpy(engine.alphabet.word).to(model.device)
    longer[sep] = True
    second = _shares(model.logits(reader.read(tokens, [len(slots)] * len(tokens), 1)[:, -1]), longer)
    yield Step()
    words: dict[str, float] = {}
    for (slot,), first_chance, next_chances in zip(tokens, best.values.tolist(), second, strict=True):
        _add(words, [slot.token], first_chance * float(next_chances[sep]), engine)
        more = next_chances[: model.vocabulary.base].topk(min(k, model.vocabulary.base))
        for chance, token in zip(more.values.tolist(), more.indices.tolist(), strict=True):
            _add(words, [slot.token, token], first_chance * chance, engine)
    return _ranked(words, k)


def _shares(logits: Float[Tensor, "n V"], allowed: Bool[Tensor, "V"]) -> Float[Tensor, "n V"]:
    """Token probabilities, renormalised over those allowed."""
    return torch.softmax(logits.float().masked_fill(~allowed[: logits.shape[1]], -torch.inf), -1).cpu()


def _length_chances(window: Window, chances: Float[Tensor, "n classes"] | None, engine: Engine) -> dict[int, float]:
    """The probability of each number of tokens in the word; 1 token without a length head."""
    if chances is None:
        return {1: 1.0}
    fitting = conditioned(window.view, window.blanks, engine.planner.reweighted(chances), engine.planner)
    lengths = gap_lengths.length_class(torch.arange(1, _MOST_TOKENS + 1))
    likely = fitting[window.view.after[0]][lengths].tolist()
    return {length: chance / sum(likely) for length, chance in enumerate(likely, 1) if chance > 0}


def _next_chances(window: Window, length: int, tokens: Sequence[int], engine: Engine) -> Float[Tensor, "V"]:
    """The probabilities of the next token of a word of `length` tokens, among those allowed there."""
    prompt, (span,) = lay_out(window.view, window.blanks, [length])
    width = engine.shape.width(len(prompt) + length)
    start = FixedLength().start([prompt.example] * engine.shape.rows, width, window.key, engine.model.vocabulary)
    x = start.x.clone()
    x[:, span.start : span.start + len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    t = torch.full_like(start.t, 1 - len(tokens) / length)
    prediction = engine.model(to_device(State(x, start.z, start.hint, start.gap_length, t), engine.model.device))
    likely = absorbing.final(prediction.log_score[:1], engine.model.vocabulary.mask)[0].float().cpu()
    alphabet = engine.alphabet
    allowed = alphabet.allowed[COUNTED + (LATER if tokens else span.first)]
    if tokens:
        allowed = allowed & torch.from_numpy(alphabet.word)
    likely = torch.where(allowed[: len(likely)], likely, 0)
    return likely / likely.sum().clamp(min=1e-30)
