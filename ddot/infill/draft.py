"""One candidate under way: the text as far as it is written, and what may come next. Knows words, not tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from ddot.core.codes import UNKNOWN_LENGTH
from ddot.infill.alphabet import FIRST_AFTER_WORD, FIRST_APART, LATER, Alphabet
from ddot.infill.template import Blank
from ddot.infill.view import TOKENS_A_WORD, View

_LONGEST = 48  # tokens of a blank that asks for no number of words
_A_SENTENCE = 3  # words that a blank between sentences must have to be taken for one
_FEWEST = 3  # tokens of a blank when time is up: in fewer there is often nothing to say
# Nats that a token earns its fill, in a sentence and where the fill is one: without them short fills would win.
# Chosen by the verdicts of readers on 1,290 fills (docs/log.md).
_A_TOKEN, _A_TOKEN_OF_A_SENTENCE = 0.75, 1.1
_LIKELY = np.log(0.2)  # an end that needs no better place
_WORSE = 3.0  # nats by which a draft is behind: it would hardly be chosen
_AS_GOOD = 1.0  # nats below the likeliest end of a text that is cut: the last such place is taken
# Words after which an English text goes on.
_MORE_FOLLOWS = (
    "a an and as at be because been but by for from had has have if in into is my no nor of on or our so than that the "
    "their these this to was we were when which while who whose will with would your"
)
_DANGLING = frozenset(_MORE_FOLLOWS.split())
_STOPS, _CLOSERS = ".!?…", "\"'”’)"  # marks that end a sentence, and those that may follow them
# Rules beyond those of `Alphabet.allowed`: go on with the word, begin one, a word after a space, nothing; go on with
# the last word or close it with a mark; the same where it ends a sentence.
GO_ON, BEGIN, GLUED, NOTHING, CLOSE, FINISH, END = range(16, 23)
RULES = 23  # added to the number of a rule, it also allows [sep]
_COUNTED, _LOOSE, _WORDS = 4, 8, 12  # where the rules begin for counted words, in tokenised text, for needed words


def rules(alphabet: Alphabet, sep: int) -> Bool[Tensor, "rules V"]:
    """The tokens that each rule allows: without [sep], then with it; for ordinary text, then for tokenised text."""
    pieces = np.array([*alphabet.pieces, *[""] * (len(alphabet.word) - len(alphabet.pieces))])
    marks = alphabet.goes_on & ~alphabet.word
    ending = marks & np.array([not piece.strip(_STOPS + _CLOSERS) for piece in pieces])
    lower = alphabet.word & np.array([not piece[:1].isupper() for piece in pieces])
    more = (
        alphabet.goes_on,
        alphabet.begins & ~alphabet.mark,
        alphabet.word,
        np.zeros_like(alphabet.word),
        marks if marks.any() else alphabet.goes_on,
        lower | ending if ending.any() else alphabet.goes_on,
        ending if ending.any() else alphabet.goes_on,
    )
    loose = torch.cat([alphabet.allowed, torch.from_numpy(np.stack(more))])
    table = torch.stack([loose & ~torch.from_numpy(alphabet.loose), loose])[:, None].repeat(1, 2, 1, 1)
    table[:, 1, :, sep] = True
    return table.flatten(0, 2)


@dataclass(frozen=True)
class Gap:
    """A place between given tokens and the blanks that lie in it, which are written as one.

    `after`: the given token before it; `blank`: bounds of all of them together; `told`: the tokens that the network is
    told to write, so that it ends in time; `most`: the most it may write; `alone`, `between`: as in a `View`.
    """

    after: int
    blanks: tuple[Blank, ...]
    first: int
    blank: Blank
    told: int
    most: int
    alone: bool
    between: bool

    @cached_property
    def counted(self) -> bool:
        """Whether words must be counted: those of one of the blanks, so that it gets no more than it may."""
        return any(blank.counted for blank in self.blanks)

    @cached_property
    def whole(self) -> bool:
        """Whether it ends as a sentence does."""
        return self.between and self.blank.least >= _A_SENTENCE if self.counted else self.alone

    def split(self, tokens: Sequence[int], begins: Bool[np.ndarray, "V"]) -> list[list[int]]:
        """The tokens of each blank: words in turn, as evenly as bounds allow."""
        starts = [place for place, token in enumerate(tokens) if place == 0 or begins[token]]
        parts, done = [], 0
        for number, blank in enumerate(self.blanks):
            later, left = self.blanks[number + 1 :], len(starts) - done
            least = left - sum(other.most for other in later if other.most is not None)
            least = 0 if any(other.most is None for other in later) else least
            most = left - sum(other.least for other in later)
            share = max(blank.least, least, -(-left // (1 + len(later))))
            share = min(share, most, left if blank.most is None else blank.most)
            ends = [*starts, len(tokens)]
            parts.append(list(tokens[ends[done] : ends[done + share]]))
            done += share
        return parts


def gaps(view: View, blanks: Sequence[Blank], tokens: int | None) -> list[Gap]:
    """The gaps of a window that may hold text, in order. `tokens`: the most in each."""
    found = []
    for place in sorted(set(view.after)):
        mine = [number for number, other in enumerate(view.after) if other == place]
        some = tuple(blanks[number] for number in mine)
        bounds = [blank.most for blank in some if blank.most is not None]
        blank = Blank(sum(each.least for each in some), sum(bounds) if len(bounds) == len(some) else None)
        most = max(_LONGEST, 2 * blank.least + 8) if blank.most is None else 2 * blank.most + 4
        most = max(blank.least, most if tokens is None else min(most, tokens))
        if blank.most != 0:
            alone, between = any(view.alone[number] for number in mine), all(view.between[number] for number in mine)
            found.append(Gap(place, some, view.first[mine[0]], blank, _told(blank), most, alone, between))
    return found


def _told(blank: Blank) -> int:
    """The number of tokens a network is told for a number of words; none where bounds leave it to decide."""
    if blank.most is None or not blank.least or blank.most > 2 * blank.least + 2:
        return UNKNOWN_LENGTH
    return max(1, round(TOKENS_A_WORD * (blank.least + blank.most) / 2))


def fluency(chances: Sequence[float], is_sentence: bool) -> float:
    """How well a fill reads: the sum of its log-probabilities, and what its tokens earn."""
    return sum(chances) + len(chances) * (_A_TOKEN_OF_A_SENTENCE if is_sentence else _A_TOKEN)


@dataclass
class Written:
    """What stands in a gap: tokens, their log-probabilities and, before each and at the end, that of ending there.

    `words` and `says` (whether there is a word, not only marks) are counted on the way.
    """

    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    words: int = 0
    says: bool = False

    def end_at(self, length: int) -> None:
        self.tokens, self.chances = self.tokens[:length], self.chances[:length]
        self.ends = self.ends[: length + 1]

    @property
    def all_chances(self) -> list[float]:
        """Log-probabilities of all predictions, the end's included."""
        return [*self.chances, *self.ends[len(self.tokens) :]]


class Draft:
    """A text of given tokens with gaps, written up to somewhere. The reader keeps `read` and calls `take`."""

    def __init__(
        self,
        given: Sequence[int],
        gaps: Sequence[Gap],
        alphabet: Alphabet,
        sep: int,
        count: int,
        loose: bool = False,
        begin: str = "",
        banned: Sequence[Sequence[int]] = (),
    ):
        """`count`: how many of the gaps are written."""
        self.given, self.gaps, self.alphabet, self.sep = given, gaps, alphabet, sep
        self.count = count
        self.loose, self.banned = loose, banned
        self.begin = " " + begin if begin else ""
        self.written = [Written() for _ in gaps[:count]]
        self.closed = 0 if all(gap.told != UNKNOWN_LENGTH for gap in gaps) else UNKNOWN_LENGTH
        self.text: list[int] = []
        self.lengths: list[int] = []  # what the network is told at each token of the text
        self.read = self.placed = 0
        self.now = -1  # the gap being written
        self.hurried = self.done = False
        self.draws = 0
        self._advance()

    def _advance(self) -> None:
        """Place the given tokens up to the next gap."""
        self.now += 1
        self.done = self.now == self.count
        if not self.done:
            gap = self.gaps[self.now]
            self.text += self.given[self.placed : gap.after + 1]
            self.lengths += [self.closed] * (len(self.text) - len(self.lengths))
            self.lengths[-1] = gap.told
            self.placed = gap.after + 1

    @property
    def most(self) -> int:
        """The most tokens of the gap being written."""
        gap, begun = self.gaps[self.now], self._begun()
        least = max(gap.blank.least, len(self.begin) if begun is None else begun)  # a token has at least a letter
        return max(least, min(gap.most, begun + _FEWEST) if self.hurried and begun is not None else gap.most)

    def _begun(self) -> int | None:
        """The number of tokens that spell the letters the gap begins with; None if they are not all there."""
        letters, tokens = self.begin if self.now == 0 else "", self.written[self.now].tokens
        return next((n for n in range(len(tokens) + 1) if len(self._spelt(tokens[:n])) >= len(letters)), None)

    def _spelt(self, tokens: Sequence[int]) -> str:
        return "".join(self.alphabet.pieces[token] for token in tokens)

    def rule(self) -> int:
        """The number of the rule for the next token, among `rules`."""
        return self._rule() + 2 * RULES * self.loose

    def _rule(self) -> int:
        gap, tokens, alphabet = self.gaps[self.now], self.written[self.now].tokens, self.alphabet
        blank = gap.blank
        kind = (_LOOSE if self.loose else _COUNTED) * gap.counted
        if not tokens:
            if not blank.least:
                return gap.first + kind + RULES
            # Among several blanks a mark that is attached to the word before would pass for the word of the first.
            apart = (gap.counted or len(gap.blanks) > 1) and gap.first == FIRST_AFTER_WORD
            first = FIRST_APART if apart else gap.first
            return first + (kind or _WORDS)
        if alphabet.space[tokens[-1]]:
            return GLUED
        words = self.written[self.now].words
        missing = max(blank.least - words, 0 if self.written[self.now].says else 1)
        left = self.most - len(tokens)
        if left <= missing:
            return BEGIN if missing else NOTHING + RULES
        ends = RULES if missing == 0 and self._may_end(tokens) else 0
        return (self._closing(tokens) if blank.most is not None and words >= blank.most else LATER + kind) + ends

    def _closing(self, tokens: Sequence[int]) -> int:
        """The rule after the last word a gap may have: no other word glued to it, as in "asked,Why"."""
        text, whole = self._spelt(tokens[-3:]), self.gaps[self.now].whole
        if text[-1:].isalnum() or text[-1:] in "-'’" or text[-2:-1].isdigit():
            return FINISH if whole else GO_ON
        return END if whole else CLOSE

    def _words(self, tokens: Sequence[int]) -> int:
        return sum(place == 0 or bool(self.alphabet.begins[token]) for place, token in enumerate(tokens))

    def _says(self, tokens: Sequence[int]) -> bool:
        """Whether there is a word among the tokens, not only marks."""
        return any(self.alphabet.says[token] for token in tokens)

    def _may_end(self, tokens: Sequence[int]) -> bool:
        """Whether the gap may end after these tokens: one that is a paragraph, only where a sentence does."""
        last = self._spelt(tokens[-3:])
        return not self.gaps[self.now].whole or last.rstrip(_CLOSERS).endswith((*_STOPS, ":"))

    def only(self) -> list[int]:
        """The tokens that can continue the letters the first fill must begin with; none if any token is allowed."""
        there = self._spelt(self.written[0].tokens) if self.begin else ""
        if self.now or len(there) >= len(self.begin):
            return []
        return self.alphabet.spelling_on(self.begin[len(there) :])

    def forbidden(self) -> list[int]:
        """Tokens that would repeat the last one, spell something to be avoided, or leave a sentence without its end."""
        gap = self.gaps[self.now]
        some = [self.text[-1]] if self.text[-1] != self.sep else []
        if gap.whole and gap.blank.most is not None and self.written[self.now].words == gap.blank.most - 1:
            some += [token for word in _DANGLING if (token := self.alphabet.token_of.get(" " + word)) is not None]
        return some + [last for *before, last in self.banned if not before or self.text[-len(before) :] == list(before)]

    def take(self, token: int, chance: float, end: float) -> None:
        """Go on with the token chosen: its log-probability, and that of ending here."""
        here = self.written[self.now]
        here.ends.append(end)
        self.draws += 1
        if token != self.sep:
            here.words += not here.tokens or bool(self.alphabet.begins[token])
            here.says |= bool(self.alphabet.says[token])
            here.tokens.append(token)
            here.chances.append(chance)
            self.text.append(token)
            self.lengths.append(UNKNOWN_LENGTH)
            return
        if end < _LIKELY and self._rule() == NOTHING + RULES:
            self._cut(here)
        self._advance()

    def _cut(self, here: Written) -> None:
        """Cut an over-long gap at the last of its likeliest ends: after a whole word, and as many as are asked for."""
        tokens, blank, begun = here.tokens, self.gaps[self.now].blank, self._begun() or 0
        ways = [
            length
            for length in range(begun + 1, len(tokens) + 1)
            if self._words(tokens[:length]) >= blank.least
            and self._says(tokens[:length])
            and self._reads_whole(tokens, length)
        ]
        ways = [length for length in ways if self._may_end(tokens[:length])] or ways or [len(tokens)]
        likeliest = max(here.ends[length] for length in ways)
        best = max(length for length in ways if here.ends[length] >= likeliest - _AS_GOOD)
        taken = len(tokens) - best
        here.end_at(best)
        if taken:
            del self.text[-taken:], self.lengths[-taken:]
            self.read = min(self.read, len(self.text))

    def _reads_whole(self, tokens: Sequence[int], length: int) -> bool:
        """Whether the tokens up to a length end with a whole word, or with a mark that closes something."""
        text, following = self._spelt(tokens[:length]), self._spelt(tokens[length : length + 1])
        word = text.rpartition(" ")[2].lstrip("\"'“‘([")  # none: a mark that opens
        if self.alphabet.space[tokens[length - 1]] or not word or word.lower() in _DANGLING:
            return False
        if not following:
            return not text[-1].isdigit()  # a number may go on
        ended = text[-1] in ".!?" and following[0].isupper()  # the next sentence, glued
        return ended or not (self.alphabet.word[tokens[length]] or following[0] in "-'’")

    def fluency(self) -> float:
        """That of the only gap that is written, as far as it is."""
        (only,), gap = self.written, self.gaps[0]
        return fluency(only.all_chances, gap.between)

    def is_behind(self, best: float) -> bool:
        """Whether the only gap will hardly read as well as one of this fluency."""
        return self.fluency() < best - _WORSE

    def unread(self) -> Iterator[tuple[int, int]]:
        """(token, told gap length) of what is written and not read yet."""
        yield from zip(self.text[self.read :], self.lengths[self.read :], strict=True)
