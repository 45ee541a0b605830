"""Benchmark items: what is given, what is missing, and how they become prompts and templates.

A line of a file is {"id", …} with
"words", "keep"               a sentence split at spaces, and the indices of the given words
"prefix", "middle", "suffix"  a program (if the prefix ends with a line break) or sentences; the middle is missing
"text"                        a passage with the missing words between ⟦ and ⟧
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from ddot.core.codes import UNKNOWN
from ddot.core.gaps import gap_hints
from ddot.core.records import Example, Prompt
from ddot.data.forms import CODE_SLOTS
from ddot.data.tokenizer import Tokenizer
from ddot.evaluation.rows import place_of
from ddot.evaluation.store import read_rows
from ddot.infill.template import LONGEST, Template, parse, write

TASKS = ("located", "free")  # with or without hints about gaps; free is the paper's task

# Programs: slots reserved for the middle (90% of middles have fewer than 124 tokens, 80% fewer than 96), and its mean
# length, both measured on the dev items.
CODE_GAP, CODE_MIDDLE = 96, 60
# Guesses, in tokens: a sentence; a fill of a passage (the mean over `people`).
_SENTENCE, _FILL = 32, 7


def _woven(parts: Sequence[str], between: Sequence[str]) -> str:
    return "".join(piece for pair in zip(parts, (*between, ""), strict=True) for piece in pair)


def _spaced(text: str) -> str:
    """The words of a text with one space between them."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Prompted:
    """An item as tokens, with an edge token at both ends."""

    prompt: Prompt
    gap_lengths: Int[np.ndarray, "n"]  # true number of tokens missing after each prompt token
    missing: Int[np.ndarray, "m"]  # the missing tokens, in order
    guess: int  # guessed number of tokens of the whole text
    parts: Sequence[str]  # the given text, verbatim
    gaps: Sequence[int]  # the gap after each part but the last
    fit: Callable[[str], str] = str.strip  # applied to each fill
    whole: Callable[[str], str] = str  # applied to the whole text
    cut: tuple[str, str] = ("", "")  # given text before and after the part that is shown

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> str:
        """The text with these tokens in its gaps."""
        return self.whole(_woven(self.parts, [self.fit(tokenizer.decode(gaps[gap])) for gap in self.gaps]))

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> str:
        """The text that a model wrote as these tokens, prompt included."""
        written = self.fit(tokenizer.decode(tokens[tokens != tokenizer.edge]))
        before, after = self.cut
        return before + self.whole(written if before else written.removeprefix(" ")) + after


@dataclass(frozen=True)
class Item:
    """A reference: given text, and what is missing between its parts."""

    id: str
    literals: tuple[str, ...]
    fills: tuple[str, ...]
    tasks: ClassVar[tuple[str, ...]] = TASKS
    slots: ClassVar[int] = 0  # minimum L while lengths are unknown; 0: the network's default

    @property
    def text(self) -> str:
        return _woven(self.literals, self.fills)

    @property
    def words(self) -> list[str]:
        return self.text.split()

    @property
    def given(self) -> list[str]:
        """Words of the given text, without punctuation attached to a blank."""
        return [word for word in self._marked if "\0" not in word]

    @property
    def missing(self) -> list[int]:
        """Number of words missing before each given one, and after the last."""
        ends = [i for i, word in enumerate(self._marked) if "\0" not in word]
        return [right - left - 1 for left, right in pairwise([-1, *ends, len(self._marked)])]

    @property
    def _marked(self) -> list[str]:
        return _woven(self.literals, [re.sub(r"\S+", "\0", fill) for fill in self.fills]).split()

    @property
    def unfilled(self) -> str:
        return "".join(self.literals)

    def template(self, told: bool) -> str | None:
        """The template a user would write, with word counts if `told`; None if nothing is missing."""
        counts = [min(LONGEST, len(fill.split())) for fill in self.fills]
        blanks = [parse(f"___{{{count}}}" if told else "___").blanks[0] for count in counts]
        return write(Template(self.literals, tuple(blanks))) if blanks else None

    def fills_in(self, text: str) -> list[str] | None:
        """The fills of a text with the same literals, or None. If ambiguous, the first fill is as short as possible."""
        match = re.fullmatch("(.*?)".join(map(re.escape, self.literals)), text, re.DOTALL)
        return None if match is None else list(match.groups())

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        """`located`: hints say where text is missing."""
        raise NotImplementedError


class Sentence(Item):
    """Words with one space between them, some of them given."""

    @classmethod
    def of(cls, id: str, words: Sequence[str], keep: Sequence[int]) -> "Sentence":
        """`keep`: the indices of the given words."""
        literals, fills = [""], list[str]()
        for left, right in pairwise([-1, *keep, len(words)]):
            if right - left > 1:
                literals[-1] += " " * bool(literals[-1])
                fills.append(" ".join(words[left + 1 : right]))
                literals.append("")
            if right < len(words):
                literals[-1] += " " * bool(fills or literals[-1]) + words[right]
        return cls(id, tuple(literals), tuple(fills))

    @property
    def unfilled(self) -> str:
        return " ".join(self.given)

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        places = [i for i, word in enumerate(self._marked) if word != "\0"]
        pieces = [tokenizer.encode(" " + word) for word in self.words]
        given = [pieces[i] for i in places]
        tokens = np.concatenate([[tokenizer.edge], *given, [tokenizer.edge]]).astype(np.int64)
        last = np.cumsum([0] + [len(piece) for piece in given])  # the leading edge, then the last token of each word
        is_open, gap_lengths = np.zeros(len(tokens) + 1, bool), np.zeros(len(tokens), np.int64)
        for end, (left, right) in zip(last, pairwise([-1, *places, len(pieces)]), strict=True):
            gap_lengths[end] = sum(len(pieces[i]) for i in range(left + 1, right))
            is_open[end + 1] = gap_lengths[end] > 0 if located else True
        missing = np.concatenate([np.zeros(0, np.int64), *(piece for i, piece in enumerate(pieces) if i not in places)])
        parts = ("", *(f" {word} " for word in self.given), "")
        prompt = _prompt(tokens, is_open, located)
        return Prompted(prompt, gap_lengths, missing, _SENTENCE, parts, (last + 1).tolist(), whole=_spaced)


class Program(Item):
    """A program with a run of lines missing."""

    slots: ClassVar[int] = CODE_SLOTS

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        """Shows as much around the gap as leaves `CODE_GAP` slots free; the rest is kept verbatim.

        A program is encoded with a leading space, as in the training data.
        """
        (prefix, suffix), (middle,) = self.literals, self.fills
        first, last = tokenizer.encode(" " + prefix), tokenizer.encode(suffix)
        shown = CODE_SLOTS - CODE_GAP - 2  # tokens, not counting the edges
        after = min(len(last), max(shown // 2, shown - len(first)))
        before = min(len(first), shown - after)
        skipped = len(first) - before
        ends = [max(0, end - 1) for end in tokenizer.ends(" " + prefix)]
        ends += [len(prefix) + end for end in tokenizer.ends(suffix)][:after]
        given = self.unfilled
        start, stop = ends[skipped - 1] if skipped else 0, ends[-1] if after < len(last) else len(given)
        edges = [tokenizer.vocabulary.sep if hidden else tokenizer.edge for hidden in (skipped, len(last) - after)]
        tokens = np.array([edges[0], *first[skipped:], *last[:after], edges[1]], np.int64)
        gap_lengths, is_open = np.zeros(len(tokens), np.int64), np.zeros(len(tokens) + 1, bool)
        missing = tokenizer.encode(middle)
        gap_lengths[before] = len(missing)
        is_open[before + 1] = True
        if not located:  # at every word, every line, and the end of the text
            begins_line = np.diff(tokenizer.lines(tokens[1:]), prepend=-1) > 0
            is_open[1:-1] |= tokenizer.starts_word[tokens[1:]] | begins_line | (tokens[1:] == tokenizer.edge)
        parts = [given[left:right] for left, right in pairwise([0, start, *ends[skipped:], len(given)])]
        prompt, gaps, cut = _prompt(tokens, is_open, located), range(1, len(tokens)), (given[:start], given[stop:])
        return Prompted(prompt, gap_lengths, missing, len(prompt) + CODE_MIDDLE, parts, gaps, str, cut=cut)


class Passage(Item):
    """Running text with one or more blanks."""

    tasks: ClassVar[tuple[str, ...]] = ("located",)

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        if not located:
            raise ValueError(f"item '{self.id}' has marked blanks; it supports the located task only")
        pieces, gaps, missing, gap_lengths = [np.array([tokenizer.edge])], list[int](), [], [0]
        for number, (literal, fill) in enumerate(zip(self.literals, (*self.fills, None), strict=True)):
            if text := _spaced(literal):
                pieces.append(tokenizer.encode(" " * (number == 0 or literal[0].isspace()) + text))
                gap_lengths += [0] * len(pieces[-1])
            if fill is not None:
                gaps.append(len(gap_lengths))
                attached = literal and not literal[-1].isspace()
                missing.append(tokenizer.encode(fill if attached else " " + fill))
                gap_lengths[-1] += len(missing[-1])
        tokens = np.concatenate([*pieces, [tokenizer.edge]]).astype(np.int64)
        is_open = np.zeros(len(tokens) + 1, bool)
        is_open[gaps] = True
        prompt, lengths = _prompt(tokens, is_open, True), np.array([*gap_lengths, 0], np.int64)
        guess = len(prompt) + _FILL * len(gaps)
        return Prompted(prompt, lengths, np.concatenate(missing), guess, self.literals, gaps)


def _prompt(tokens: Int[np.ndarray, "n"], is_open: Bool[np.ndarray, "gaps"], located: bool) -> Prompt:
    given = np.ones(len(tokens), bool)
    hint = gap_hints(given, is_open) if located else np.full(len(tokens), UNKNOWN)
    return Prompt(Example(tokens, given, hint), is_open)


def read_set(bench: Path, dataset: str, split: str) -> list[Item]:
    """The items of one set in a benchmark folder."""
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; --bench must be a folder of NAME.{split}.jsonl files")
    file, end = bench / f"{dataset}.{split}.jsonl", f".{split}.jsonl"
    if not file.is_file():
        sets = ", ".join(sorted(path.name.removesuffix(end) for path in bench.glob(f"*{end}"))) or "no sets"
        raise FileNotFoundError(f"no benchmark at {file}; the folder has {sets} for the split '{split}'")
    return read_items(file)


def read_items(file: Path) -> list[Item]:
    items: list[Item] = []
    known: dict[str, int] = {}
    for number, row in enumerate(read_rows(file), 1):
        try:
            name = row.get("id", str(number))
            name = str(name) if type(name) is int else _text(name)
            if known.setdefault(name, number) != number:
                raise TypeError(f"item {known[name]} has the id '{name}' too; give each item its own")
            items.append(_item(name, row))
        except (KeyError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f'{place_of(row)}: expected {{"words", "keep"}}, {{"prefix", "middle", "suffix"}} or {{"text"}}, '
                f'with an optional "id" ({reason})'
            ) from None
    if not items:
        raise ValueError(f"{file} has no items; expected one per line")
    return items


def _item(name: str, row: dict[str, Any]) -> Item:
    if "prefix" in row:
        prefix, middle, suffix = (_text(row[part]) for part in ("prefix", "middle", "suffix"))
        if not prefix or prefix.endswith("\n"):
            return Program(name, (prefix, suffix), (middle,))
        return Passage(name, (prefix.rstrip() + " ", " " * bool(suffix) + suffix.lstrip()), (middle.strip(),))
    if "words" not in row and "text" in row:
        parts = re.split("⟦(.*?)⟧", _text(row["text"]), flags=re.DOTALL)
        if len(parts) < 3 or not all(part.strip() for part in parts[1::2]):
            raise TypeError('"text" has no words between ⟦ and ⟧')
        return Passage(name, tuple(parts[::2]), tuple(parts[1::2]))
    words, keep = row["words"], row["keep"]
    if not isinstance(words, list) or not isinstance(keep, list):
        raise TypeError('"words" and "keep" are not both lists')
    if spaced := [word for word in words if _text(word).split() != [word]]:
        raise TypeError(f"{json.dumps(spaced[0])} is not a word; words have no white space")
    if any(not isinstance(i, int) or not 0 <= i < len(words) for i in keep) or sorted(set(keep)) != keep:
        raise TypeError(f'"keep" is {keep}; expected ascending indices below {len(words)}, the number of words')
    return Sentence.of(name, words, keep)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
