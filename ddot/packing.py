"""Token ids of a corpus on disk: compact, memory-mapped, ready in seconds, no text needed.

A folder holds, for each shard, `tokens-N.bin` (uint16 or uint32) and `lengths-N.bin` (uint16: the tokens of each
sentence; the top bit marks the first sentence of a document), `counts.npy` (how often each token occurs), `meta.json`.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ddot.tokens import Tokenizer

_FIRST = 1 << 15  # marks the first sentence of a document in `lengths`
LONGEST = _FIRST - 1
_AT_ONCE = 2_000  # documents encoded together


def fingerprint(tokenizer: Tokenizer) -> str:
    """Tells whether two tokenizers have the same tokens at the same ids."""
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

    Every sentence is encoded with one space before it, as it stands inside a text. Sentences of more than 32,767
    tokens are left out. The folder appears when it is complete.
    """
    if folder.exists():
        raise ValueError(f"{folder} exists already; remove it or choose another --output")
    draft = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    dtype = np.uint16 if tokenizer.vocabulary.size <= 1 << 16 else np.uint32
    counts = np.zeros(tokenizer.vocabulary.base, np.uint64)
    shards: list[dict[str, int]] = []
    totals = {"documents": 0, "sentences": 0, "tokens": 0}
    room = 0
    try:
        for tokens, lengths in _encoded(documents, tokenizer):
            if room < tokens.nbytes or not shards:
                shards.append({"sentences": 0, "tokens": 0})
                room = shard_bytes
            counts += np.bincount(tokens, minlength=len(counts)).astype(np.uint64)
            for name, values in (("tokens", tokens.astype(dtype)), ("lengths", lengths)):
                with open(draft / f"{name}-{len(shards) - 1:05d}.bin", "ab") as file:
                    file.write(values.tobytes())
                room -= values.nbytes
            shards[-1]["sentences"] += len(lengths)
            shards[-1]["tokens"] += len(tokens)
            totals["documents"] += int((lengths & _FIRST > 0).sum())
        if not shards or not sum(shard["tokens"] for shard in shards):
            raise ValueError("the sources hold no text that can be packed")
        totals |= {key: sum(shard[key] for shard in shards) for key in ("sentences", "tokens")}
        meta = {
            **totals,
            "dtype": np.dtype(dtype).name,
            "vocabulary": tokenizer.vocabulary.base,
            "tokenizer": fingerprint(tokenizer),
            "shards": shards,
            **(about or {}),
        }
        np.save(draft / "counts.npy", counts)
        tokenizer.save(draft / "tokenizer.json")
        (draft / "meta.json").write_text(json.dumps(meta, indent=1))
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return meta


def _encoded(
    documents: Iterable[list[str]], tokenizer: Tokenizer
) -> Iterator[tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]]:
    """(tokens, lengths) of some documents at a time."""
    stream = iter(documents)
    while some := list(islice(stream, _AT_ONCE)):
        flat = tokenizer.encode_batch([" " + sentence.strip() for document in some for sentence in document])
        first = np.array([i == 0 for document in some for i in range(len(document))], bool)
        kept = [(ids, lead) for ids, lead in zip(flat, first, strict=True) if 0 < len(ids) <= LONGEST]
        if kept:
            lengths = np.array([len(ids) | (_FIRST if lead else 0) for ids, lead in kept], np.uint16)
            yield np.concatenate([ids for ids, _ in kept]), lengths


class Corpus:
    """A packed folder, opened for reading. Sentences are numbered across shards."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        meta = self.folder / "meta.json"
        if not meta.is_file():
            raise FileNotFoundError(f"no packed corpus at {folder}; make one with `ddot prepare`")
        self.meta: dict[str, Any] = json.loads(meta.read_text())
        self.tokens, self.starts, self.first = [], [], []
        for number, shard in enumerate(self.meta["shards"]):
            tokens = self._open("tokens", number, self.meta["dtype"], shard["tokens"])
            lengths = self._open("lengths", number, "uint16", shard["sentences"])
            starts = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths & LONGEST, out=starts[1:])
            if starts[-1] != len(tokens):
                raise ValueError(f"shard {number} of {folder} is damaged: lengths and tokens disagree; pack it again")
            self.tokens.append(tokens)
            self.starts.append(starts)
            self.first.append(np.asarray(lengths & _FIRST > 0))
        self.before = np.cumsum([0] + [len(first) for first in self.first])

    def _open(self, name: str, number: int, dtype: str, count: int) -> np.ndarray:
        file = self.folder / f"{name}-{number:05d}.bin"
        if not file.is_file() or file.stat().st_size != count * np.dtype(dtype).itemsize:
            raise ValueError(f"{file} is missing or cut short; pack {self.folder} again")
        return np.memmap(file, dtype, "r")

    def __len__(self) -> int:
        return int(self.before[-1])

    def passage(self, sentence: int, longest: int) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]]:
        """(tokens, ends): up to `longest` tokens from the start of a sentence to the end of its document.

        `ends` are the places in `tokens` where a sentence ends, in order.
        """
        shard = int(np.searchsorted(self.before, sentence, side="right")) - 1
        i = sentence - int(self.before[shard])
        starts, first = self.starts[shard], self.first[shard]
        begin = starts[i]
        j = i + 1
        while j < len(first) and not first[j] and starts[j] - begin < longest:
            j += 1
        tokens = np.asarray(self.tokens[shard][begin : min(starts[j], begin + longest)], np.int64)
        return tokens, np.asarray(starts[i + 1 : j + 1] - begin, np.int64)

    def rarity(self) -> Float[np.ndarray, "V"]:
        """A weight in (0, 1] for each token, small for the most common ones: which words make keywords.

        The special rows that follow the ordinary tokens weigh nothing to speak of.
        """
        counts = np.load(self.folder / "counts.npy").astype(np.float64)
        share = counts / max(1.0, counts.sum())
        weight = np.minimum(1.0, (5e-4 / np.maximum(share, 1e-12)) ** 1.5)
        return np.concatenate([weight, np.full(3, 1e-9)])
