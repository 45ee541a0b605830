"""Reads documents from files and from the Hugging Face hub, one at a time."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddot.files import UNPACKING, opened

# Short names of datasets on the hub: (dataset, configuration, column). Streamed; needs the extra `data`.
HUB = {
    "hub:one-billion-word": ("dvruette/lm1b", None, "text"),
    "hub:yelp": ("Yelp/yelp_review_full", None, "text"),
    "hub:codeparrot": ("codeparrot/codeparrot-clean", None, "content"),
    "hub:fineweb-edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT", "text"),
}


def read(source: str, field: str | None = None) -> Iterator[str]:
    """The non-empty documents of a source, in order.

    A source is a .txt file (one document per line), a .jsonl file (`field` of each line), either also as .xz or .gz, a
    .parquet file (column `field`), a short name such as hub:fineweb-edu, or hub:OWNER/NAME. Refuses a bad source at
    once if that is possible without reading it.
    """
    if source.startswith("hub:"):
        return _not_empty(_open_hub(source, field), source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no text at {source}; give a .txt, .jsonl or .parquet file (or .xz, .gz), or hub:NAME")
    if path.suffix == ".parquet":
        return _not_empty(_open_parquet(path, field or "text"), source)
    kind = path.with_suffix("").suffix if path.suffix in (".xz", ".gz") else path.suffix
    if kind not in (".txt", ".jsonl"):
        raise ValueError(f"{source} is of an unknown type; give .txt or .jsonl (also .xz, .gz), or .parquet")
    lines = _lines(path)
    return _not_empty(_fields(lines, field or "text", source) if kind == ".jsonl" else lines, source)


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        # Read as bytes: a text reader decodes in blocks, and could not name the line of a bad byte.
        with opened(path) as lines:
            for number, line in enumerate(lines, 1):
                if b"\0" in line:
                    raise ValueError(f"{path}, line {number}: a NUL byte; this is a binary file, not text")
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 text ({error.reason}); convert the file first") from None
    except UNPACKING as error:
        raise ValueError(f"{path} cannot be decompressed ({_one_line(error)}); fetch it again") from None


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
                raise ValueError(f'{source}, line {number}: "{field}" holds half a character; take it out')
            yield text


def _not_empty(texts: Iterable[str | None], source: str) -> Iterator[str]:
    """The texts that are not empty, of which there must be one."""
    found = (text for text in texts if text and not text.isspace())
    first = next(found, None)
    if first is None:
        raise ValueError(f"{source} holds no text")
    yield first
    yield from found


def _open_parquet(path: Path, field: str) -> Iterator[str | None]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("reading .parquet needs the extra `data`: pip install 'ddot-infill[data]'") from None
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not parquet, or is truncated ({_one_line(error)}); fetch it again") from None
    schema = file.schema_arrow
    if field not in schema.names:
        raise ValueError(f"{path} has no column '{field}'; it has {', '.join(schema.names)}: name one with --field")
    kind = schema.field(field).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise ValueError(f"{path}: column '{field}' holds {kind}, expected text; name another with --field")

    def rows() -> Iterator[str | None]:
        try:
            for batch in file.iter_batches(columns=[field]):
                yield from batch.column(0).to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged ({_one_line(error)}); fetch it again") from None

    return rows()


def _open_hub(source: str, field: str | None) -> Iterator[str | None]:
    try:
        import datasets
        import huggingface_hub
    except ImportError:
        raise ValueError(f"{source} needs the extra `data`: pip install 'ddot-infill[data]'") from None
    endpoint = huggingface_hub.constants.ENDPOINT
    try:
        # Checked first, because `datasets` tries for half a minute before it gives up.
        huggingface_hub.get_session().head(endpoint, timeout=10)
    except Exception as error:  # of any HTTP library
        raise ValueError(f"{source}: {endpoint} cannot be reached ({_one_line(error)}); give a file instead") from None
    name, config, column = HUB.get(source, (source.removeprefix("hub:"), None, "text"))
    column = field or column

    def rows() -> Iterator[str | None]:
        try:
            for row in datasets.load_dataset(name, config, split="train", streaming=True):
                if column not in row:
                    raise ValueError(f"no column '{column}'; there are {', '.join(row)}: name one with --field")
                if not isinstance(row[column], str | None):
                    raise ValueError(f"'{column}' holds {_one_line(row[column])}, expected text")
                yield row[column]
        except Exception as error:  # errors of `datasets` have no common class
            raise ValueError(f"{source} cannot be read: {_one_line(error)}") from None

    return rows()


def _one_line(value: object) -> str:
    """The value as part of a sentence."""
    text = " ".join(str(value).split()).rstrip(".") or type(value).__name__
    return text if len(text) <= 200 else text[:200] + " …"
