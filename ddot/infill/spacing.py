"""How a fill is set into the text, with the spaces a careful typist would put."""

from collections.abc import Sequence

from ddot.infill.template import Template

# After these a word follows without a space, and before these it ends without one.
_OPENERS = set("([{“‘«¿¡/-–—@#$£€_\\")
CLOSERS = set(".,;:!?)]}%…”’»'\"-–—/°_،؛؟")
_TIGHT = set("=+*<>&|~^`")  # of formulas and markup; what a user writes beside a blank, no word of prose begins so
MARKS = set(".,;:!?)]}%")  # never stand after a space in ordinary text
_QUOTES = set("\"'")
_LOOK_BACK = 2  # characters that tell an opening quote from a closing one


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
    return after[0] in CLOSERS or after[0] in _TIGHT or _unspaced(after[0])


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
    touches = words[0] in (MARKS if apart else CLOSERS) and raw[0] != " "
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
