"""Templates, as users write them: literal text with blanks. Knows nothing about tokens or models.

We were so ___ wedding.        a blank: one word or more
We were so ___{0,} wedding.    a blank that may stay empty
a ___{3,8} b ___{5} c          between 3 and 8 words; exactly 5
<mask> [MASK] [blank] <extra_id_0>   blanks too
\\___                           three literal underscores
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ddot.infill.mistakes import Mistake

LONGEST = 64  # largest bound of a blank, in words

# The look-behind takes all backslashes at once: trying each of a million would take quadratic time.
_BLANK = re.compile(r"(?<!\\)(?P<slashes>\\*)(?:_{3,}|<mask>|\[MASK\]|\[blank\]|<extra_id_[0-9]+>)")


@dataclass(frozen=True)
class Blank:
    """A place for text: between `least` and `most` words (None: as many as fit)."""

    least: int = 1
    most: int | None = None

    @property
    def counted(self) -> bool:
        """Whether its words must be counted; "one word or more" only constrains the first token."""
        return self.least > 1 or self.most is not None

    def holds(self, fill: str) -> bool:
        """Whether the number of words of a fill is within the bounds."""
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

    `apart`: literals are separate words, so fills are always set off by spaces.
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
    """The template that a user wrote. Errors name the position of the character, counted from 1."""
    if not source.strip():
        raise ValueError("the text is empty; write a sentence with ___ where words are missing")
    _check_characters(source)
    literals: list[list[str]] = [[]]  # in pieces: appending to a long string repeatedly would take quadratic time
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
        short = _short(source)
        raise Mistake(
            lambda say: (
                f"there is no blank in {short}; write ___ where words are missing, or, to infill, give "
                f"{say.free} to keep these words and add others"
            )
        )
    return Template(tuple("".join(pieces) for pieces in literals), tuple(blanks))


def _bounds(source: str, place: int) -> tuple[Blank, int]:
    """(the blank, where the text continues) after the marker of a blank: bounds in braces, or \\{ for a plain brace."""
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
        raise ValueError(f"the bounds {bounds} {where} are not numbers; {advice}")
    least, most = _number(numbers[0]) or 0, _number(numbers[-1])
    if max(least, most or 0) > LONGEST:
        raise ValueError(f"the bounds {bounds} {where} ask for too much; a blank holds up to {LONGEST} words")
    if most is not None and least > most:
        raise ValueError(f"the bounds {bounds} {where} ask for at least {least} and at most {most} words; swap them")
    return Blank(least, most), end


def _number(digits: str) -> int | None:
    """The number, at most LONGEST + 1 (Python refuses to parse thousands of digits); None if there are no digits."""
    return min(int(digits.lstrip("0")[:9] or 0), LONGEST + 1) if digits else None


def write(template: Template) -> str:
    """The inverse of `parse`, for any literals."""
    pieces = [_escaped(template.literals[-1])]  # from the end on
    for literal, blank in zip(template.literals[-2::-1], template.blanks[::-1], strict=True):
        # Bounds end the marker, so that what follows is not read as part of it.
        runs_on = next(filter(None, reversed(pieces)), "").startswith(("_", "{", "\\{"))
        most = "" if blank.most is None else blank.most
        bounds = f"{{{blank.least},{most}}}" if blank != Blank() or runs_on else ""
        slashes = "\\" * (len(literal) - len(literal.rstrip("\\")))
        pieces += [bounds, "[blank]" if literal.endswith("_") else "___", _escaped(literal) + slashes]
    return "".join(reversed(pieces))


def _escaped(literal: str) -> str:
    """The literal with a backslash before everything that would be read as a blank."""
    return _BLANK.sub(lambda match: "\\" * (len(match["slashes"]) + 1) + match[0], literal)


def free(source: str) -> Template:
    """A template of words that must appear in order, with an optional blank before, between and after them."""
    words = source.split()
    if not words:
        raise ValueError("the text is empty; give the words that must appear, in order")
    _check_characters(source)
    rest = [" " + word for word in words[1:]]
    return Template(("", words[0], *rest, ""), tuple(Blank(0) for _ in range(len(words) + 1)), apart=True)


def avoided(words: Sequence[str]) -> re.Pattern[str]:
    """A pattern that finds these words or phrases, whole and in any case."""
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)" if either else "(?!)", re.IGNORECASE)


def between(before: str, after: str, most: int | None = None) -> Template:
    """A template of one blank of at most `most` words between two literal texts; nothing in them is read as a blank."""
    _check_characters(before)
    _check_characters(after)
    return Template((before, after), (Blank(0, most),))


def lock(template: Template, fills: Sequence[str | None]) -> Template:
    """The template with some blanks replaced by their fills; None leaves a blank open."""
    if len(fills) != len(template.blanks):
        given, needed = counted(len(fills), "fill"), counted(len(template.blanks), "blank")
        raise Mistake(lambda say: f"{given} for {needed}; give one for each, or {say.open} to leave it open")
    if wrong := [fill for fill in fills if not isinstance(fill, str | None)]:
        raise Mistake(
            lambda say: f"a fill is {say.value(wrong[0])}; wanted a string, or {say.open} to leave its blank open"
        )
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
                f"the fill {_short(fill)} has {counted(len(fill.split()), 'word')}, but blank {number + 1} asks for "
                f"{blank}; change one of them"
            )
    return Template(tuple(literals), tuple(blanks), template.apart)


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _check_characters(text: str) -> None:
    """Refuse lone surrogates, which neither UTF-8 nor a tokenizer can encode."""
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise ValueError(
            f"character {half.start() + 1} of the text is half a character ({ascii(half[0])[1:-1]}, a lone surrogate); "
            "take it out or write the whole one"
        )


def _short(text: str, around: int = 0) -> str:
    """The text in quotes, abbreviated around a position."""
    start = max(0, min(around - 29, len(text) - 59))
    shown = text[start : start + 59]
    return repr("…" * (start > 0) + shown + "…" * (start + 59 < len(text)))
