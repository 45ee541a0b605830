"""The token ids of a corpus on disk, memory-mapped.

A folder holds `tokens-N.bin` (uint16 or uint32) and `lengths-N.bin` (uint16: number of tokens in each sentence; the top
bit marks the first sentence of a document) for each shard, `counts.npy` (token counts) and `meta.json`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float, Int

from ddot.data.tokenizer import Tokenizer
from ddot.files import whole_folder, writing

_FIRST = 1 << 15  # marks the first sentence of a document in `lengths`
LONGEST = _FIRST - 1
_GROUP = 1 << 20  # characters encoded together


def fingerprint(tokenizer: Tokenizer) -> str:
    """A checksum of a tokenizer: equal for the same tokens at the same ids."""
    tokens = sorted(tokenizer.encoder.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    return hashlib.sha256("\n".join(token for token, _ in tokens).encode()).hexdigest()[:16]


def pack(
    documents: Iterable[list[str]],
    tokenizer: Tokenizer,
    folder: Path,
    shard_bytes: int = 1 << 30,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write documents, each a list of sentences, to a new folder. Returns its meta.json.

    Every sentence is encoded with a leading space, as inside a text. Empty sentences and those of more than 32,767
    tokens are dropped. A shard takes up to `shard_bytes`, unless a single document is longer.
    """
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary.size <= 1 << 16 else np.uint32)
    counts = np.zeros(tokenizer.vocabulary.base, np.uint64)
    with whole_folder(folder) as draft:
        with closing(_Shards(draft, dtype, shard_bytes)) as shards:
            for group in _encoded(documents, tokenizer):
                tokens = np.concatenate([ids for document in group for ids in document])
                counts += np.bincount(tokens, minlength=len(counts)).astype(np.uint64)
                with writing(draft):
                    for document in group:
                        shards.add(document)
        if not shards.counts:
            raise ValueError("the sources contain no text to pack")
        meta = {
            **{key: sum(shard[key] for shard in shards.counts) for key in ("documents", "sentences", "tokens")},
            "dtype": dtype.name,
            "vocabulary": tokenizer.vocabulary.base,
            "tokenizer": fingerprint(tokenizer),
            "shards": shards.counts,
            **(about or {}),
        }
        with writing(draft):
            np.save(draft / "counts.npy", counts)
            tokenizer.save(draft / "tokenizer.json")
            (draft / "meta.json").write_text(json.dumps(meta, indent=1))
    return meta


def _encoded(documents: Iterable[list[str]], tokenizer: Tokenizer) -> Iterator[list[list[Int[np.ndarray, "n"]]]]:
    """Groups of documents as the token ids of their sentences; documents without sentences are dropped."""
    for group in _groups(documents):
        ids = iter(tokenizer.encode_batch([" " + sentence for document in group for sentence in document]))
        coded = [[tokens for tokens in islice(ids, len(document)) if 0 < len(tokens) <= LONGEST] for document in group]
        if nonempty := [document for document in coded if document]:
            yield nonempty


def _groups(documents: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Documents in groups of about a million characters (encoding takes 100 bytes each), with sentences stripped."""
    group: list[list[str]] = []
    size = 0
    for document in documents:
        group.append([stripped for sentence in document if (stripped := sentence.strip())])
        size += sum(map(len, group[-1]))
        if size >= _GROUP:
            yield group
            group, size = [], 0
    yield group


class _Shards:
    """Appends documents to pairs of files, and counts what each pair holds."""

    def __init__(self, folder: Path, dtype: np.dtype, limit: int):
        self.folder, self.dtype, self.limit = folder, dtype, limit
        self.counts: list[dict[str, int]] = []
        self.files: list[IO[bytes]] = []
        self.free = 0

    def add(self, document: list[Int[np.ndarray, "_"]]) -> None:
        """Append a document, to new files if the current ones are full."""
        tokens = np.concatenate(document).astype(self.dtype)
        lengths = np.array([len(ids) for ids in document], np.uint16)
        lengths[0] |= _FIRST
        if tokens.nbytes + lengths.nbytes > self.free or not self.files:
            self.close()
            number = f"{len(self.counts):05d}"
            self.files = [open(self.folder / f"{name}-{number}.bin", "wb") for name in ("tokens", "lengths")]  # noqa: SIM115
            self.counts.append({"documents": 0, "sentences": 0, "tokens": 0})
            self.free = self.limit
        for file, values in zip(self.files, (tokens, lengths), strict=True):
            file.write(values.tobytes())
            self.free -= values.nbytes
        for name, count in (("documents", 1), ("sentences", len(lengths)), ("tokens", len(tokens))):
            self.counts[-1][name] += count

    def close(self) -> None:
        with writing(self.folder):
            for file in self.files:
                file.close()
        self.files = []


class Corpus:
    """A packed corpus, opened for reading. Sentences are numbered across shards."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        meta = self.folder / "meta.json"
        if not meta.is_file():
            raise FileNotFoundError(f"no packed corpus at {folder}; make one with `ddot prepare`")
        try:
            self.meta: dict[str, Any] = json.loads(meta.read_text())
            self.dtype, self.rows = np.dtype(self.meta["dtype"]), int(self.meta["vocabulary"])
            self.tokenizer = str(self.meta["tokenizer"])
            shards = [(int(shard["tokens"]), int(shard["sentences"])) for shard in self.meta["shards"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{meta} is damaged ({error!r}); pack {folder} again") from None
        self.tokens, self.starts, self.first = [], [], []
        for number, (n_tokens, n_sentences) in enumerate(shards):
            tokens = self._open("tokens", number, self.dtype, n_tokens)
            lengths = self._open("lengths", number, np.dtype(np.uint16), n_sentences)
            starts = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths & LONGEST, out=starts[1:])
            if starts[-1] != len(tokens):
                raise ValueError(f"shard {number} of {folder} is damaged: lengths and tokens disagree; pack it again")
            self.tokens.append(tokens)
            self.starts.append(starts)
            self.first.append(np.asarray(lengths & _FIRST > 0))
        self.before = np.cumsum([0] + [len(first) for first in self.first])

    def __reduce__(self) -> tuple[Any, ...]:
        # Other processes reopen the files; the default would pickle their contents.
        return Corpus, (self.folder,)

    def _open(self, name: str, number: int, dtype: np.dtype, count: int) -> np.ndarray:
        file = self.folder / f"{name}-{number:05d}.bin"
        if not file.is_file() or file.stat().st_size != count * dtype.itemsize or not count:
            raise ValueError(f"{file} is missing or truncated; pack {self.folder} again")
        return np.memmap(file, dtype, "r")

    def __len__(self) -> int:
        return int(self.before[-1])

    def passage(self, sentence: int, longest: int) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]:
        """(tokens, ends): up to `longest` tokens from the start of a sentence to the end of its document.

        `ends`: the number of tokens up to the end of each sentence; empty if the first sentence is longer.
        """
        shard = int(np.searchsorted(self.before, sentence, side="right")) - 1
        i = sentence - int(self.before[shard])
        starts, first = self.starts[shard], self.first[shard]
        begin = starts[i]
        j = i + 1
        while j < len(first) and not first[j] and starts[j] - begin < longest:
            j += 1
        tokens = np.asarray(self.tokens[shard][begin : min(starts[j], begin + longest)], np.int64)
        if tokens.max(initial=0) >= self.rows:
            raise ValueError(f"shard {shard} of {self.folder} is damaged: token id {tokens.max()}; pack it again")
        ends = np.asarray(starts[i + 1 : j + 1] - begin, np.int64)
        return tokens, ends[ends <= len(tokens)]

    def counts(self) -> Int[np.ndarray, "base"]:
        """The number of occurrences of each token."""
        file = self.folder / "counts.npy"
        try:
            counts = np.load(file)
            if counts.shape != (self.rows,) or counts.dtype != np.uint64:
                raise ValueError(f"{counts.dtype} of shape {counts.shape}")
        except (ValueError, EOFError, OSError) as error:
            raise ValueError(f"{file} is missing or damaged ({error}); pack {self.folder} again") from None
        return counts.astype(np.int64)

    def rarity(self) -> Float[np.ndarray, "V"]:
        """The weight of each token for drawing keywords: in (0, 1], small for common ones; 1e-9 for special rows."""
        counts = self.counts().astype(np.float64)
        share = counts / max(1.0, counts.sum())
        weight = np.minimum(1.0, (5e-4 / np.maximum(share, 1e-12)) ** 1.5)
        return np.concatenate([weight, np.full(3, 1e-9)])
