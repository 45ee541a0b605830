"""What a user writes: literal text with blanks. Knows nothing about tokens or models.

We were so ___ wedding.        a blank: one word or more
We were so ___{0,} wedding.    a blank that may stay empty
a ___{3,8} b ___{5} c          between 3 and 8 words; exactly 5
<mask> [MASK] [blank] <extra_id_0>   blanks too
\\___                           three literal underscores
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 64  # words a blank may be asked to hold

# All backslashes before a blank, or none of them: looking from each of a million would take a million squared looks.
_BLANK = re.compile(r"(?<!\\)(?P<slashes>\\*)(?:_{3,}|<mask>|\[MASK\]|\[blank\]|<extra_id_[0-9]+>)")


@dataclass(frozen=True)
class Blank:
    """A place for text: between `least` and `most` words (None: as many as fit)."""

    least: int = 1
    most: int | None = None

    @property
    def counted(self) -> bool:
        """Whether its words have to be counted: one word or more is just a first token that begins one."""
        return self.least > 1 or self.most is not None

    def holds(self, fill: str) -> bool:
        """Whether a text has as many words as are asked for."""
        words = len(fill.split())
        return self.least <= words and (self.most is None or words <= self.most)

    def __str__(self) -> str:
        if self.least == self.most:
            return f"exactly {self.least}"
        most = "" if self.most is None else f" and at most {self.most}"
        return f"at least {self.least}{most}"


@dataclass(frozen=True)
class Template:
    """Literal text around blanks: literals[0], blank 0, literals[1], …, literals[-1].

    `apart`: literals are words of their own, so fills are set off by spaces whatever the words look like.
    """

    literals: tuple[str, ...]
    blanks: tuple[Blank, ...]
    apart: bool = False

    def text(self, fills: Sequence[str]) -> str:
        """The literal text with a fill at each blank."""
        pieces = [self.literals[0]]
        for fill, literal in zip(fills, self.literals[1:], strict=True):
            pieces += [fill, literal]
        return "".join(pieces)

    def spans(self, fills: Sequence[str]) -> list[tuple[int, int]]:
        """Where each fill begins and ends in the text."""
        spans, end = [], 0
        for literal, fill in zip(self.literals, fills, strict=False):
            start = end + len(literal)
            end = start + len(fill)
            spans.append((start, end))
        return spans


def parse(source: str) -> Template:
    """The template a user wrote. Mistakes are reported with the character they stand at, counted from 1."""
    if not source.strip():
        raise ValueError("the text is empty; write a sentence with ___ where words are missing")
    _check_characters(source)
    literals: list[list[str]] = [[]]  # as pieces: adding to a long string again and again would take quadratic time
    blanks = []
    place = 0
    while match := _BLANK.search(source, place):
        slashes = len(match["slashes"])
        literals[-1] += [source[place : match.start()], "\\" * (slashes // 2)]
        place = match.end()
        if slashes % 2:
            literals[-1].append(match[0][slashes:])
            continue
        blank, place = _bounds(source, place)
        blanks.append(blank)
        literals.append([])
    literals[-1].append(source[place:])
    if not blanks:
        raise ValueError(
            f"there is no blank in {_short(source)}; write ___ where words are missing, or ask for free infilling"
        )
    return Template(tuple("".join(pieces) for pieces in literals), tuple(blanks))


def _bounds(source: str, place: int) -> tuple[Blank, int]:
    """(the blank, where the text goes on) for what may follow a blank: bounds in braces, or \\{ for a plain brace."""
    if source.startswith("\\{", place):
        return Blank(), place + 1
    if not source.startswith("{", place):
        return Blank(), place
    where = f"at character {place + 1} of {_short(source, place)}"
    advice = "write ___{3,8}, ___{5}, ___{3,} or ___{,8}; for a plain brace after a blank, ___\\{"
    end = source.find("}", place) + 1
    if not end:
        raise ValueError(f"the brace {where} is not closed; {advice}")
    bounds = _short(source[place:end])
    numbers = [part.strip() for part in source[place + 1 : end - 1].split(",")]
    if len(numbers) > 2 or not any(numbers) or not re.fullmatch("[0-9]*", "".join(numbers)):
        raise ValueError(f"the bounds {bounds} {where} are no numbers; {advice}")
    least, most = _number(numbers[0]) or 0, _number(numbers[-1])
    if max(least, most or 0) > LONGEST:
        raise ValueError(f"the bounds {bounds} {where} ask for too much; a blank holds up to {LONGEST} words")
    if most is not None and least > most:
        raise ValueError(f"the bounds {bounds} {where} ask for at least {least} and at most {most} words; swap them")
    return Blank(least, most), end


def _number(digits: str) -> int | None:
    """The number, LONGEST + 1 for any that is larger (Python refuses to read thousands of digits), None for none."""
    return min(int(digits.lstrip("0")[:9] or 0), LONGEST + 1) if digits else None


def write(template: Template) -> str:
    """A text that `parse` reads as this template, whatever its literals hold."""
    pieces = [_escaped(template.literals[-1])]  # from the end on
    for literal, blank in zip(template.literals[-2::-1], template.blanks[::-1], strict=True):
        # Bounds end a blank: what comes next is not read as part of it.
        runs_on = next(filter(None, reversed(pieces)), "").startswith(("_", "{", "\\{"))
        most = "" if blank.most is None else blank.most
        bounds = f"{{{blank.least},{most}}}" if blank != Blank() or runs_on else ""
        slashes = "\\" * (len(literal) - len(literal.rstrip("\\")))
        pieces += [bounds, "[blank]" if literal.endswith("_") else "___", _escaped(literal) + slashes]
    return "".join(reversed(pieces))


def _escaped(literal: str) -> str:
    """The literal with a backslash before everything that looks like a blank."""
    return _BLANK.sub(lambda match: "\\" * (len(match["slashes"]) + 1) + match[0], literal)


def free(source: str) -> Template:
    """A template for words that must appear in order, with a blank wherever text may go: around and between them."""
    words = source.split()
    if not words:
        raise ValueError("the text is empty; give the words that must appear, in order")
    _check_characters(source)
    rest = [" " + word for word in words[1:]]
    return Template(("", words[0], *rest, ""), tuple(Blank(0) for _ in range(len(words) + 1)), apart=True)


def avoided(words: Sequence[str]) -> re.Pattern[str]:
    """Finds these words or phrases, whole and in small letters or capitals; nothing if there are none."""
    ways = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{ways})(?!\w)" if ways else "(?!)", re.IGNORECASE)


def between(before: str, after: str, most: int | None = None) -> Template:
    """A template of one blank between two texts that are literal, whatever they look like; at most so many words."""
    _check_characters(before)
    _check_characters(after)
    return Template((before, after), (Blank(0, most),))


def lock(template: Template, fills: Sequence[str | None]) -> Template:
    """The template with some blanks filled for good: a text in `fills` locks its blank, None leaves it open."""
    if len(fills) != len(template.blanks):
        raise ValueError(
            f"{len(fills)} fills for {len(template.blanks)} blanks; give one a blank, None to leave it open"
        )
    if wrong := [fill for fill in fills if not isinstance(fill, str | None)]:
        raise ValueError(f"a fill is {_short(repr(wrong[0]))[1:-1]}; wanted a string, or None to leave its blank open")
    literals, blanks = [template.literals[0]], []
    for number, (blank, fill) in enumerate(zip(template.blanks, fills, strict=True)):
        literal = template.literals[number + 1]
        if fill is None:
            blanks.append(blank)
            literals.append(literal)
        elif blank.holds(fill):
            _check_characters(fill)
            literals[-1] += fill + literal
        else:
            raise ValueError(
                f"the fill {_short(fill)} has {len(fill.split())} words, but blank {number + 1} asks for {blank}; "
                "change one of them"
            )
    return Template(tuple(literals), tuple(blanks), template.apart)


def _check_characters(text: str) -> None:
    """Refuse half characters, which no file and no tokenizer can hold."""
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise ValueError(
            f"character {half.start() + 1} of the text is half a character ({ascii(half[0])[1:-1]}, a lone surrogate); "
            "take it out or write the whole one"
        )


def _short(text: str, around: int = 0) -> str:
    """The text in quotes, or as much of it as is good to read, around a place."""
    start = max(0, min(around - 29, len(text) - 59))
    shown = text[start : start + 59]
    return repr("…" * (start > 0) + shown + "…" * (start + 59 < len(text)))
