"""A draft: the text of one candidate as far as it is written, and which tokens may come next. Runs no network."""

import re
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

_MAX_TOKENS = 48  # of a blank without a bound on its words
_MIN_SENTENCE_WORDS = 3  # a blank between sentences that asks for fewer words is not taken for a sentence
_MIN_TOKENS = 3  # that a blank gets after the deadline: fewer often say nothing
# Bonus per token in nats, inside a sentence and for a fill between sentences; without it short fills would win.
# Fitted to blind verdicts of readers on 1,290 fills (docs/log.md).
_TOKEN_BONUS, _SENTENCE_TOKEN_BONUS = 0.75, 1.1
_LIKELY_END = np.log(0.2)  # a gap that ends at least this likely is not shortened
_PRUNE_MARGIN = 3.0  # nats: a draft whose fluency trails the best by more is unlikely to be chosen
_END_MARGIN = 1.0  # nats: a gap is shortened to the last end that is at most this much less likely than the likeliest
# English words that rarely end a phrase.
_DANGLING_WORDS = (
    "a an and as at be because been but by for from had has have if in into is my no nor of on or our so than that the "
    "their these this to was we were when which while who whose will with would your"
)
_DANGLING = frozenset(_DANGLING_WORDS.split())
_STOPS, _CLOSERS = ".!?…", "\"'”’)"  # marks that end a sentence, and marks that may follow them
_ABBREVIATION = re.compile(r"(?<![^\W_])[^\W\d_]{1,2}\.\Z")  # "U.S.A", "Ph.D": a capital may follow at once
# Rules beyond those of `Alphabet.allowed`: continue the word; begin a word; a word right after a space token; nothing;
# close the last word with a mark; continue it or end the sentence; end the sentence; what comes after a mark, for any
# fill and for counted words: no capital attached to it, as in "late.We".
CONTINUE, BEGIN, GLUED, NOTHING, CLOSE, FINISH, END, AFTER_MARK, COUNTED_AFTER_MARK = range(16, 25)
WITH_SEP = 25  # added to the number of a rule: [sep] is allowed too; twice this number: the same for tokenised text
COUNTED, _TOKENISED, _WORDS = 4, 8, 12  # first rule for counted words, the same in tokenised text, required words


def rules(alphabet: Alphabet, sep: int) -> Bool[Tensor, "rules V"]:
    """The tokens that each rule allows: without [sep], then with it; for ordinary text, then for tokenised text."""
    pieces = np.array([*alphabet.pieces, *[""] * (len(alphabet.word) - len(alphabet.pieces))])
    marks = alphabet.continues & ~alphabet.word
    ending = marks & np.array([not piece.strip(_STOPS + _CLOSERS) for piece in pieces])
    capital = alphabet.word & np.array([piece[:1].isupper() for piece in pieces])
    lower = alphabet.word & ~capital
    later, counted = (alphabet.allowed[LATER + kind].numpy() & ~capital for kind in (0, COUNTED))
    extra = (
        alphabet.continues,
        alphabet.begins & ~alphabet.mark,
        alphabet.word,
        np.zeros_like(alphabet.word),
        marks if marks.any() else alphabet.continues,
        lower | ending if ending.any() else alphabet.continues,
        ending if ending.any() else alphabet.continues,
        later,
        counted,
    )
    tokenised = torch.cat([alphabet.allowed, torch.from_numpy(np.stack(extra))])
    ordinary = tokenised & ~torch.from_numpy(alphabet.detached)
    table = torch.stack([ordinary, tokenised])[:, None].repeat(1, 2, 1, 1)
    table[:, 1, :, sep] = True
    return table.flatten(0, 2)


@dataclass(frozen=True)
class Gap:
    """A gap and the blanks in it, which are written as one.

    `after`: index of the given token before it. `first`: the rule for its first token. `bounds`: those of its blanks
    together. `told`: the length that the network is told, so that it ends in time. `max_tokens`: the most it may hold.
    `own_paragraph`, `between_sentences`: as in a `View`.
    """

    after: int
    blanks: tuple[Blank, ...]
    first: int
    bounds: Blank
    told: int
    max_tokens: int
    own_paragraph: bool
    between_sentences: bool

    @cached_property
    def counted(self) -> bool:
        """Whether words must be counted, because one of its blanks has bounds."""
        return any(blank.counted for blank in self.blanks)

    @cached_property
    def ends_sentence(self) -> bool:
        """Whether it must end where a sentence ends."""
        is_sentence = self.between_sentences and self.bounds.least >= _MIN_SENTENCE_WORDS
        return is_sentence if self.counted else self.own_paragraph

    def split(self, tokens: Sequence[int], begins: Bool[np.ndarray, "V"]) -> list[list[int]]:
        """The tokens of each blank: words in turn, as evenly as bounds allow."""
        starts = [place for place, token in enumerate(tokens) if place == 0 or begins[token]]
        ends = [*starts, len(tokens)]
        parts, used = [], 0
        for number, blank in enumerate(self.blanks):
            later, left = self.blanks[number + 1 :], len(starts) - used
            least = left - sum(other.most for other in later if other.most is not None)
            least = 0 if any(other.most is None for other in later) else least
            most = left - sum(other.least for other in later)
            share = max(blank.least, least, -(-left // (1 + len(later))))
            share = min(share, most, left if blank.most is None else blank.most)
            parts.append(list(tokens[ends[used] : ends[used + share]]))
            used += share
        return parts


def gaps(view: View, blanks: Sequence[Blank], max_tokens: int | None) -> list[Gap]:
    """The gaps of a window that may hold text, in order. `max_tokens`: of each."""
    result = []
    for after in sorted(set(view.after)):
        numbers = [number for number, other in enumerate(view.after) if other == after]
        inside = tuple(blanks[number] for number in numbers)
        bounded = [blank.most for blank in inside if blank.most is not None]
        bounds = Blank(sum(blank.least for blank in inside), sum(bounded) if len(bounded) == len(inside) else None)
        most = max(_MAX_TOKENS, 2 * bounds.least + 8) if bounds.most is None else 2 * bounds.most + 4
        most = max(bounds.least, most if max_tokens is None else min(most, max_tokens))
        if bounds.most != 0:
            paragraph = any(view.own_paragraph[number] for number in numbers)
            sentence = all(view.between_sentences[number] for number in numbers)
            first = view.first[numbers[0]]
            result.append(Gap(after, inside, first, bounds, _told_length(bounds), most, paragraph, sentence))
    return result


def _told_length(bounds: Blank) -> int:
    """The length in tokens that the network is told; unknown where the bounds are wide, so that it decides itself."""
    if bounds.most is None or not bounds.least or bounds.most > 2 * bounds.least + 2:
        return UNKNOWN_LENGTH
    return max(1, round(TOKENS_A_WORD * (bounds.least + bounds.most) / 2))


def fluency(log_probs: Sequence[float], is_sentence: bool) -> float:
    """How well a fill reads: the sum of its log-probabilities, and a bonus per token."""
    return sum(log_probs) + len(log_probs) * (_SENTENCE_TOKEN_BONUS if is_sentence else _TOKEN_BONUS)


@dataclass
class GapFill:
    """What is written in a gap: tokens, their log-probabilities, and that of ending before each and after the last.

    `words`: the number of words so far; `has_word`: whether any token is more than punctuation.
    """

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    end_log_probs: list[float] = field(default_factory=list)
    words: int = 0
    has_word: bool = False

    def truncate(self, length: int) -> None:
        self.tokens, self.log_probs = self.tokens[:length], self.log_probs[:length]
        self.end_log_probs = self.end_log_probs[: length + 1]

    @property
    def all_log_probs(self) -> list[float]:
        """Log-probabilities of all predictions, the end's included."""
        return [*self.log_probs, *self.end_log_probs[len(self.tokens) :]]


class Draft:
    """Given tokens with gaps, written up to some point. `passes` updates `n_read` and calls `take`."""

    def __init__(
        self,
        given: Sequence[int],
        gaps: Sequence[Gap],
        alphabet: Alphabet,
        sep: int,
        n_gaps: int,
        tokenised: bool = False,
        prefix: str = "",
        banned: Sequence[Sequence[int]] = (),
    ):
        """`n_gaps`: how many of the gaps to write. `prefix`: the letters that the first fill begins with."""
        self.given, self.gaps, self.alphabet, self.sep = given, gaps, alphabet, sep
        self.n_gaps, self.tokenised, self.banned = n_gaps, tokenised, banned
        self.prefix = " " + prefix if prefix else ""
        self.fills = [GapFill() for _ in gaps[:n_gaps]]
        self.closed_length = 0 if all(gap.told != UNKNOWN_LENGTH for gap in gaps) else UNKNOWN_LENGTH
        self.text: list[int] = []
        self.told_lengths: list[int] = []  # the gap length that the network is told with each token of the text
        self.n_read = self.n_given = 0  # tokens of the text that the network has read; given tokens in the text
        self.current, self.n_draws = -1, 0  # the gap being written; tokens chosen
        self.past_deadline = self.done = False
        self._advance()

    def _advance(self) -> None:
        """Move to the next gap and append the given tokens before it."""
        self.current += 1
        self.done = self.current == self.n_gaps
        if not self.done:
            gap = self.gaps[self.current]
            self.text += self.given[self.n_given : gap.after + 1]
            self.told_lengths += [self.closed_length] * (len(self.text) - len(self.told_lengths))
            self.told_lengths[-1] = gap.told
            self.n_given = gap.after + 1

    @property
    def max_tokens(self) -> int:
        """The most tokens of the gap being written."""
        gap, spelt = self.gaps[self.current], self._prefix_length()
        least = max(gap.bounds.least, len(self.prefix) if spelt is None else spelt)  # a token has at least a letter
        late = self.past_deadline and spelt is not None
        return max(least, min(gap.max_tokens, (spelt or 0) + _MIN_TOKENS) if late else gap.max_tokens)

    def _prefix_length(self) -> int | None:
        """The number of tokens that spell the prefix of the current gap; None while it is incomplete."""
        letters, tokens = self.prefix if self.current == 0 else "", self.fills[self.current].tokens
        return next((n for n in range(len(tokens) + 1) if len(self._spell(tokens[:n])) >= len(letters)), None)

    def _spell(self, tokens: Sequence[int]) -> str:
        return "".join(self.alphabet.pieces[token] for token in tokens)

    def rule(self) -> int:
        """The rule for the next token, an index into `rules`."""
        return self._rule() + 2 * WITH_SEP * self.tokenised

    def _rule(self) -> int:
        gap, fill, alphabet = self.gaps[self.current], self.fills[self.current], self.alphabet
        bounds, tokens = gap.bounds, fill.tokens
        kind = (_TOKENISED if self.tokenised else COUNTED) * gap.counted
        if not tokens:
            if not bounds.least:
                return gap.first + kind + WITH_SEP
            # Among several blanks a mark attached to the word before would count as the word of the first blank.
            apart = (gap.counted or len(gap.blanks) > 1) and gap.first == FIRST_AFTER_WORD
            return (FIRST_APART if apart else gap.first) + (kind or _WORDS)
        if alphabet.space[tokens[-1]]:
            return GLUED
        missing = max(bounds.least - fill.words, 0 if fill.has_word else 1)
        if self.max_tokens - len(tokens) <= missing:
            return BEGIN if missing else NOTHING + WITH_SEP
        end = WITH_SEP if missing == 0 and self._may_end(tokens) else 0
        if bounds.most is not None and fill.words >= bounds.most:
            return self._closing_rule(tokens) + end
        if not self.tokenised and self._is_after_mark(tokens):
            return (COUNTED_AFTER_MARK if gap.counted else AFTER_MARK) + end
        return LATER + kind + end

    def _is_after_mark(self, tokens: Sequence[int]) -> bool:
        """Whether a capital after these tokens needs a space before it."""
        text = self._spell(tokens[-4:]).rstrip(_CLOSERS)
        return text.endswith((*_STOPS, ",", ";", ":")) and not _ABBREVIATION.search(text)

    def _closing_rule(self, tokens: Sequence[int]) -> int:
        """The rule after the last word a gap may have: no other word is attached to it, as in "asked,Why"."""
        text, ends_sentence = self._spell(tokens[-3:]), self.gaps[self.current].ends_sentence
        if text[-1:].isalnum() or text[-1:] in "-'’" or text[-2:-1].isdigit():
            return FINISH if ends_sentence else CONTINUE
        return END if ends_sentence else CLOSE

    def _count_words(self, tokens: Sequence[int]) -> int:
        return sum(place == 0 or bool(self.alphabet.begins[token]) for place, token in enumerate(tokens))

    def _has_word(self, tokens: Sequence[int]) -> bool:
        return any(self.alphabet.wordlike[token] for token in tokens)

    def _may_end(self, tokens: Sequence[int]) -> bool:
        """Whether the gap may end after these tokens."""
        last = self._spell(tokens[-3:])
        return not self.gaps[self.current].ends_sentence or last.rstrip(_CLOSERS).endswith((*_STOPS, ":"))

    def only_allowed(self) -> list[int]:
        """The tokens that continue the prefix of the first fill; empty if there is none, or it is complete."""
        spelt = self._spell(self.fills[0].tokens) if self.prefix else ""
        if self.current or len(spelt) >= len(self.prefix):
            return []
        return self.alphabet.tokens_spelling(self.prefix[len(spelt) :])

    def forbidden(self) -> list[int]:
        """Tokens that would repeat the last one, complete a banned sequence, or leave a sentence unfinished."""
        gap = self.gaps[self.current]
        tokens = [self.text[-1]] if self.text[-1] != self.sep else []
        if gap.ends_sentence and gap.bounds.most is not None and self.fills[self.current].words == gap.bounds.most - 1:
            tokens += [token for word in _DANGLING if (token := self.alphabet.token_of.get(" " + word)) is not None]
        return tokens + [last for *before, last in self.banned if not before or self.text[-len(before) :] == before]

    def take(self, token: int, log_prob: float, end_log_prob: float) -> None:
        """Append the chosen token, or end the gap if it is [sep]."""
        fill = self.fills[self.current]
        fill.end_log_probs.append(end_log_prob)
        self.n_draws += 1
        if token != self.sep:
            fill.words += not fill.tokens or bool(self.alphabet.begins[token])
            fill.has_word |= bool(self.alphabet.wordlike[token])
            fill.tokens.append(token)
            fill.log_probs.append(log_prob)
            self.text.append(token)
            self.told_lengths.append(UNKNOWN_LENGTH)
            return
        if end_log_prob < _LIKELY_END and self._rule() == NOTHING + WITH_SEP:
            self._shorten(fill)
        self._advance()

    def _shorten(self, fill: GapFill) -> None:
        """Cut an over-long fill at the last of its likeliest ends, after a whole word and within the bounds."""
        tokens, bounds, spelt = fill.tokens, self.gaps[self.current].bounds, self._prefix_length() or 0
        ends = [
            length
            for length in range(spelt + 1, len(tokens) + 1)
            if self._count_words(tokens[:length]) >= bounds.least
            and self._has_word(tokens[:length])
            and self._ends_cleanly(tokens, length)
        ]
        ends = [length for length in ends if self._may_end(tokens[:length])] or ends or [len(tokens)]
        likeliest = max(fill.end_log_probs[length] for length in ends)
        best = max(length for length in ends if fill.end_log_probs[length] >= likeliest - _END_MARGIN)
        removed = len(tokens) - best
        fill.truncate(best)
        if removed:
            del self.text[-removed:], self.told_lengths[-removed:]
            self.n_read = min(self.n_read, len(self.text))

    def _ends_cleanly(self, tokens: Sequence[int], length: int) -> bool:
        """Whether the first `length` tokens end with a whole word or a closing mark."""
        text, following = self._spell(tokens[:length]), self._spell(tokens[length : length + 1])
        word = text.rpartition(" ")[2].lstrip("\"'“‘([")  # empty: an opening mark
        if self.alphabet.space[tokens[length - 1]] or not word or word.lower() in _DANGLING:
            return False
        if not following:
            return not text[-1].isdigit()  # a number may go on
        ended = text[-1] in ".!?" and following[0].isupper()  # the next sentence, without a space
        return ended or not (self.alphabet.word[tokens[length]] or following[0] in "-'’")

    def fluency(self) -> float:
        """The fluency of the only gap that is written, so far."""
        (fill,), gap = self.fills, self.gaps[0]
        return fluency(fill.all_log_probs, gap.between_sentences)

    def trails(self, best: float) -> bool:
        """Whether its fluency is so far below this one that it is unlikely to catch up."""
        return self.fluency() < best - _PRUNE_MARGIN

    def unread(self) -> Iterator[tuple[int, int]]:
        """(token, told gap length) of the text that the network has not read yet."""
        yield from zip(self.text[self.n_read :], self.told_lengths[self.n_read :], strict=True)
