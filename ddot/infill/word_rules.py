"""Constraints on the tokens of blanks: which pieces of text are allowed, and how many words."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ddot.core.records import Prediction, State, Vocabulary
from ddot.core.sampling import Reveal
from ddot.infill.alphabet import FIRST_AFTER_WORD, FIRST_APART, LATER, Alphabet
from ddot.infill.template import Blank
from ddot.infill.view import Span

_LEAST_SCORE = -1e30
_WORD, _WORDS = 4, 12  # rules of the first slot if a word is required: in a blank of one slot, of several
# Nats for a repeated content word. 2 already prevents "clean and clean and clean"; BLEU is the same (docs/log.md).
_REPETITION_PENALTY = 3.0


class Pieces:
    """A restriction: each slot of a blank takes only tokens its rule allows. `tokenised`: as the text is."""

    def __init__(
        self,
        alphabet: Alphabet,
        spans: Sequence[Sequence[Span]],
        L: int,
        device: torch.device | str = "cpu",
        tokenised: bool = False,
    ):
        rule = torch.full((len(spans), L), LATER)
        for row, row_spans in enumerate(spans):
            for span in row_spans:
                counted = (8 if tokenised else 4) * span.blank.counted
                rule[row, span.start : span.stop] = LATER + counted
                rule[row, span.start : min(span.start + 1, span.stop)] = _first_rule(span, counted)
        self.rule, self.allowed = rule.to(device), alphabet.allowed.to(device)

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        allowed = self.allowed[self.rule[prediction.at]]
        # Tokens excluded by another restriction stay possible where this one allows no others.
        score = prediction.log_score.clamp(min=_LEAST_SCORE)
        score = score.masked_fill(~allowed[:, : score.shape[1]], -torch.inf)
        return dataclasses.replace(prediction, log_score=score)


def _first_rule(span: Span, counted: int) -> int:
    """The rule of the first slot. A required word begins there, and is complete if that is the only slot."""
    if counted or not span.blank.least:
        return span.first + counted
    if span.stop - span.start == 1:
        return _WORD + (FIRST_APART if span.first == FIRST_AFTER_WORD else span.first)
    return _WORDS + span.first


class RepetitionPenalty:
    """Makes content words that are already in the text less likely."""

    def __init__(self, alphabet: Alphabet, device: torch.device | str = "cpu"):
        self.cost = _REPETITION_PENALTY * alphabet.content.to(device, torch.float32)

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        rows, columns = state.x.shape[0], prediction.log_score.shape[1]
        penalty = torch.zeros(rows, len(self.cost), device=state.x.device).scatter_(1, state.x, self.cost[state.x])
        row = torch.arange(rows, device=state.x.device)[:, None].expand_as(state.x)[prediction.at]
        return dataclasses.replace(prediction, log_score=prediction.log_score - penalty[row, :columns])


class Avoiding:
    """A restriction: no token may complete one of these token sequences, in reading order."""

    def __init__(self, sequences: Sequence[Sequence[int]]):
        self.sequences = sequences

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        order = state.z.argsort(dim=-1, stable=True)
        text, score = state.x.gather(1, order), prediction.log_score.clone()
        for *before, last in self.sequences:
            fits = torch.ones_like(text, dtype=torch.bool)
            for back, token in enumerate(reversed(before), 1):
                fits &= torch.nn.functional.pad(text, (back, 0), value=-1)[:, : text.shape[1]] == token
            here = torch.zeros_like(fits).scatter(1, order, fits)[prediction.at]
            score[here, last] = -torch.inf
        return dataclasses.replace(prediction, log_score=score)


class Forced:
    """A restriction: every slot takes its given token."""

    def __init__(self, tokens: Int[Tensor, "B L"]):
        self.tokens = tokens

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        tokens = self.tokens[prediction.at][:, None]
        score = torch.full_like(prediction.log_score, -torch.inf).scatter_(1, tokens, 0.0)
        return dataclasses.replace(prediction, log_score=score)


class WithinWords(Reveal):
    """Wraps another reveal and keeps the number of words of every bounded blank within its bounds.

    The first token of a blank begins a word, and so does every later one with a leading space. A token that would make
    too many words, or leave too few slots for the words still required, stays masked; in the last step the best token
    of the other kind (beginning a word or continuing one) replaces it. One of the two kinds always fits.
    """

    def __init__(self, reveal: Reveal, alphabet: Alphabet, spans: Sequence[Sequence[Span]]):
        self.reveal, self.begins = reveal, alphabet.begins
        self.spans = [(row, s) for row, each in enumerate(spans) for s in each if s.blank.counted and s.stop > s.start]

    def __call__(
        self, state: State, prediction: Prediction, s: float, u: Tensor, vocabulary: Vocabulary
    ) -> Int[Tensor, "B L"]:
        x = self.reveal(state, prediction, s, u, vocabulary)
        if not self.spans:
            return x
        before, after = torch.stack([state.x, x]).tolist()  # one copy for all rows: each waits for a GPU
        new = [
            (row, i)
            for row, span in self.spans
            for i in range(span.start + 1, span.stop)
            if before[row][i] == vocabulary.mask and after[row][i] != vocabulary.mask
        ]
        scored = self._scored(prediction, x, new, s) if new else {}
        changed: dict[tuple[int, int], int] = {}
        for row, span in self.spans:
            revealed = {i: scored[row, i] for i in range(span.start, span.stop) if (row, i) in scored}
            here = slice(span.start + 1, span.stop)
            words = 1 + sum(bool(self.begins[token]) for token in before[row][here] if token != vocabulary.mask)
            masked = sum(token == vocabulary.mask for token in before[row][here])
            for i, token in self._changes(after[row], revealed, words, masked, span.blank, vocabulary.mask).items():
                changed[row, i] = token
        if changed:
            rows, slots = torch.tensor(list(changed), device=x.device).T
            x[rows, slots] = torch.tensor(list(changed.values()), device=x.device)
        return x

    def _scored(
        self, prediction: Prediction, x: Int[Tensor, "B L"], new: list[tuple[int, int]], s: float
    ) -> dict[tuple[int, int], "_Revealed"]:
        """Scores of the newly revealed slots (row, slot)."""
        rows, slots = torch.tensor(new, device=x.device).T
        place = prediction.at.flatten().cumsum(0).sub(1).view_as(prediction.at)[rows, slots]  # among the scores
        scores_now = prediction.log_score[place, x[rows, slots]].tolist()
        if s > 0:
            best = [None] * len(new)
        else:
            scores = prediction.log_score[place]
            begins = torch.from_numpy(self.begins[: scores.shape[1]]).to(x.device)
            kinds = [torch.where(begins == kind, scores, -torch.inf).argmax(-1) for kind in (False, True)]
            best = torch.stack(kinds, -1).tolist()
        return dict(zip(new, map(_Revealed, scores_now, best), strict=True))

    def _changes(
        self, after: list[int], new: dict[int, "_Revealed"], words: int, masked: int, blank: Blank, mask: int
    ) -> dict[int, int]:
        """Replacements for newly revealed tokens of a blank that violate its bounds: slot → token.

        `words` and `masked`: number of words begun and of masked slots before this step.
        """
        changed = {}
        for i in sorted(new, key=lambda i: -new[i].score):
            proposed = bool(self.begins[after[i]])
            too_many = blank.most is not None and words + proposed > blank.most
            too_few = words + proposed + masked - 1 < blank.least
            begins = proposed != (too_many or too_few)
            best = new[i].best
            if begins != proposed:
                changed[i] = mask if best is None else best[begins]
            if begins == proposed or best is not None:
                words, masked = words + begins, masked - 1
        return changed


@dataclass(frozen=True)
class _Revealed:
    """The score of a revealed token; in the last step also the best tokens that continue and begin a word."""

    score: float
    best: list[int] | None
