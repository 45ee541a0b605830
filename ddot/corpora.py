"""Text from files and from the hub: one document at a time, split into sentences, brought into a benchmark's form.

Knows nothing about token ids.
"""

import gzip
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

# Ready names for texts on the Hugging Face hub: (dataset, configuration, column). Streamed; needs the extra `data`.
HUB = {
    "hub:one-billion-word": ("dvruette/lm1b", None, "text"),
    "hub:yelp": ("Yelp/yelp_review_full", None, "text"),
    "hub:codeparrot": ("codeparrot/codeparrot-clean", None, "content"),
    "hub:fineweb-edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT", "text"),
}


def read(source: str, field: str | None = None) -> Iterator[str]:
    """The documents of a source, in order.

    A file (.txt: one a line; .jsonl: `field` of each line; .parquet: column `field`; .xz and .gz are unpacked), a
    ready name such as hub:fineweb-edu, or hub:OWNER/NAME.
    """
    if source.startswith("hub:"):
        return _read_hub(source, field)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no text at {source}; give a .txt, .jsonl or .parquet file (or .xz, .gz), or hub:NAME")
    kind = path.with_suffix("").suffix if path.suffix in (".xz", ".gz") else path.suffix
    if kind == ".parquet":
        return _some(_read_parquet(path, field or "text"), source)
    if kind not in (".txt", ".jsonl"):
        raise ValueError(f"{source} ends in '{kind}'; texts come as .txt, .jsonl or .parquet (and .xz, .gz of those)")
    lines = _lines(path)
    if kind == ".jsonl":
        lines = _fields(lines, field or "text", source)
    return _some((line for line in lines if line.strip()), source)


def _lines(path: Path) -> Iterator[str]:
    opener: Callable[..., IO[str]] = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)  # type: ignore[assignment]
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if "\0" in line:
                    raise ValueError(f"{path}, line {number}: a NUL byte; this is a binary file, not text")
                yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it first") from None
    except (lzma.LZMAError, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} does not unpack ({error}); fetch it again") from None


def _fields(lines: Iterable[str], field: str, source: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield json.loads(line)[field]
            except (json.JSONDecodeError, KeyError, TypeError):
                raise ValueError(f'{source}, line {number}: wanted a JSON object with "{field}"') from None


def _some(texts: Iterator[str], source: str) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = False
        yield text
    if empty:
        raise ValueError(f"{source} holds no text")


def _read_parquet(path: Path, field: str) -> Iterator[str]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("reading .parquet needs the extra `data`: pip install 'ddot[data]'") from None
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has no one class for a broken file
        raise ValueError(f"{path} is not a parquet file: {error}") from None
    if field not in file.schema_arrow.names:
        raise ValueError(f"{path} has no column '{field}'; it has {', '.join(file.schema_arrow.names)}")
    for batch in file.iter_batches(columns=[field]):
        yield from (text for text in batch.column(0).to_pylist() if text)


def _read_hub(source: str, field: str | None) -> Iterator[str]:
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{source} needs the extra `data`: pip install 'ddot[data]'") from None
    name, config, column = HUB.get(source, (source.removeprefix("hub:"), None, "text"))
    rows: Iterable[Any] = datasets.load_dataset(name, config, split="train", streaming=True)
    for row in rows:
        if (field or column) not in row:
            raise ValueError(f"{source} has no column '{field or column}'; it has {', '.join(row)}")
        yield row[field or column]


_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Sen|Rep|Gov|Lt|Col|Sgt|Capt|St|Jr|Sr|Inc|Corp|Ltd|Co|No|vs|etc|e\.g|i\.e|approx"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)|\b[A-Z]|\.[A-Za-z])\.$"
)
_END = re.compile(r"([.!?…]+[\"'”’)\]]*)\s+(?=[\"'“‘(\[]?[A-Z0-9])")
_NO_SPACE = re.compile(r"([a-z][.!?][\"”]?)([A-Z][a-z])")


def sentences(text: str) -> list[str]:
    """The text cut after sentence ends; abbreviations and initials do not end a sentence."""
    text = _NO_SPACE.sub(r"\1 \2", " ".join(text.split()))
    found, start = [], 0
    for match in _END.finditer(text):
        piece = text[start : match.end(1)]
        if not _ABBREVIATION.search(piece):
            found.append(piece)
            start = match.end()
    if start < len(text):
        found.append(text[start:])
    return found


_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": " -- ", "—": " -- ", "…": " ... "})
_APART = [
    (re.compile(r"''"), '"'),
    (re.compile(r"(\.{2,}|--+)"), r" \1 "),
    (re.compile(r"(?<=[^\d]),|,(?=[^\d])|,$"), " , "),
    (re.compile(r"([;?!()\[\]{}\"$£€%&]|:(?!\d))"), r" \1 "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
    (re.compile(r"(?<!\w)'(?=\w{3})|(?<=\w)'(?!\w)"), " ' "),
    (re.compile(r"(?<!\.)\.(?=[\s\"')\]]*$)"), " . "),
]


def in_news_form(sentence: str) -> str:
    """A sentence tokenised as in One-Billion-Word: marks stand apart, "won 't", "Obama 's", plain quotes."""
    sentence = sentence.translate(_QUOTES)
    for pattern, spaced in _APART:
        sentence = pattern.sub(spaced, sentence)
    return " ".join(sentence.split())


def in_review_form(sentence: str) -> str:
    """A sentence tokenised and lower-cased as in the Yelp benchmark."""
    return in_news_form(sentence.replace(" n't", "n't")).lower()


FORMS: dict[str, Callable[[str], str]] = {"natural": str, "news": in_news_form, "reviews": in_review_form}
SPLITS: dict[str, Callable[[str], list[str]]] = {"sentences": sentences, "lines": lambda text: [text]}
