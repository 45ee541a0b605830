"""Token ids: the special rows of a vocabulary, and text ↔ ids through a `tokenizer.json`.

Knows nothing about prompts, positions or networks.
"""

import json
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, pre_tokenizers, trainers

from ddot.core.records import Vocabulary


class Tokenizer:
    """Text ↔ ids. Wraps a `tokenizers` encoder; adds the special rows without making them reachable from text."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        # "<|endoftext|>" typed by a user is text like any other.
        self.encoder.encode_special_tokens = True
        self.vocabulary = Vocabulary(encoder.get_vocab_size(with_added_tokens=True))

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """The tokenizer in a `tokenizer.json`, or in the folder that holds one (or GPT-2's two files)."""
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file() and (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
            return cls.from_bpe(path / "vocab.json", path / "merges.txt")
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer at {file}; give a tokenizer.json or a folder that holds one")
        try:
            return cls(Encoder.from_file(str(file)))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"{file} is not a tokenizer.json: {error}") from None

    @classmethod
    def from_bpe(cls, vocab: Path | str, merges: Path | str) -> "Tokenizer":
        """A byte-level BPE from GPT-2's two files (`vocab.json`, `merges.txt`)."""
        try:
            return cls(byte_level(models.BPE.from_file(str(vocab), str(merges))))
        except Exception as error:  # as above
            raise ValueError(f"{vocab} and {merges} are not the two files of a BPE: {error}") from None

    def save(self, path: Path | str) -> None:
        self.encoder.save(str(path), pretty=False)

    def encode(self, text: str) -> Int[np.ndarray, "n"]:
        return np.array(self.encoder.encode(text, add_special_tokens=False).ids, np.int64)

    def encode_batch(self, texts: list[str]) -> list[Int[np.ndarray, "n"]]:
        encodings = self.encoder.encode_batch(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.int64) for encoding in encodings]

    def ends(self, text: str) -> list[int]:
        """Where each token of `encode(text)` ends, in characters. One that spells part of a character ends with it."""
        offsets = self.encoder.encode(text, add_special_tokens=False).offsets
        return list(accumulate((end for _, end in offsets), max))

    def decode(self, tokens: Int[np.ndarray, "n"] | list[int]) -> str:
        """The text of ordinary tokens; special rows are left out."""
        ordinary = [int(token) for token in tokens if token < self.vocabulary.base]
        return self.encoder.decode(ordinary, skip_special_tokens=False)

    @cached_property
    def edge(self) -> int:
        """The id that stands at both ends of a text: the base model's own end-of-text token, or [sep]."""
        found = self.encoder.token_to_id("<|endoftext|>")
        return self.vocabulary.sep if found is None else found

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, "V"]:
        """For each row of the vocabulary: does the token begin with white space (or stand for a special row)?"""
        rows = np.ones(self.vocabulary.size, bool)
        for text, token in self.encoder.get_vocab(with_added_tokens=True).items():
            rows[token] = text[:1] in ("Ġ", "▁", "Ċ", "ĉ", " ", "\n", "\t")
        return rows

    def words(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """The index of the word each token belongs to: 0, 0, 1, 2, 2, …"""
        starts = self.starts_word[tokens].copy()
        starts[:1] = False
        return np.cumsum(starts)

    @cached_property
    def is_mark(self) -> Bool[np.ndarray, "V"]:
        """For each row of the vocabulary: does the token consist of closing punctuation only?"""
        rows = np.zeros(self.vocabulary.size, bool)
        for text, token in self.encoder.get_vocab(with_added_tokens=True).items():
            rows[token] = bool(text) and set(text) <= set(".,;:!?)]}\"'")
        return rows

    def units(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """As `words`, but the marks that close a word are units of their own: people leave them outside a blank."""
        starts, mark = self.starts_word[tokens].copy(), self.is_mark[tokens]
        # A mark closes a word if the next token that is not a mark starts another one, or if there is none.
        others = np.flatnonzero(~mark)
        closes = np.append(starts[others], True)[np.searchsorted(others, np.arange(len(tokens)), side="right")]
        starts |= mark & closes
        starts[:1] = False
        return np.cumsum(starts)

    @cached_property
    def ends_line(self) -> Bool[np.ndarray, "V"]:
        """For each row of the vocabulary: does the token hold a line break?"""
        rows = np.zeros(self.vocabulary.size, bool)
        for text, token in self.encoder.get_vocab(with_added_tokens=True).items():
            rows[token] = "Ċ" in text or "\n" in text
        return rows

    def lines(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """The index of the line each token belongs to; a line break belongs to the line it ends."""
        return np.cumsum(self.ends_line[tokens]) - self.ends_line[tokens]


def byte_level(model: models.BPE) -> Encoder:
    """An encoder that splits and joins text as GPT-2 does, around the given merges."""
    encoder = Encoder(model)
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    return encoder


def learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of at most `size` tokens learnt from texts; token 0 is the edge of a text."""
    encoder = byte_level(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    encoder.train_from_iterator((" " + text for text in texts), trainer)
    return Tokenizer(encoder)


def prune(
    tokenizer: Tokenizer, counts: Int[np.ndarray, "base"], least: int
) -> tuple[Tokenizer, Int[np.ndarray, "kept"]]:
    """(a smaller tokenizer, the old ids of its tokens): tokens that occur `least` times, and all they are made of.

    Bytes and added tokens always stay, so every text can still be written; one that was counted is encoded as before.
    """
    spec = json.loads(tokenizer.encoder.to_str())
    if spec["model"]["type"] != "BPE":
        raise ValueError(f"only a BPE vocabulary can be pruned, this one is {spec['model']['type']}")
    vocab: dict[str, int] = spec["model"]["vocab"]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in spec["model"]["merges"]]
    made, added = _made_of(merges), [token["content"] for token in spec["added_tokens"]]
    kept: set[str] = set()
    wanted = [token for token, row in vocab.items() if token not in made or token in added or counts[row] >= least]
    while wanted:
        token = wanted.pop()
        if token not in kept:
            kept.add(token)
            wanted.extend(made.get(token, ()))
    # Added tokens that the model does not have follow its own, as the library wants it.
    order = [*sorted(kept, key=vocab.__getitem__), *(token for token in added if token not in vocab)]
    rows = {token: new for new, token in enumerate(order)}
    spec["model"]["vocab"] = {token: row for token, row in rows.items() if token in vocab}
    spec["model"]["merges"] = [[a, b] for a, b in merges if a in kept and b in kept and a + b in kept]
    for token in spec["added_tokens"]:
        token["id"] = rows[token["content"]]
    spec["post_processor"] = None  # never used, and it may hold old ids
    old = tokenizer.encoder.get_vocab(with_added_tokens=True)
    return Tokenizer(Encoder.from_str(json.dumps(spec))), np.array([old[token] for token in order], np.int64)


def _made_of(merges: list[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The two parts each token is merged from when text is encoded."""
    rank = {pair: number for number, pair in enumerate(merges)}
    made: dict[str, tuple[str, ...]] = {}
    for pair in merges:
        token = "".join(pair)
        # Some vocabularies list every way to cut a token in two; the order of all merges decides which one is used.
        made[token] = _last_merge(token, rank) or pair if token in made else pair
    return made


def _last_merge(token: str, rank: dict[tuple[str, ...], int]) -> tuple[str, ...] | None:
    """The pair that encoding merges last to get a token; None if it does not get it from letters."""
    parts = list(token)
    while len(parts) > 2:
        pairs = [(rank[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in rank]
        if not pairs:
            return None
        _, place = min(pairs)
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
    return tuple(parts) if tuple(parts) in rank else None
