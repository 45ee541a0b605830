"""Fixed benchmark items and how they become prompts: what is given, what is missing, free or located.

A line of a file is {"id", "words", "keep"}: the reference split at spaces and the indices of the words that are given;
or {"id", "prefix", "middle", "suffix"}: a program, of which the middle is missing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from ddot.core.gaps import gap_hints
from ddot.core.records import UNKNOWN, Example, Prompt
from ddot.data.forms import CODE_SLOTS
from ddot.data.tokenizer import Tokenizer

Text = str | list[str]  # a program as it is written; a sentence as words

# Programs: of their L tokens those that are kept free for what is missing (the middle of nine in ten is shorter than
# 124, of four in five than 96), and the mean length of a middle, all measured on the dev items.
CODE_GAP, CODE_MIDDLE = 96, 60
_SENTENCE = 32  # tokens of a sentence, for a guess


@runtime_checkable
class Prompted(Protocol):
    """An item as tokens."""

    @property
    def prompt(self) -> Prompt: ...

    @property
    def gap_lengths(self) -> Int[np.ndarray, "n"]:
        """The true number of tokens missing after each given one, for the oracle."""
        ...

    @property
    def guess(self) -> int:
        """How many tokens the whole may have, for a guess."""
        ...

    def filled(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> Text:
        """The text with what the gaps hold: given parts as they were."""
        ...

    def read(self, tokens: Int[np.ndarray, "_"], tokenizer: Tokenizer) -> Text:
        """The text as it came out, all of it written by a model."""
        ...


@runtime_checkable
class BenchmarkItem(Protocol):
    """A reference, what is given of it, and how it becomes a prompt."""

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
        """L at the least, while lengths are unknown."""
        ...

    def prompted(self, tokenizer: Tokenizer, located: bool) -> Prompted:
        """Located: the network is told where text is missing; free: it is not."""
        ...


@dataclass(frozen=True)
class Item:
    """A sentence of which some words are given."""

    id: str
    words: tuple[str, ...]
    keep: tuple[int, ...]

    @property
    def slots(self) -> int:
        return 0  # as many as the network is used to

    @property
    def given(self) -> list[str]:
        return [self.words[i] for i in self.keep]

    @property
    def missing(self) -> list[int]:
        """Words missing before each given one, and behind the last."""
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
        return WordPrompt(_prompt(tokens, is_open, located), ends[1:], self.given, gap_lengths)


@dataclass(frozen=True)
class WordPrompt:
    """Given words between two edge tokens; `word_end[i]` is the prompt token that ends given word i."""

    prompt: Prompt
    word_end: Int[np.ndarray, "given"]
    given: list[str]
    gap_lengths: Int[np.ndarray, "n"]
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
    """A program of which a run of lines is missing. All of it counts; it is kept as it is written."""

    id: str
    prefix: str
    middle: str
    suffix: str

    @property
    def slots(self) -> int:
        return CODE_SLOTS

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
        """Words missing before each given one, and behind the last."""
        before, after = len(self.prefix.split()), len(self.suffix.split())
        return [0] * before + [len(self.words) - before - after] + [0] * after

    @property
    def unfilled(self) -> Text:
        return self.prefix + self.suffix

    def prompted(self, tokenizer: Tokenizer, located: bool) -> "CodePrompt":
        """As much around the gap as leaves room for what is missing; the rest is not shown, and comes back as it was.

        A program is encoded as corpora are, with a space before it.
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
        gap_lengths[before] = len(tokenizer.encode(self.middle))
        is_open[before + 1] = True
        if not located:
            is_open[1:-1] |= _word_begins(tokens[1:], tokenizer)
        prompt = _prompt(tokens, is_open, located)
        return CodePrompt(prompt, gap_lengths, self.prefix + self.suffix, start, stop, tuple(ends[cut:]))


@dataclass(frozen=True)
class CodePrompt:
    """What is shown of what is given, `given[start:stop]`, between two edge tokens; `ends`: where each token ends."""

    prompt: Prompt
    gap_lengths: Int[np.ndarray, "n"]
    given: str
    start: int
    stop: int
    ends: tuple[int, ...]

    @property
    def guess(self) -> int:
        return len(self.prompt) + CODE_MIDDLE

    @property
    def is_cut(self) -> bool:
        """Not all that is given is shown."""
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
        raise FileNotFoundError(
            f"no benchmark at {file}; wanted a .jsonl file with words and keep, or a program's parts"
        )
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text ({error.reason}); wanted a .jsonl file of items") from None
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
                raise TypeError(f"the id '{name}' is that of line {known[name]} too; give each item its own")
            if "prefix" in row:
                items.append(CodeItem(name, *(_text(row[part]) for part in ("prefix", "middle", "suffix"))))
            else:
                if not isinstance(row["words"], list):
                    raise TypeError(f'"words" is {json.dumps(row["words"])[:40]}; wanted a list')
                items.append(_sentence(name, [_word(word) for word in row["words"]], row["keep"]))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f'{file}, line {number}: wanted {{"words", "keep"}} or {{"prefix", "middle", "suffix"}} '
                f'with an "id" if there is one ({said})'
            ) from None
    if not items:
        raise ValueError(f"{file} has no items; wanted one a line")
    return items


def _word(word: object) -> str:
    if _text(word).split() != [word]:
        raise TypeError(f"{json.dumps(word)} is no word; wanted some letters or signs without white space")
    return str(word)


def _sentence(name: str, words: list[str], keep: list[int]) -> Item:
    if any(not isinstance(i, int) or not 0 <= i < len(words) for i in keep) or sorted(set(keep)) != list(keep):
        raise TypeError(f'"keep" is {keep}; wanted ascending whole numbers below {len(words)}, the number of words')
    return Item(name, tuple(words), tuple(keep))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
