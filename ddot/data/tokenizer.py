"""Text ↔ token ids with a `tokenizer.json`; learning and pruning a byte-level BPE."""

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, pre_tokenizers, trainers

from ddot.core.records import Vocabulary


class Tokenizer:
    """Wraps a `tokenizers` encoder and adds special rows that no text encodes to."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        # "<|endoftext|>" typed by a user is ordinary text.
        self.encoder.encode_special_tokens = True
        self.vocabulary = Vocabulary(encoder.get_vocab_size(with_added_tokens=True))

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """The tokenizer in a `tokenizer.json`, or in a folder with one (or with GPT-2's two files)."""
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file() and (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
            return cls.from_bpe(path / "vocab.json", path / "merges.txt")
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer at {file}; give a tokenizer.json or a folder with one")
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
        """Where each token of `encode(text)` ends, in characters; part of a character ends where it does."""
        offsets = self.encoder.encode(text, add_special_tokens=False).offsets
        return list(accumulate((end for _, end in offsets), max))

    def decode(self, tokens: Int[np.ndarray, "n"] | list[int]) -> str:
        """The text of the ordinary tokens; special ones are skipped."""
        ordinary = [int(token) for token in tokens if token < self.vocabulary.base]
        return self.encoder.decode(ordinary, skip_special_tokens=False)

    @cached_property
    def edge(self) -> int:
        """The token at both ends of a text: the base model's end-of-text token, or [sep]."""
        end_of_text = self.encoder.token_to_id("<|endoftext|>")
        return self.vocabulary.sep if end_of_text is None else end_of_text

    def _rows(self, test: Callable[[str], bool], special: bool = False) -> Bool[np.ndarray, "V"]:
        """The result of a test of each token's text, by vocabulary row; `special` for the special rows."""
        rows = np.full(self.vocabulary.size, special)
        for text, token in self.encoder.get_vocab(with_added_tokens=True).items():
            rows[token] = test(text)
        return rows

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, "V"]:
        """Whether each token starts with white space or is special."""
        return self._rows(lambda text: text[:1] in ("Ġ", "▁", "Ċ", "ĉ", " ", "\n", "\t"), special=True)

    def words(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """The index of each token's word: 0, 0, 1, 2, 2, …"""
        starts = self.starts_word[tokens].copy()
        starts[:1] = False
        return np.cumsum(starts)

    @cached_property
    def is_mark(self) -> Bool[np.ndarray, "V"]:
        """Whether each token consists of closing punctuation only."""
        return self._rows(lambda text: bool(text) and set(text) <= set(".,;:!?)]}\"'"))

    def units(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Like `words`, but marks that close a word are separate units: people leave them outside a blank."""
        starts, mark = self.starts_word[tokens].copy(), self.is_mark[tokens]
        # A mark closes a word if the next token that is not a mark starts a word, or if there is none.
        others = np.flatnonzero(~mark)
        closes = np.append(starts[others], True)[np.searchsorted(others, np.arange(len(tokens)), side="right")]
        starts |= mark & closes
        starts[:1] = False
        return np.cumsum(starts)

    @cached_property
    def ends_line(self) -> Bool[np.ndarray, "V"]:
        """Whether each token contains a line break."""
        return self._rows(lambda text: "Ċ" in text or "\n" in text)

    def lines(self, tokens: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """The index of each token's line; a line break belongs to the line it ends."""
        return np.cumsum(self.ends_line[tokens]) - self.ends_line[tokens]


def byte_level(model: models.BPE) -> Encoder:
    """An encoder that splits and joins text as GPT-2 does, with the given merges."""
    encoder = Encoder(model)
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    return encoder


def learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of at most `size` tokens learnt from texts; token 0 is <|endoftext|>."""
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
    """(a smaller tokenizer, the old ids of its tokens): tokens that occur at least `least` times, and their parts.

    Bytes and added tokens always stay, so any text can be encoded; counted texts are encoded as before.
    """
    spec = json.loads(tokenizer.encoder.to_str())
    if spec["model"]["type"] != "BPE":
        raise ValueError(f"only a BPE vocabulary can be pruned, this one is {spec['model']['type']}")
    vocab: dict[str, int] = spec["model"]["vocab"]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in spec["model"]["merges"]]
    parts, added = _parts(merges), [token["content"] for token in spec["added_tokens"]]
    kept: set[str] = set()
    pending = [token for token, row in vocab.items() if token not in parts or token in added or counts[row] >= least]
    while pending:
        token = pending.pop()
        if token not in kept:
            kept.add(token)
            pending.extend(parts.get(token, ()))
    # Added tokens outside the model's vocabulary come last, as the library requires.
    order = [*sorted(kept, key=vocab.__getitem__), *(token for token in added if token not in vocab)]
    rows = {token: new for new, token in enumerate(order)}
    spec["model"]["vocab"] = {token: row for token, row in rows.items() if token in vocab}
    spec["model"]["merges"] = [[a, b] for a, b in merges if a in kept and b in kept and a + b in kept]
    for token in spec["added_tokens"]:
        token["id"] = rows[token["content"]]
    spec["post_processor"] = None  # never used, and it may hold old ids
    old = tokenizer.encoder.get_vocab(with_added_tokens=True)
    return Tokenizer(Encoder.from_str(json.dumps(spec))), np.array([old[token] for token in order], np.int64)


def _parts(merges: list[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The two parts that encoding merges into each token."""
    rank = {pair: number for number, pair in enumerate(merges)}
    parts: dict[str, tuple[str, ...]] = {}
    for pair in merges:
        token = "".join(pair)
        # Some vocabularies list every split of a token; the order of all merges decides which one is used.
        parts[token] = _last_merge(token, rank) or pair if token in parts else pair
    return parts


def _last_merge(token: str, rank: dict[tuple[str, ...], int]) -> tuple[str, ...] | None:
    """The last pair that encoding merges into a token; None if it cannot be built from characters."""
    parts = list(token)
    while len(parts) > 2:
        pairs = [(rank[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in rank]
        if not pairs:
            return None
        _, place = min(pairs)
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
    return tuple(parts) if tuple(parts) in rank else None
