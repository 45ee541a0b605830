"""From templates to token ids: what the network reads of a text, or of the window around the next blanks.

Literal text is never decoded from tokens: an answer consists of the template's own characters and the fills.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ddot.core.codes import UNKNOWN
from ddot.core.gaps import gap_hints
from ddot.core.records import Example, Prompt
from ddot.data.tokenizer import Tokenizer
from ddot.infill.alphabet import FIRST_AFTER_WORD, FIRST_APART, FIRST_GLUED
from ddot.infill.spacing import CLOSERS, closes, opens
from ddot.infill.template import Blank, Template

SLOTS = 128  # maximum length of a window
_BLANK_SLOTS = 12  # reserved for a blank of unknown length
_FREE_GAP_SLOTS = 3  # the same in a free text, where every gap is a blank
_CONTEXT = 40  # slots always left for text around the blanks
_MAX_CHARACTERS = 2_000  # considered on either side
TOKENS_A_WORD = 1.25
_LINE_END, _EMPTY_LINE = re.compile(r"\S\s*\n\s*\Z"), re.compile(r"[^\S\n]*\n[^\S\n]*\n")
_SENTENCE_END, _SENTENCE_START = re.compile(r"[.!?…][\"'”’)]*\s+\Z"), re.compile(r"\s+[\"'“‘(]*([^\W\d_])")


@dataclass(frozen=True)
class View:
    """What the network reads of a template: the prompt, the token before each blank, the rule for its first token.

    `pieces`: the text of each prompt token; a character of several tokens belongs to the first. `own_paragraph`:
    whether each blank is a paragraph. The network reads line breaks as spaces and would run on into the next one
    ("Thank you for reading The ¶ Best, Anna"). `between_sentences`: whether each blank lies between two sentences.
    """

    prompt: Prompt
    pieces: tuple[str, ...]
    after: tuple[int, ...]
    first: tuple[int, ...]
    own_paragraph: tuple[bool, ...] = ()
    between_sentences: tuple[bool, ...] = ()


def view(template: Template, tokenizer: Tokenizer, located: bool, begins: bool = True, ends: bool = True) -> View:
    """The template as tokens between two edge tokens. White space is read as one space; answers keep it verbatim.

    `located`: hints tell the network where the blanks are. `begins`, `ends`: whether the text begins and ends here or
    was cut from a longer one.
    """
    marks = [tokenizer.edge if whole else tokenizer.vocabulary.sep for whole in (begins, ends)]
    tokens, pieces = [marks[0]], [""]
    after, first, paragraph, sentence = [], [], [], []
    for number, literal in enumerate(template.literals):
        text = " ".join(literal.split())
        if text:
            text = text if number > 0 and closes(literal) else " " + text
            tokens += tokenizer.encode(text).tolist()
            pieces += [text[start:end] for start, end in pairwise([0, *tokenizer.ends(text)])]
        if number < len(template.blanks):
            after.append(len(tokens) - 1)
            first.append(_first_rule(literal, template.apart))
            following = template.literals[number + 1]
            paragraph.append(bool(_LINE_END.search(literal) and _EMPTY_LINE.match(following)))
            sentence.append(_is_between_sentences(literal, following))
    tokens, pieces = [*tokens, marks[1]], [*pieces, ""]
    is_open = np.zeros(len(tokens) + 1, bool)
    is_open[np.array(after, np.int64) + 1] = True
    hint = gap_hints(np.ones(len(tokens), bool), is_open) if located else np.full(len(tokens), UNKNOWN)
    example = Example(np.array(tokens, np.int64), np.ones(len(tokens), bool), hint)
    return View(Prompt(example, is_open), tuple(pieces), tuple(after), tuple(first), tuple(paragraph), tuple(sentence))


def _is_between_sentences(before: str, following: str) -> bool:
    """Whether a sentence ends before a blank and another begins after it."""
    start = _SENTENCE_START.match(following)
    return bool(_SENTENCE_END.search(before)) and start is not None and start[1].isupper()


def _first_rule(before: str, apart: bool) -> int:
    if not before or before[-1].isspace():
        return FIRST_APART
    return FIRST_GLUED if opens(before) and not apart else FIRST_AFTER_WORD


def raw_fill(fill: str, first: int) -> str:
    """A user's fill as the network would write it: with a leading space unless it is attached to the text before."""
    words = " ".join(fill.split())
    glued = first == FIRST_GLUED or (first == FIRST_AFTER_WORD and fill[:1] in CLOSERS)
    return words if glued or not words else " " + words


@dataclass(frozen=True)
class Span:
    """Slots start … stop − 1 of a row belong to this blank."""

    start: int
    stop: int
    first: int
    blank: Blank


def lay_out(view: View, blanks: Sequence[Blank], lengths: Sequence[int]) -> tuple[Prompt, list[Span]]:
    """(the prompt conditioned on gap lengths, the slots of each blank) if blanks get `lengths` tokens."""
    gap_length = np.zeros(len(view.prompt), np.int64)
    spans = []
    for blank, after, first, length in zip(blanks, view.after, view.first, lengths, strict=True):
        start = after + 1 + int(gap_length.sum())  # blanks come in text order: all gaps so far lie before this one
        spans.append(Span(start, start + length, first, blank))
        gap_length[after] += length
    return view.prompt.with_gap_lengths(gap_length), spans


@dataclass(frozen=True)
class Excerpt:
    """A part of a template: the next blanks and their context. `begins`, `ends`: it reaches that end of the text."""

    template: Template
    begins: bool
    ends: bool


def slots_for(blank: Blank, located: bool = True) -> int:
    """Number of slots to reserve for a blank. In the free task most gaps stay empty."""
    return max(_BLANK_SLOTS if located else _FREE_GAP_SLOTS, round(TOKENS_A_WORD * blank.least))


def excerpt(
    template: Template, fills: Sequence[str], tokenizer: Tokenizer, located: bool = True, slots: int = SLOTS
) -> Excerpt:
    """The next blanks, as many as fit into a window, in the text filled so far."""
    first = len(fills)
    whole = Template(template.literals[: first + 1], template.blanks[:first]).text(fills)
    before = whole[-_MAX_CHARACTERS:]
    last, used = first, slots_for(template.blanks[first], located)
    while last + 1 < len(template.blanks) and len(template.literals[last + 1]) <= _MAX_CHARACTERS:
        more = len(tokenizer.encode(template.literals[last + 1])) + slots_for(template.blanks[last + 1], located)
        if used + more > slots - _CONTEXT:
            break
        last, used = last + 1, used + more
    after = template.literals[last + 1][:_MAX_CHARACTERS]
    budget = max(0, slots - 2 - used)
    left, right = tokenizer.encode(before), tokenizer.encode(after)
    for_left = max(budget // 2, budget - len(right))
    for_right = max(budget - for_left, budget - len(left))
    start = tail(before, len(left) - for_left, tokenizer) if len(left) > for_left else before
    end = head(after, for_right, tokenizer) if len(right) > for_right else after
    middle = template.literals[first + 1 : last + 1]
    is_last = last + 1 == len(template.blanks)
    return Excerpt(
        Template((start, *middle, end), template.blanks[first : last + 1], template.apart),
        begins=start == whole,
        ends=is_last and end == template.literals[last + 1],
    )


def tail(text: str, skip: int, tokenizer: Tokenizer) -> str:
    """The text after its first `skip` tokens, from the next whole word on."""
    shorter = text[tokenizer.ends(text)[skip - 1] :]
    words = shorter.split(maxsplit=1)
    return shorter[len(shorter) - len(words[-1]) :] if len(words) > 1 else shorter


def head(text: str, keep: int, tokenizer: Tokenizer) -> str:
    """The first `keep` tokens of the text, up to the last whole word."""
    shorter = text[: tokenizer.ends(text)[keep - 1]] if keep else ""
    words = shorter.rsplit(maxsplit=1)
    return words[0] if len(words) > 1 else shorter
