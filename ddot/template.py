"""What a user writes: literal text with blanks. Knows nothing about tokens or models.

We were so ___ wedding.        a blank of any length, none included
a ___{3,8} b ___{5} c          between 3 and 8 words; exactly 5
<mask> [MASK] [blank] <extra_id_0>   blanks too
\\___                           three literal underscores
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 64  # words a blank may be asked to hold

_BLANK = re.compile(r"(?P<slashes>\\*)(?:(?P<line>_{3,})|(?P<name><mask>|\[MASK\]|\[blank\]|<extra_id_\d+>))")
_BOUNDS = re.compile(r"\{\s*(?P<least>\d*)\s*(?P<comma>,?)\s*(?P<most>\d*)\s*\}")


@dataclass(frozen=True)
class Blank:
    """A place for text: between `least` and `most` words (None: as many as fit)."""

    least: int = 0
    most: int | None = None

    @property
    def bounded(self) -> bool:
        return self.least > 0 or self.most is not None


@dataclass(frozen=True)
class Template:
    """Literal text around blanks: literals[0], blank 0, literals[1], …, literals[-1]."""

    literals: tuple[str, ...]
    blanks: tuple[Blank, ...]

    def text(self, fills: Sequence[str]) -> str:
        """The literal text with a fill at each blank."""
        pieces = [self.literals[0]]
        for fill, literal in zip(fills, self.literals[1:], strict=True):
            pieces += [fill, literal]
        return "".join(pieces)


def parse(source: str) -> Template:
    """The template a user wrote. Mistakes are told with the character they stand at, counted from 1."""
    if not source.strip():
        raise ValueError("the text is empty; write a sentence with ___ where words are missing")
    literals, blanks = [""], []
    place = 0
    while match := _BLANK.search(source, place):
        literals[-1] += source[place : match.start()]
        slashes = len(match["slashes"])
        literals[-1] += "\\" * (slashes // 2)
        place = match.end()
        if slashes % 2:
            literals[-1] += match[0][slashes:]
            continue
        blank, place = _bounds(source, place)
        blanks.append(blank)
        literals.append("")
    literals[-1] += source[place:]
    if not blanks:
        raise ValueError(f"there is no blank in {_short(source)}; write ___ where words are missing, or use --free")
    return Template(tuple(literals), tuple(blanks))


def _bounds(source: str, place: int) -> tuple[Blank, int]:
    """(the blank, where the text goes on) for what may follow a blank: bounds in braces, or \\{ for a plain brace."""
    if source.startswith("\\{", place):
        return Blank(), place + 1
    if not source.startswith("{", place):
        return Blank(), place
    where = f"at character {place + 1} of {_short(source)}"
    advice = "write ___{3,8}, ___{5}, ___{3,} or ___{,8}; for a plain brace after a blank, ___\\{"
    if "}" not in source[place:]:
        raise ValueError(f"the brace {where} is not closed; {advice}")
    match = _BOUNDS.match(source, place)
    if match is None or not (match["least"] or match["most"]):
        raise ValueError(
            f"the bounds '{source[place : source.index('}', place) + 1]}' {where} are no numbers; {advice}"
        )
    least = int(match["least"] or 0)
    most = least if not match["comma"] else int(match["most"]) if match["most"] else None
    if most is not None and least > most:
        raise ValueError(f"the bounds {match[0]} {where} ask for at least {least} and at most {most} words; swap them")
    if max(least, most or 0) > LONGEST:
        raise ValueError(f"the bounds {match[0]} {where} ask for too much; a blank holds up to {LONGEST} words")
    return Blank(least, most), match.end()


def free(source: str) -> Template:
    """A template for words that must appear in order, with a blank wherever text may go: around and between them."""
    words = source.split()
    if not words:
        raise ValueError("the text is empty; give the words that must appear, in order")
    apart = [" " + word for word in words[1:]]
    return Template(("", words[0], *apart, ""), tuple(Blank() for _ in range(len(words) + 1)))


def lock(template: Template, fills: Sequence[str | None]) -> Template:
    """The template with some blanks filled for good: a text in `fills` locks its blank, None leaves it open."""
    if len(fills) != len(template.blanks):
        raise ValueError(
            f"{len(fills)} fills for {len(template.blanks)} blanks; give one a blank, None to leave it open"
        )
    literals, blanks = [template.literals[0]], []
    for blank, fill, literal in zip(template.blanks, fills, template.literals[1:], strict=True):
        if fill is None:
            blanks.append(blank)
            literals.append(literal)
        else:
            literals[-1] += fill + literal
    return Template(tuple(literals), tuple(blanks))


def _short(source: str) -> str:
    return repr(source if len(source) <= 60 else source[:57] + "…")
