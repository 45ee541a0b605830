"""Reads documents from files and from the Hugging Face hub, one at a time."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddot.files import UNPACKING, opened
from ddot.version import extra

# Short names of datasets on the hub: (dataset, configuration, column). Streamed; needs the extra `data`.
HUB = {
    "hub:one-billion-word": ("dvruette/lm1b", None, "text"),
    "hub:yelp": ("Yelp/yelp_review_full", None, "text"),
    "hub:codeparrot": ("codeparrot/codeparrot-clean", None, "content"),
    "hub:fineweb-edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT", "text"),
}


def read(source: str, field: str | None = None) -> Iterator[str]:
    """The non-empty documents of a source, in order.

    A source is a .txt file (one document per line), a .jsonl file (`field` of each line), either of them also as .xz or
    .gz, a .parquet file (column `field`), a short name such as hub:fineweb-edu, or hub:OWNER/NAME. A missing file is
    refused at once, other errors are raised while reading.
    """
    if source.startswith("hub:"):
        name, config, column = HUB.get(source, (source.removeprefix("hub:"), None, "text"))
        return _not_empty(_dataset(source, field or column, name, config), source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no text at {source}; give a .txt, .jsonl or .parquet file (or .xz, .gz), or hub:NAME")
    if path.suffix == ".parquet":
        return _not_empty(_dataset(source, field or "text", "parquet", data_files=source), source)
    kind = path.with_suffix("").suffix if path.suffix in (".xz", ".gz") else path.suffix
    if kind not in (".txt", ".jsonl"):
        raise ValueError(f"{source} is of an unknown type; give .txt or .jsonl (also .xz, .gz), or .parquet")
    lines = _lines(path)
    return _not_empty(_fields(lines, field or "text", source) if kind == ".jsonl" else lines, source)


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        # Read as bytes: a text reader decodes in blocks and cannot name the line of an invalid byte.
        with opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if b"\0" in line:
                    raise ValueError(f"{path}, line {number}: a NUL byte; this is a binary file, not text")
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 text ({error.reason}); convert the file first") from None
    except UNPACKING as error:
        raise ValueError(f"{path} cannot be decompressed ({_one_line(error)}); download it again") from None


def _fields(lines: Iterable[str], field: str, source: str) -> Iterator[str | None]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                text = json.loads(line)[field]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise ValueError(f'{source}, line {number}: expected a JSON object with "{field}"') from None
            if not isinstance(text, str | None):
                raise ValueError(f'{source}, line {number}: "{field}" is {_one_line(text)}, expected a string')
            if text and any("\ud800" <= character <= "\udfff" for character in text):
                raise ValueError(f'{source}, line {number}: "{field}" contains half a character; remove it')
            yield text


def _not_empty(texts: Iterable[str | None], source: str) -> Iterator[str]:
    """The non-empty texts; refuses a source without any."""
    nonempty = (text for text in texts if text and not text.isspace())
    first = next(nonempty, None)
    if first is None:
        raise ValueError(f"{source} holds no text")
    yield first
    yield from nonempty


def _dataset(source: str, column: str, name: str, config: str | None = None, **options: str) -> Iterator[str | None]:
    """One column of a dataset, streamed."""
    with extra(source, "data"):
        import datasets
        import huggingface_hub
    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # errors are raised as well as logged
    where = "" if options else f" at {huggingface_hub.constants.ENDPOINT}"
    try:
        if where:  # checked first: `datasets` retries for half a minute before it gives up
            huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=10)
        for row in datasets.load_dataset(name, config, split="train", streaming=True, **options):
            if column not in row:
                raise ValueError(f"no column '{column}'; there are {', '.join(row)}: choose one with --field")
            if not isinstance(row[column], str | None):
                raise ValueError(
                    f"'{column}' holds {_one_line(row[column])}, expected text; choose another column with --field"
                )
            yield row[column]
    except Exception as error:  # errors of `datasets` and of HTTP libraries have no common class
        reason = f"{source} cannot be read{where}: {_one_line(error)}"
        raise ValueError(f"{reason}; give another source, or --field") from None


def _one_line(value: object) -> str:
    """The value on one line, for an error message."""
    text = " ".join(str(value).split()).rstrip(".") or type(value).__name__
    return text if len(text) <= 200 else text[:200] + " …"
