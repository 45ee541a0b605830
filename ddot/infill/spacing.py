"""Inserts fills into the text with the spaces that English typography requires."""

from collections.abc import Sequence

from ddot.infill.template import Template

# No space follows the first, and no space precedes the second.
_OPENERS = set("([{“‘«¿¡/-–—@#$£€_\\")
CLOSERS = set(".,;:!?)]}%…”’»'\"-–—/°_،؛؟")
_TIGHT = set("=+*<>&|~^`")  # formulas and markup: no space on either side of a blank
MARKS = set(".,;:!?)]}%")  # never preceded by a space in ordinary text
_QUOTES = set("\"'")
_LOOK_BACK = 2  # characters needed to tell an opening quote from a closing one


def opens(before: str) -> bool:
    """Whether a word follows this text without a space: the text ends with an opening bracket or quote, or a hyphen."""
    last = before[-1]
    if last in _QUOTES:
        return len(before) == 1 or before[-2].isspace() or before[-2] in _OPENERS | _TIGHT | {":"}
    return last in _OPENERS or last in _TIGHT or _unspaced(last)


def closes(after: str) -> bool:
    """Whether a word precedes this text without a space: it begins with punctuation, a closing quote or a hyphen."""
    if after[0] == '"':
        return not after[1:2].isalnum()
    return after[0] in CLOSERS or after[0] in _TIGHT or _unspaced(after[0])


def _unspaced(character: str) -> bool:
    """Chinese and Japanese put no spaces between words."""
    return "\u3001" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or "\uff01" <= character <= "\uffef"


def set_fill(raw: str, before: str, after: str, apart: bool = False) -> str:
    """The fill with the spaces it needs between the text before and the text after.

    `apart`: both are separate words, which only punctuation may touch.
    """
    words = " ".join(raw.split())
    if not words:
        return ""
    at_border = not before or before[-1].isspace() or (opens(before) and not apart)
    touches = words[0] in (MARKS if apart else CLOSERS) and raw[0] != " "
    lead = "" if at_border or touches else " "
    glued = not apart and bool(after) and (closes(after) or opens((before + lead)[-1:] + words))
    return lead + words + ("" if not after or after[0].isspace() or glued else " ")


def set_fills(template: Template, raw: Sequence[str]) -> list[str]:
    """The fills of the first blanks with their spaces; later blanks are not filled yet."""
    fills: list[str] = []
    before = ""
    for number, fill in enumerate(raw):
        before = (before + template.literals[number])[-_LOOK_BACK:]
        fills.append(set_fill(fill, before, _following(template, raw, number), template.apart))
        before = (before + fills[-1])[-_LOOK_BACK:]
    return fills


def _following(template: Template, raw: Sequence[str], number: int) -> str:
    """The literal text right after a blank, skipping empty blanks; empty if another fill comes first."""
    for later in range(number + 1, len(template.blanks)):
        if template.literals[later] or later >= len(raw) or raw[later].strip():
            return template.literals[later]
    return template.literals[-1]
