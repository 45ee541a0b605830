"""Fixed benchmark items and how they become prompts: words given, words missing, free or located.

An item is a line {"id", "words", "keep"}: the reference split at spaces and the indices of the words that are given.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int

from ddot.filling import Prompt
from ddot.masking import gap_hints
from ddot.records import UNKNOWN, Example
from ddot.tokens import Tokenizer


@dataclass(frozen=True)
class Item:
    id: str
    words: tuple[str, ...]
    keep: tuple[int, ...]

    @property
    def given(self) -> list[str]:
        return [self.words[i] for i in self.keep]


def read_items(file: Path) -> list[Item]:
    """The items of a benchmark file."""
    if not file.is_file():
        raise FileNotFoundError(f"no benchmark at {file}; wanted a .jsonl file with words and keep")
    items = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
            items.append(Item(row["id"], tuple(row["words"]), tuple(row["keep"])))
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(f'{file}, line {number}: wanted {{"id", "words", "keep"}}') from None
    return items


@dataclass(frozen=True)
class WordPrompt:
    """An item as tokens between two edge tokens; `word_end[i]` is the prompt token that ends given word i."""

    prompt: Prompt
    word_end: Int[np.ndarray, "given"]
    given: list[str]
    rooms: Int[np.ndarray, "n"]  # true lengths, for the oracle

    def words(self, gaps: Sequence[Int[np.ndarray, "_"]], tokenizer: Tokenizer) -> list[str]:
        """The filled text, split at spaces: given words as they were, between them what the gaps hold."""
        found = tokenizer.decode(gaps[1]).split()
        for word, end in zip(self.given, self.word_end, strict=True):
            found += [word, *tokenizer.decode(gaps[end + 1]).split()]
        return found


def word_prompt(item: Item, tokenizer: Tokenizer, located: bool) -> WordPrompt:
    """The item's given words. Located: the network is told where words are missing; free: it is not."""
    pieces = [tokenizer.encode(" " + word) for word in item.words]
    kept = list(item.keep)
    tokens = np.concatenate([[tokenizer.edge], *(pieces[i] for i in kept), [tokenizer.edge]]).astype(np.int64)
    ends = np.cumsum([0] + [len(pieces[i]) for i in kept])  # of the leading edge, then of each given word
    is_open, rooms = np.zeros(len(tokens) + 1, bool), np.zeros(len(tokens), np.int64)
    borders = [-1, *kept, len(item.words)]
    for end, (left, right) in zip(ends, pairwise(borders), strict=True):
        rooms[end] = sum(len(pieces[i]) for i in range(left + 1, right))
        is_open[end + 1] = rooms[end] > 0 if located else True
    given = np.ones(len(tokens), bool)
    example = Example(tokens, given, gap_hints(given, is_open) if located else np.full(len(tokens), UNKNOWN))
    return WordPrompt(Prompt(example, is_open), ends[1:], item.given, rooms)
