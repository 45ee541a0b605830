"""Between a template and token ids: what the network sees of the text, which tokens may go where, and how a fill is
set into the text with the spaces a careful typist would put.

The literal text never passes through tokens: the answer is made of the template's own characters and the fills.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from unicodedata import category

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ddot.core.gaps import gap_hints
from ddot.core.records import UNKNOWN, Example, Prompt
from ddot.data.tokenizer import Tokenizer
from ddot.template import Blank, Template

# After these a word follows without a space, and before these it ends without one.
_OPENERS = set("([{“‘«¿¡/-–—@#$£€_\\")
_CLOSERS = set(".,;:!?)]}%…”’»'\"-–—/°_،؛؟")
_TIGHT = set("=+*<>&|~^`")  # of formulas and markup; what a user writes beside a blank, no word of prose begins so
_MARKS = set(".,;:!?)]}%")  # never stand after a space in ordinary text
_QUOTES = set("\"'")
_LOOK_BACK = 2  # characters that tell an opening quote from a closing one
# Parts of words that stand apart in tokenised text: "won 't", "Obama 's".
_ENDINGS = {"'s", "'t", "n't", "'re", "'ve", "'ll", "'d", "'m", "’s", "’t", "’re", "’ve", "’ll", "’d", "’m"}

# Words of three letters and more that any sentence may hold twice.
_SMALL_WORDS = (
    "all and any are but can did for get got had has her him his how its may nor not now off one our out own per put "
    "say see she the too two use was way who why yet you "
    "about after also because been before being both could does done down each even from have having here into just "
    "like made make many might more most much must never only other ours over said same says shall should since some "
    "still such than that their them then there these they this those through under until upon very well were what "
    "when where which while whom whose will with within without would your"
)

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
        self.space, self.loose, self.mark = (np.zeros(rows, bool) for _ in range(3))
        for row, piece in enumerate(pieces):
            bare = piece.removeprefix(" ")
            if piece == " ":
                self.space[row] = True  # some vocabularies write numbers as a space and digits
            elif bare and bare.isprintable() and " " not in bare and "�" not in bare and not _is_marker(bare):
                self.begins[row] = bare != piece
                self.goes_on[row] = bare == piece
                self.loose[row] = bare != piece and (bare[0] in _MARKS or bare.lower() in _ENDINGS)
                self.mark[row] = bare != piece and not any(c.isalnum() or category(c) == "Sc" for c in bare)
                self.closes[row] = bare == piece and bare[0] in _CLOSERS
                self.word[row] = bare == piece and bare[0].isalnum()
        if not (self.begins & ~self.loose).any() or not self.word.any():
            raise ValueError("the tokenizer has no tokens that begin a word with a space; it cannot fill blanks")

    def spell(self, tokens: Int[np.ndarray, "n"]) -> str:
        """The text of tokens, with the leading space of the first one if it has one."""
        return "".join(self.pieces[token] for token in tokens.tolist())

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
    def telling(self) -> Bool[Tensor, "V"]:
        """Tokens that begin a word which tells something: a reader notices when it comes twice."""
        bare = [piece.removeprefix(" ") for piece in self.pieces]
        small = set(_SMALL_WORDS.split())
        tells = [len(word) >= 3 and word.isalpha() and word.lower() not in small for word in bare]
        return torch.from_numpy(self.begins & np.pad(tells, (0, len(self.begins) - len(tells))))

    @cached_property
    def allowed(self) -> Bool[Tensor, "rules V"]:
        """For each rule the tokens that may stand there: FIRST_APART … LATER, then the same where words are counted.

        There a mark after a space is no word; in tokenised text, whose rules come last, it is.
        """
        begin = self.begins | self.space
        rules = [begin, begin | self.closes, self.word, begin | self.goes_on]
        loose = [rule & ~self.space for rule in rules]
        return torch.from_numpy(np.stack([*rules, *(rule & ~self.mark for rule in loose), *loose]))


def _is_marker(piece: str) -> bool:
    """Markers of a language model's training, such as <|im_start|>, are no text; nor are blanks, or parts of one."""
    return (len(piece) > 2 and piece[0] == "<" and piece[-1] == ">") or set(piece) == {"_"}


@dataclass(frozen=True)
class View:
    """What the network sees of a template: prompt tokens, after which of them each blank lies, how it may begin.

    `pieces` is what each prompt token stands for. A character of several tokens stands at the first of them.
    """

    prompt: Prompt
    pieces: tuple[str, ...]
    after: tuple[int, ...]
    first: tuple[int, ...]


def view(template: Template, tokenizer: Tokenizer, located: bool, begins: bool = True, ends: bool = True) -> View:
    """The template as tokens between two edge tokens. White space counts as one space; the answer keeps it as it was.

    `located` tells the network where the blanks are; otherwise it must find out. `begins` and `ends` say whether the
    text is whole or a part of a longer one.
    """
    marks = [tokenizer.edge if whole else tokenizer.vocabulary.sep for whole in (begins, ends)]
    tokens, pieces = [marks[0]], [""]
    after, first = [], []
    for number, literal in enumerate(template.literals):
        text = " ".join(literal.split())
        if text:
            text = text if number > 0 and closes(literal) else " " + text
            tokens += tokenizer.encode(text).tolist()
            pieces += [text[start:end] for start, end in pairwise([0, *tokenizer.ends(text)])]
        if number < len(template.blanks):
            after.append(len(tokens) - 1)
            first.append(_first_rule(literal, template.apart))
    tokens, pieces = [*tokens, marks[1]], [*pieces, ""]
    is_open = np.zeros(len(tokens) + 1, bool)
    is_open[np.array(after, np.int64) + 1] = True
    hint = gap_hints(np.ones(len(tokens), bool), is_open) if located else np.full(len(tokens), UNKNOWN)
    example = Example(np.array(tokens, np.int64), np.ones(len(tokens), bool), hint)
    return View(Prompt(example, is_open), tuple(pieces), tuple(after), tuple(first))


def _first_rule(before: str, apart: bool) -> int:
    if not before or before[-1].isspace():
        return FIRST_APART
    return FIRST_GLUED if opens(before) and not apart else FIRST_AFTER_WORD


def opens(before: str) -> bool:
    """Whether a word after this text follows without a space: it ends with an opening bracket, quote or hyphen."""
    last = before[-1]
    if last in _QUOTES:
        return len(before) == 1 or before[-2].isspace() or before[-2] in _OPENERS | _TIGHT | {":"}
    return last in _OPENERS or last in _TIGHT or _unspaced(last)


def closes(after: str) -> bool:
    """Whether a word before this text ends without a space: it begins with a mark, a closing quote or a hyphen."""
    if after[0] == '"':
        return not after[1:2].isalnum()
    return after[0] in _CLOSERS or after[0] in _TIGHT or _unspaced(after[0])


def _unspaced(character: str) -> bool:
    """Chinese and Japanese set no spaces between words."""
    return "\u3001" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uff01" <= character <= "\uffef"


def set_fill(raw: str, before: str, after: str, apart: bool = False) -> str:
    """The fill as it stands between the text before and the text after, with the spaces it needs on either side.

    `apart`: both are words of their own; only marks may touch them.
    """
    words = " ".join(raw.split())
    if not words:
        return ""
    at_border = not before or before[-1].isspace() or (opens(before) and not apart)
    touches = words[0] in (_MARKS if apart else _CLOSERS) and raw[0] != " "
    lead = "" if at_border or touches else " "
    glued = not apart and bool(after) and (closes(after) or opens((before + lead)[-1:] + words))
    return lead + words + ("" if not after or after[0].isspace() or glued else " ")


def set_fills(template: Template, raw: Sequence[str]) -> list[str]:
    """The fills of the first blanks as they stand in the text; what later blanks get is not known yet."""
    fills: list[str] = []
    before = ""
    for number, each in enumerate(raw):
        before = (before + template.literals[number])[-_LOOK_BACK:]
        fills.append(set_fill(each, before, _following(template, raw, number), template.apart))
        before = (before + fills[-1])[-_LOOK_BACK:]
    return fills


def _following(template: Template, raw: Sequence[str], number: int) -> str:
    """The literal text right after a blank, empty blanks passed over; none where another fill comes first."""
    for later in range(number + 1, len(template.blanks)):
        if template.literals[later] or later >= len(raw) or raw[later].strip():
            return template.literals[later]
    return template.literals[-1]


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
