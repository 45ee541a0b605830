"""`ddot prepare`: sources → packed corpus."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ddot.data.forms import FORMS, SPLITS, in_review_form
from ddot.data.shards import pack
from ddot.data.sources import read
from ddot.data.tokenizer import Tokenizer


def prepare(
    sources: list[str],
    tokenizer: Path,
    output: Path,
    split: str = "sentences",
    form: str = "natural",
    field: str | None = None,
    without: Iterable[Path] = (),
    limit: int | None = None,
    shard_bytes: int = 1 << 30,
    apart: bool = False,
) -> dict[str, Any]:
    """Pack the sources into `output`. Returns its meta.json."""
    for name, value, known in (("split", split, SPLITS), ("form", form, FORMS)):
        if value not in known:
            raise ValueError(f"--{name} is '{value}'; choose from {', '.join(known)}")
    for name, number in (("limit", limit), ("shard-mb", shard_bytes)):
        if number is not None and number < 1:
            raise ValueError(f"--{name} is {number}; it must be at least 1")
    excluded = {plain for file in without for plain in _benchmark_texts(file)}
    # All sources are opened before the first is packed, so that a misspelt one is reported at once.
    documents = [read(source, field) for source in sources]
    texts = islice(chain.from_iterable(documents), limit)
    about = {"sources": [Path(source).name for source in sources], "split": split, "form": form, "apart": apart}
    pieces = _pieces(texts, split, form, excluded, apart)
    return pack(pieces, Tokenizer.load(tokenizer), output, shard_bytes, about)


def _pieces(texts: Iterable[str], split: str, form: str, excluded: set[str], apart: bool) -> Iterator[list[str]]:
    for text in texts:
        pieces = [FORMS[form](piece) for piece in SPLITS[split](text)]
        pieces = [piece for piece in pieces if not excluded or _plain(piece) not in excluded]
        if apart:
            yield from ([piece] for piece in pieces)
        elif pieces:
            yield pieces


def _benchmark_texts(file: Path) -> Iterator[str]:
    if not file.is_file():
        raise FileNotFoundError(f"no benchmark file at {file}")
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            yield _plain(row["prefix"] + row["middle"] + row["suffix"] if "prefix" in row else " ".join(row["words"]))
        except (ValueError, KeyError, TypeError):
            expected = 'a JSON object with "words", a list (or prefix, middle and suffix)'
            raise ValueError(f"{file}, line {number}: expected {expected}") from None


def _plain(text: str) -> str:
    """Letters and digits only, the same for a text and its tokenised form."""
    return "".join(filter(str.isalnum, in_review_form(text)))
