"""Between a template and token ids: what the network sees of the text, which tokens may go where, and how a fill is
set into the text with the spaces a careful typist would put.

The literal text never passes through tokens: the answer is made of the template's own characters and the fills.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ddot.filling import Prompt
from ddot.gaps import hint_of
from ddot.records import UNKNOWN, Example, Prediction, State
from ddot.sampling import Reveal
from ddot.template import Blank, Template
from ddot.tokens import Tokenizer, Vocabulary

# After these a word follows without a space, and before these it ends without one.
_OPENERS = set("([{“‘«¿¡/-–—@#$£€_\\")
_CLOSERS = set(".,;:!?)]}%…”’»'\"-–—/°_")
_MARKS = set(".,;:!?)]}%")  # never stand after a space in ordinary text
_QUOTES = set("\"'")
# Parts of words that stand apart in tokenised text: "won 't", "Obama 's".
_ENDINGS = {"'s", "'t", "n't", "'re", "'ve", "'ll", "'d", "'m", "’s", "’t", "’re", "’ve", "’ll", "’d", "’m"}

# What may stand at the first slot of a blank, and at the others.
FIRST_APART, FIRST_AFTER_WORD, FIRST_GLUED, LATER = range(4)


class Alphabet:
    """The tokens of a vocabulary as pieces of text: which begin a word, which go on with one, which are neither."""

    def __init__(self, tokenizer: Tokenizer):
        base, rows = tokenizer.vocabulary.base, tokenizer.vocabulary.rows
        self.base = base
        known = tokenizer.encode("a")[-1:].tolist()  # decoded after a letter, so that a leading space is not lost
        lead = len(tokenizer.decode(known))
        self.pieces = pieces = [
            text[lead:] for text in tokenizer.encoder.decode_batch([[*known, i] for i in range(base)])
        ]
        self.begins, self.goes_on, self.closes, self.word = (np.zeros(rows, bool) for _ in range(4))
        self.space, self.loose = np.zeros(rows, bool), np.zeros(rows, bool)
        for row, piece in enumerate(pieces):
            bare = piece.removeprefix(" ")
            if piece == " ":
                self.space[row] = True  # some vocabularies write numbers as a space and digits
            elif bare and bare.isprintable() and " " not in bare and "�" not in bare and not _is_marker(bare):
                self.begins[row] = bare != piece
                self.goes_on[row] = bare == piece
                self.loose[row] = bare != piece and (bare[0] in _MARKS or bare.lower() in _ENDINGS)
                self.closes[row] = bare == piece and bare[0] in _CLOSERS
                self.word[row] = bare == piece and bare[0].isalnum()
        if not self.begins.any() or not self.word.any():
            raise ValueError("the tokenizer has no tokens that begin a word with a space; it cannot fill blanks")

    @cached_property
    def no_text(self) -> tuple[int, ...]:
        """The ordinary tokens that may stand nowhere: white space, parts of characters, markers."""
        text = self.begins | self.goes_on | self.space
        return tuple(np.flatnonzero(~text[: self.base]).tolist())

    @cached_property
    def loose_marks(self) -> tuple[int, ...]:
        """Tokens that are a mark or an ending after a space, as only tokenised text has them."""
        return tuple(np.flatnonzero(self.loose).tolist())

    @cached_property
    def allowed(self) -> Bool[Tensor, "rules V"]:
        """For each rule (FIRST_APART … LATER, then the same for counted words) the tokens that may stand there."""
        begin = self.begins | self.space
        rules = [begin, begin | self.closes, self.word, begin | self.goes_on]
        return torch.from_numpy(np.stack([*rules, *(rule & ~self.space for rule in rules)]))


def _is_marker(piece: str) -> bool:
    """Markers of a language model's training, such as <|im_start|>, are no text."""
    return len(piece) > 2 and piece[0] == "<" and piece[-1] == ">"


@dataclass(frozen=True)
class View:
    """What the network sees of a template: prompt tokens, after which of them each blank lies, how it may begin."""

    prompt: Prompt
    after: tuple[int, ...]
    first: tuple[int, ...]


def view(template: Template, tokenizer: Tokenizer, located: bool, begins: bool = True, ends: bool = True) -> View:
    """The template as tokens between two edge tokens. White space counts as one space; the answer keeps it as it was.

    `located` tells the network where the blanks are; otherwise it must find out. `begins` and `ends` say whether the
    text is whole or a part of a longer one.
    """
    marks = [tokenizer.edge if whole else tokenizer.vocabulary.sep for whole in (begins, ends)]
    pieces = [np.array(marks[:1], np.int64)]
    after, first = [], []
    for number, literal in enumerate(template.literals):
        text = " ".join(literal.split())
        if text:
            apart = number == 0 or literal[0].isspace() or literal[0] not in _CLOSERS
            pieces.append(tokenizer.encode(" " + text if apart else text))
        if number < len(template.blanks):
            after.append(sum(map(len, pieces)) - 1)
            first.append(_first_rule(literal))
    tokens = np.concatenate([*pieces, marks[1:]]).astype(np.int64)
    is_open = np.zeros(len(tokens) + 1, bool)
    is_open[np.array(after, np.int64) + 1] = True
    hint = np.array([hint_of(a, b) if located else UNKNOWN for a, b in pairwise(is_open.tolist())], np.int64)
    example = Example(tokens, np.ones(len(tokens), bool), hint)
    return View(Prompt(example, is_open), tuple(after), tuple(first))


def _first_rule(before: str) -> int:
    if not before or before[-1].isspace():
        return FIRST_APART
    return FIRST_GLUED if opens(before) else FIRST_AFTER_WORD


def opens(before: str) -> bool:
    """Whether a word after this text follows without a space: it ends with an opening bracket, quote or hyphen."""
    if before[-1] in _QUOTES:
        return len(before) == 1 or before[-2].isspace() or before[-2] in _OPENERS
    return before[-1] in _OPENERS


def set_fill(raw: str, before: str, after: str) -> str:
    """The fill as it stands between the text before and the text after, with the spaces it needs on either side."""
    words = " ".join(raw.split())
    if not words:
        return ""
    at_border = not before or before[-1].isspace() or opens(before)
    lead = "" if at_border or (words[0] in _CLOSERS and raw[0] != " ") else " "
    trail = "" if not after or after[0].isspace() or after[0] in _CLOSERS or opens(words) else " "
    return lead + words + trail


@dataclass(frozen=True)
class Span:
    """The slots start … stop − 1 of a row belong to a blank."""

    start: int
    stop: int
    first: int
    blank: Blank


def lay_out(view: View, blanks: Sequence[Blank], lengths: Sequence[int]) -> tuple[Prompt, list[Span]]:
    """The prompt told how many tokens each gap gets, and the slots of each blank when `lengths` tokens go into them."""
    room = np.zeros(len(view.prompt), np.int64)
    spans = []
    for blank, after, first, length in zip(blanks, view.after, view.first, lengths, strict=True):
        start = after + 1 + int(room.sum())  # blanks come in text order: all rooms so far lie before this one
        spans.append(Span(start, start + length, first, blank))
        room[after] += length
    return view.prompt.with_rooms(room), spans


class Pieces:
    """A restriction: at every slot of a blank only tokens that may stand there."""

    def __init__(self, alphabet: Alphabet, spans: Sequence[Sequence[Span]], L: int):
        self.allowed = alphabet.allowed
        self.rule = torch.full((len(spans), L), LATER)
        for row, some in enumerate(spans):
            for span in some:
                counted = 4 * span.blank.bounded
                self.rule[row, span.start : span.stop] = LATER + counted
                self.rule[row, span.start : min(span.start + 1, span.stop)] = span.first + counted

    def __call__(self, state: State, prediction: Prediction) -> Prediction:
        device = prediction.log_score.device
        allowed = self.allowed.to(device)[self.rule.to(device)[prediction.at]]
        score = prediction.log_score.masked_fill(~allowed[:, : prediction.log_score.shape[1]], -torch.inf)
        return Prediction(prediction.at, score, prediction.velocity)


class WithinWords:
    """Reveals as another does, and keeps the number of words of every bounded blank within its bounds.

    The first token of a blank begins a word; so does every later one with a leading space. A token that would make too
    many words, or leave too few slots for those still wanted, is not revealed yet; in the last step the best one of the
    other sort takes its place. One of the two sorts always fits.
    """

    def __init__(self, reveal: Reveal, alphabet: Alphabet, spans: Sequence[Sequence[Span]]):
        self.reveal = reveal
        self.begins = torch.from_numpy(alphabet.begins)
        self.spans = [(row, s) for row, some in enumerate(spans) for s in some if s.blank.bounded and s.stop > s.start]

    def __call__(
        self, state: State, prediction: Prediction, s: float, u: Tensor, vocabulary: Vocabulary
    ) -> Int[Tensor, "B L"]:
        x = self.reveal(state, prediction, s, u, vocabulary)
        if not self.spans:
            return x
        scores = prediction.log_score.cpu()
        place = prediction.at.flatten().cumsum(0).sub(1).view_as(prediction.at)
        for row, span in self.spans:
            before, after = state.x[row, span.start : span.stop].tolist(), x[row, span.start : span.stop].tolist()
            rows = place[row, span.start : span.stop].tolist()
            kept = self._keep(before, after, [scores[r] for r in rows], span.blank, vocabulary.mask, last=s <= 0)
            x[row, span.start : span.stop] = torch.tensor(kept, device=x.device)
        return x

    def _keep(
        self, before: list[int], after: list[int], scores: list[Tensor], blank: Blank, mask: int, last: bool
    ) -> list[int]:
        kept = list(after)
        words = 1 + sum(bool(self.begins[token]) for token in before[1:] if token != mask)
        masked = sum(token == mask for token in before[1:])
        new = [i for i in range(1, len(before)) if before[i] == mask and after[i] != mask]
        for i in sorted(new, key=lambda i: -float(scores[i][after[i]])):
            for begins in (bool(self.begins[after[i]]), not self.begins[after[i]]):
                too_many = blank.most is not None and words + begins > blank.most
                if not too_many and words + begins + masked - 1 >= blank.least:
                    break
            if begins != self.begins[after[i]]:
                if not last:
                    kept[i] = mask
                    continue
                sort = self.begins == begins
                kept[i] = int(torch.where(sort[: len(scores[i])], scores[i], -torch.inf).argmax())
            words, masked = words + begins, masked - 1
        return kept
