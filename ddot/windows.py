"""Long texts: a part of the text around the next blanks, with as much context on both sides as fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddot.data.tokenizer import Tokenizer
from ddot.template import Blank, Template

SLOTS = 128  # the most the network is given at once
_FOR_A_BLANK = 12  # slots set aside for a blank of unknown length
_FOR_A_GAP = 3  # the same where every gap between words is a blank
_CONTEXT = 40  # slots that are always left for text around the blanks
_LOOK = 2_000  # characters on either side that are looked at
TOKENS_A_WORD = 1.25


@dataclass(frozen=True)
class Window:
    """A template of its own for the next blanks. `begins` and `ends`: it reaches the beginning or end of the text."""

    template: Template
    begins: bool
    ends: bool


def slots_for(blank: Blank, located: bool = True) -> int:
    """How many slots to set aside for a blank. Most of those that a user did not place stay empty."""
    return max(_FOR_A_BLANK if located else _FOR_A_GAP, round(TOKENS_A_WORD * blank.least))


def window(template: Template, fills: Sequence[str], tokenizer: Tokenizer, located: bool = True) -> Window:
    """The next blanks of a template whose first ones are filled: as many as fit, in the text filled so far."""
    first = len(fills)
    whole = Template(template.literals[: first + 1], template.blanks[:first]).text(fills)
    before = whole[-_LOOK:]
    last, used = first, slots_for(template.blanks[first], located)
    while last + 1 < len(template.blanks) and len(template.literals[last + 1]) <= _LOOK:
        more = len(tokenizer.encode(template.literals[last + 1])) + slots_for(template.blanks[last + 1], located)
        if used + more > SLOTS - _CONTEXT:
            break
        last, used = last + 1, used + more
    after = template.literals[last + 1][:_LOOK]
    budget = SLOTS - 2 - used
    left, right = tokenizer.encode(before), tokenizer.encode(after)
    for_left = max(budget // 2, budget - len(right))
    for_right = max(budget - for_left, budget - len(left))
    start = tail(before, len(left) - for_left, tokenizer) if len(left) > for_left else before
    end = head(after, for_right, tokenizer) if len(right) > for_right else after
    middle = template.literals[first + 1 : last + 1]
    is_last = last + 1 == len(template.blanks)
    return Window(
        Template((start, *middle, end), template.blanks[first : last + 1], template.apart),
        begins=start == whole,
        ends=is_last and end == template.literals[last + 1],
    )


def tail(text: str, skip: int, tokenizer: Tokenizer) -> str:
    """The text without its first `skip` tokens and without a word cut in two."""
    shorter = text[tokenizer.ends(text)[skip - 1] :]
    words = shorter.split(maxsplit=1)
    return shorter[len(shorter) - len(words[-1]) :] if len(words) > 1 else shorter


def head(text: str, keep: int, tokenizer: Tokenizer) -> str:
    """The first `keep` tokens of the text, without a word cut in two."""
    shorter = text[: tokenizer.ends(text)[keep - 1]] if keep else ""
    words = shorter.rsplit(maxsplit=1)
    return words[0] if len(words) > 1 else shorter
