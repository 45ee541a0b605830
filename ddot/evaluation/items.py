"""Fixed benchmark items: what is given, what is missing, and how they become prompts and templates.

A line of a file is {"id", …} with
"words", "keep"               a sentence split at spaces, and the indices of the words that are given
"prefix", "middle", "suffix"  a program (the prefix ends its line) or sentences, of which the middle is missing
"text"                        a passage with the missing words between ⟦ and ⟧
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from ddot.core.gaps import gap_hints
from ddot.core.records import UNKNOWN, Example, Prompt
from ddot.data.forms import CODE_SLOTS
from ddot.data.tokenizer import Tokenizer
from ddot.infill.template import LONGEST, Template, parse, write

Text = str | list[str]  # a program as it is written; a sentence as words
TASKS = ("located", "free")  # told where words are missing, or not (the paper's task)

# Programs: of their L slots those left for what is missing (nine in ten middles have fewer than 124 tokens, four in
# five fewer than 96), and the mean length of a middle, measured on the dev items.
CODE_GAP, CODE_MIDDLE = 96, 60
_SENTENCE = 32  # tokens of a sentence, for a guess
_FILL = 7  # tokens of a blank in a passage, for a guess: the mean over `people`


@runtime_checkable
class Prompted(Protocol):
    """An item as tokens."""

    @property
    def prompt(self) -> Prompt: ...

    @property
    def gap_lengths(self) -> Int[np.ndarray, "n"]:
        """The true number of tokens missing after each given one."""
        ...

    @property
    def missing(self) -> Int[np.ndarray, "m"]:
        """The tokens that are missing, in order."""
        ...

    @property
    def guess(self) -> int:
        """A guess of the number of tokens in the whole text."""
        ...

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> Text:
        """The text with these tokens in its gaps; given parts stay verbatim."""
        ...

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> Text:
        """The text of all these tokens, written by a model."""
        ...


@runtime_checkable
class BenchmarkItem(Protocol):
    """A reference, what is given of it, and how it becomes a prompt or a template."""

    @property
    def id(self) -> str: ...

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def given(self) -> Sequence[str]: ...

    @property
    def unfilled(self) -> Text: ...

    @property
    def slots(self) -> int:
        """The least L, while lengths are unknown."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]: ...

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        """`located`: the network is told where text is missing."""
        ...

    def template(self, told: bool) -> str | None:
        """What a user of `ddot infill` would write, with the number of words if `told`; None if nothing is missing."""
        ...


def _template(literals: Sequence[str], missing: Sequence[str], told: bool) -> str | None:
    """A template with a blank for each of the missing texts."""
    counts = [min(LONGEST, len(text.split())) for text in missing]
    blanks = [parse(f"___{{{count}}}" if told else "___").blanks[0] for count in counts]
    return write(Template(tuple(literals), tuple(blanks))) if blanks else None


@dataclass(frozen=True)
class Item:
    """A sentence of which some words are given."""

    id: str
    words: tuple[str, ...]
    keep: tuple[int, ...]
    tasks: ClassVar[tuple[str, ...]] = TASKS
    slots: ClassVar[int] = 0  # as many as the network usually has

    @property
    def given(self) -> list[str]:
        return [self.words[i] for i in self.keep]

    @property
    def missing(self) -> list[int]:
        """The number of words missing before each given one, and after the last."""
        return [right - left - 1 for left, right in pairwise([-1, *self.keep, len(self.words)])]

    @property
    def unfilled(self) -> Text:
        return self.given

    def prompted(self, tokenizer: Tokenizer, located: bool) -> "WordPrompt":
        pieces = [tokenizer.encode(" " + word) for word in self.words]
        kept = list(self.keep)
        tokens = np.concatenate([[tokenizer.edge], *(pieces[i] for i in kept), [tokenizer.edge]]).astype(np.int64)
        ends = np.cumsum([0] + [len(pieces[i]) for i in kept])  # of the leading edge, then of each given word
        is_open, gap_lengths = np.zeros(len(tokens) + 1, bool), np.zeros(len(tokens), np.int64)
        borders = [-1, *kept, len(self.words)]
        for end, (left, right) in zip(ends, pairwise(borders), strict=True):
            gap_lengths[end] = sum(len(pieces[i]) for i in range(left + 1, right))
            is_open[end + 1] = gap_lengths[end] > 0 if located else True
        gone = np.concatenate([np.zeros(0, np.int64), *(pieces[i] for i in range(len(pieces)) if i not in self.keep)])
        return WordPrompt(_prompt(tokens, is_open, located), ends[1:], self.given, gap_lengths, gone)

    def template(self, told: bool) -> str | None:
        literals, missing = [""], []
        for left, right in pairwise([-1, *self.keep, len(self.words)]):
            if right - left > 1:
                missing.append(" ".join(self.words[left + 1 : right]))
                literals.append("")
            if right < len(self.words):
                first = len(literals) == 1 and not literals[0]
                literals[-1] += self.words[right] if first else " " + self.words[right]
        literals = [literal + " " * (bool(literal) and n < len(missing)) for n, literal in enumerate(literals)]
        return _template(literals, missing, told)


@dataclass(frozen=True)
class WordPrompt:
    """Given words between two edge tokens; `word_end[i]` is the prompt token that ends given word i."""

    prompt: Prompt
    word_end: Int[np.ndarray, "given"]
    given: list[str]
    gap_lengths: Int[np.ndarray, "n"]
    missing: Int[np.ndarray, "m"]
    guess: int = _SENTENCE

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> Text:
        """Split at spaces: given words as they were, between them what the gaps hold."""
        found = tokenizer.decode(gaps[1]).split()
        for word, end in zip(self.given, self.word_end, strict=True):
            found += [word, *tokenizer.decode(gaps[end + 1]).split()]
        return found

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> Text:
        return tokenizer.decode(tokens[tokens != tokenizer.edge]).split()


@dataclass(frozen=True)
class CodeItem:
    """A program of which a run of lines is missing, verbatim."""

    id: str
    prefix: str
    middle: str
    suffix: str
    tasks: ClassVar[tuple[str, ...]] = TASKS
    slots: ClassVar[int] = CODE_SLOTS

    @property
    def text(self) -> str:
        return self.prefix + self.middle + self.suffix

    @cached_property
    def words(self) -> list[str]:
        return self.text.split()

    @property
    def given(self) -> list[str]:
        return [*self.prefix.split(), *self.suffix.split()]

    @property
    def missing(self) -> list[int]:
        """The number of words missing before each given one, and after the last."""
        before, after = len(self.prefix.split()), len(self.suffix.split())
        return [0] * before + [len(self.words) - before - after] + [0] * after

    @property
    def unfilled(self) -> Text:
        return self.prefix + self.suffix

    def template(self, told: bool) -> str | None:
        return _template((self.prefix, self.suffix), (self.middle,), told)

    def prompted(self, tokenizer: Tokenizer, located: bool) -> "CodePrompt":
        """The part around the gap that leaves slots for what is missing; the rest is not shown, and stays verbatim.

        A program is encoded with a space before it, as in corpora.
        """
        first, last = tokenizer.encode(" " + self.prefix), tokenizer.encode(self.suffix)
        shown = CODE_SLOTS - CODE_GAP - 2  # without the edges
        after = min(len(last), max(shown // 2, shown - len(first)))
        before = min(len(first), shown - after)
        cut = len(first) - before
        ends = [max(0, end - 1) for end in tokenizer.ends(" " + self.prefix)]
        ends += [len(self.prefix) + end for end in tokenizer.ends(self.suffix)][:after]
        start, stop = ends[cut - 1] if cut else 0, ends[-1] if after < len(last) else len(self.prefix + self.suffix)
        edges = [tokenizer.vocabulary.sep if part else tokenizer.edge for part in (cut, len(last) - after)]
        tokens = np.array([edges[0], *first[cut:], *last[:after], edges[1]], np.int64)
        gap_lengths, is_open = np.zeros(len(tokens), np.int64), np.zeros(len(tokens) + 1, bool)
        missing = tokenizer.encode(self.middle)
        gap_lengths[before] = len(missing)
        is_open[before + 1] = True
        if not located:
            is_open[1:-1] |= _word_begins(tokens[1:], tokenizer)
        prompt = _prompt(tokens, is_open, located)
        return CodePrompt(prompt, gap_lengths, missing, self.prefix + self.suffix, start, stop, tuple(ends[cut:]))


@dataclass(frozen=True)
class CodePrompt:
    """What is shown of what is given, `given[start:stop]`, between two edge tokens; `ends`: where each token ends."""

    prompt: Prompt
    gap_lengths: Int[np.ndarray, "n"]
    missing: Int[np.ndarray, "m"]
    given: str
    start: int
    stop: int
    ends: tuple[int, ...]

    @property
    def guess(self) -> int:
        return len(self.prompt) + CODE_MIDDLE

    @property
    def is_cut(self) -> bool:
        """Whether a part of what is given is not shown."""
        return self.stop - self.start < len(self.given)

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> Text:
        parts = [self.given[left:right] for left, right in pairwise([0, self.start, *self.ends, len(self.given)])]
        fills = ["", *(tokenizer.decode(gap) for gap in gaps[1:-1])]
        return "".join(part for both in zip(fills, parts, strict=True) for part in both)

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> Text:
        written = tokenizer.decode(tokens[tokens != tokenizer.edge])
        if not self.start:
            written = written.removeprefix(" ")  # which it was encoded with
        return self.given[: self.start] + written + self.given[self.stop :]


@dataclass(frozen=True)
class Passage:
    """Running text with one or more blanks; `fills` are the words that were there."""

    id: str
    literals: tuple[str, ...]
    fills: tuple[str, ...]
    tasks: ClassVar[tuple[str, ...]] = ("located",)
    slots: ClassVar[int] = 0

    @property
    def text(self) -> str:
        return "".join(part for both in zip(self.literals, (*self.fills, ""), strict=True) for part in both)

    @cached_property
    def words(self) -> list[str]:
        return self.text.split()

    @property
    def given(self) -> list[str]:
        """Words of the literal text; a mark beside a blank is no word of its own."""
        marked = "\0".join(self.literals).split()
        return [word for word in marked if "\0" not in word]

    @property
    def unfilled(self) -> Text:
        return "".join(self.literals)

    def template(self, told: bool) -> str | None:
        return _template(self.literals, self.fills, told)

    def fills_in(self, text: str) -> list[str] | None:
        """What stands at each blank of a text with the same literals, or None; of several readings the shortest
        first fill."""
        found = re.fullmatch("(.*?)".join(map(re.escape, self.literals)), text, re.DOTALL)
        return None if found is None else list(found.groups())

    def prompted(self, tokenizer: Tokenizer, located: bool) -> "PassagePrompt":
        if not located:
            raise ValueError(f"item '{self.id}' has its blanks marked: it is for the located task alone")
        tokens, after, missing, gap_lengths = [np.array([tokenizer.edge])], [], [], [0]
        for number, (literal, fill) in enumerate(zip(self.literals, (*self.fills, None), strict=True)):
            if text := " ".join(literal.split()):
                encoded = tokenizer.encode(" " * (number == 0 or literal[0].isspace()) + text)
                tokens.append(encoded)
                gap_lengths += [0] * len(encoded)
            if fill is not None:
                after.append(len(gap_lengths) - 1)
                glued = literal and not literal[-1].isspace()
                missing.append(tokenizer.encode(fill if glued else " " + fill))
                gap_lengths[-1] += len(missing[-1])
        every = np.concatenate([*tokens, [tokenizer.edge]]).astype(np.int64)
        is_open = np.zeros(len(every) + 1, bool)
        is_open[np.array(after, np.int64) + 1] = True
        lengths = np.array([*gap_lengths, 0], np.int64)
        return PassagePrompt(_prompt(every, is_open, True), lengths, np.concatenate(missing), self.literals, after)


@dataclass(frozen=True)
class PassagePrompt:
    """A passage between two edge tokens; `after[i]` is the prompt token before blank i."""

    prompt: Prompt
    gap_lengths: Int[np.ndarray, "n"]
    missing: Int[np.ndarray, "m"]
    literals: tuple[str, ...]
    after: list[int]

    @property
    def guess(self) -> int:
        return len(self.prompt) + _FILL * len(self.after)

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> Text:
        fills = [tokenizer.decode(gaps[after + 1]).strip() for after in self.after]
        return "".join(part for both in zip(self.literals, (*fills, ""), strict=True) for part in both)

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> Text:
        return tokenizer.decode(tokens[tokens != tokenizer.edge]).strip()


def _prompt(tokens: Int[np.ndarray, "n"], is_open: Bool[np.ndarray, "gaps"], located: bool) -> Prompt:
    given = np.ones(len(tokens), bool)
    return Prompt(
        Example(tokens, given, gap_hints(given, is_open) if located else np.full(len(tokens), UNKNOWN)), is_open
    )


def _word_begins(tokens: Int[np.ndarray, "n"], tokenizer: Tokenizer) -> Bool[np.ndarray, "n"]:
    """Whether a word or a line begins with each token, or the edge of the text."""
    return (
        tokenizer.starts_word[tokens] | (np.diff(tokenizer.lines(tokens), prepend=-1) > 0) | (tokens == tokenizer.edge)
    )


def read_set(bench: Path, dataset: str, split: str) -> list[BenchmarkItem]:
    """The items of one set in a folder of benchmarks."""
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; --bench wants one with NAME.{split}.jsonl files")
    file = bench / f"{dataset}.{split}.jsonl"
    if not file.is_file():
        there = sorted(found.name.removesuffix(f".{split}.jsonl") for found in bench.glob(f"*.{split}.jsonl"))
        raise FileNotFoundError(
            f"no benchmark at {file}; of the split '{split}' the folder has {', '.join(there) or 'no sets'}"
        )
    return read_items(file)


def read_items(file: Path) -> list[BenchmarkItem]:
    """The items of a benchmark file."""
    if not file.is_file():
        raise FileNotFoundError(f"no benchmark at {file}; wanted a .jsonl file of items")
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error.reason}); wanted a .jsonl file of items") from None
    items: list[BenchmarkItem] = []
    known: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            name = row.get("id", str(number))
            name = str(name) if type(name) is int else _text(name)
            if known.setdefault(name, number) != number:
                raise TypeError(f"the id '{name}' is also that of line {known[name]}; give each item its own")
            items.append(_item(name, row))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f'{file}, line {number}: wanted {{"words", "keep"}}, {{"prefix", "middle", "suffix"}} or {{"text"}}, '
                f'and an "id" if there is one ({said})'
            ) from None
    if not items:
        raise ValueError(f"{file} has no items; wanted one per line")
    return items


def _item(name: str, row: dict[str, object]) -> BenchmarkItem:
    if "prefix" in row:
        prefix, middle, suffix = (_text(row[part]) for part in ("prefix", "middle", "suffix"))
        if not prefix or prefix.endswith("\n"):
            return CodeItem(name, prefix, middle, suffix)
        return Passage(name, (prefix.rstrip() + " ", " " * bool(suffix) + suffix.lstrip()), (middle.strip(),))
    if "words" not in row and "text" in row:
        parts = re.split("⟦(.*?)⟧", _text(row["text"]), flags=re.DOTALL)
        if len(parts) < 3 or not all(part.strip() for part in parts[1::2]):
            raise TypeError('"text" has no words between ⟦ and ⟧')
        return Passage(name, tuple(parts[::2]), tuple(parts[1::2]))
    words, keep = row["words"], row["keep"]
    if not isinstance(words, list):
        raise TypeError(f'"words" is {json.dumps(words)[:40]}; wanted a list')
    if not isinstance(keep, list):
        raise TypeError(f'"keep" is {json.dumps(keep)[:40]}; wanted a list')
    return _sentence(name, [_word(word) for word in words], keep)


def _word(word: object) -> str:
    if _text(word).split() != [word]:
        raise TypeError(f"{json.dumps(word)} is not a word; wanted characters without white space")
    return str(word)


def _sentence(name: str, words: list[str], keep: list[int]) -> Item:
    if any(not isinstance(i, int) or not 0 <= i < len(words) for i in keep) or sorted(set(keep)) != list(keep):
        raise TypeError(f'"keep" is {keep}; wanted ascending whole numbers below {len(words)}, the number of words')
    return Item(name, tuple(words), tuple(keep))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value
