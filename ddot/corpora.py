"""Text from files and from the hub: one document at a time, split into sentences, brought into a benchmark's form.

Knows nothing about token ids.
"""

import ast
import gzip
import json
import lzma
import re
import textwrap
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

# Ready names for texts on the Hugging Face hub: (dataset, configuration, column). Streamed; needs the extra `data`.
HUB = {
    "hub:one-billion-word": ("dvruette/lm1b", None, "text"),
    "hub:yelp": ("Yelp/yelp_review_full", None, "text"),
    "hub:codeparrot": ("codeparrot/codeparrot-clean", None, "content"),
    "hub:fineweb-edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT", "text"),
}


def read(source: str, field: str | None = None) -> Iterator[str]:
    """The documents of a source, in order; empty ones are left out.

    A file (.txt: one a line; .jsonl: `field` of each line, both also as .xz or .gz; .parquet: column `field`), a ready
    name such as hub:fineweb-edu, or hub:OWNER/NAME. What can be refused before reading is refused at once.
    """
    if source.startswith("hub:"):
        return _some(_open_hub(source, field), source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no text at {source}; give a .txt, .jsonl or .parquet file (or .xz, .gz), or hub:NAME")
    if path.suffix == ".parquet":
        return _some(_open_parquet(path, field or "text"), source)
    kind = path.with_suffix("").suffix if path.suffix in (".xz", ".gz") else path.suffix
    if kind not in (".txt", ".jsonl"):
        raise ValueError(f"{source} is of an unknown kind; texts come as .txt or .jsonl (also .xz, .gz), or .parquet")
    lines = _lines(path)
    return _some(_fields(lines, field or "text", source) if kind == ".jsonl" else lines, source)


def _lines(path: Path) -> Iterator[str]:
    opener: Callable[..., IO[bytes]] = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)  # type: ignore[assignment]
    number = 0
    try:
        # Read as bytes: a text reader decodes in blocks, and could not say in which line the bad byte stands.
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if b"\0" in line:
                    raise ValueError(f"{path}, line {number}: a NUL byte; this is a binary file, not text")
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 text ({error.reason}); convert the file first") from None
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} does not unpack ({_one_line(error)}); fetch it again") from None


def _fields(lines: Iterable[str], field: str, source: str) -> Iterator[str | None]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                text = json.loads(line)[field]
            except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
                raise ValueError(f'{source}, line {number}: wanted a JSON object with "{field}"') from None
            if not isinstance(text, str | None):
                raise ValueError(f'{source}, line {number}: "{field}" is {_one_line(text)}, wanted a text')
            yield text


def _some(texts: Iterable[str | None], source: str) -> Iterator[str]:
    """The texts that are not empty; at least one."""
    empty = True
    for text in texts:
        if text and not text.isspace():
            empty = False
            yield text
    if empty:
        raise ValueError(f"{source} holds no text")


def _open_parquet(path: Path, field: str) -> Iterator[str | None]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError("reading .parquet needs the extra `data`: pip install -e '.[data]'") from None
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no parquet file, or is cut short ({_one_line(error)}); fetch it again") from None
    schema = file.schema_arrow
    if field not in schema.names:
        raise ValueError(f"{path} has no column '{field}'; it has {', '.join(schema.names)}: name one with --field")
    kind = schema.field(field).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise ValueError(f"{path}: column '{field}' holds {kind}, wanted text; name another with --field")

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
        raise ValueError(f"{source} needs the extra `data`: pip install -e '.[data]'") from None
    endpoint = huggingface_hub.constants.ENDPOINT
    try:
        # Asked first, because `datasets` itself tries for half a minute before it gives up.
        huggingface_hub.get_session().head(endpoint, timeout=10)
    except Exception as error:  # of whichever HTTP library is below
        raise ValueError(f"{source}: {endpoint} cannot be reached ({_one_line(error)}); give a file instead") from None
    name, config, column = HUB.get(source, (source.removeprefix("hub:"), None, "text"))
    column = field or column

    def rows() -> Iterator[str | None]:
        try:
            for row in datasets.load_dataset(name, config, split="train", streaming=True):
                if column not in row:
                    raise ValueError(f"no column '{column}'; there are {', '.join(row)}: name one with --field")
                if not isinstance(row[column], str | None):
                    raise ValueError(f"'{column}' holds {_one_line(row[column])}, wanted text")
                yield row[column]
        except Exception as error:  # `datasets` and what it stands on have no one class
            raise ValueError(f"{source} cannot be read: {_one_line(error)}") from None

    return rows()


def _one_line(what: object) -> str:
    """Its text, as part of a sentence."""
    text = " ".join(str(what).split()).rstrip(".") or type(what).__name__
    return text if len(text) <= 200 else text[:200] + " …"


_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Sen|Rep|Gov|Lt|Col|Sgt|Capt|St|Jr|Sr|Inc|Corp|Ltd|Co|No|vs|etc|e\.g|i\.e|approx"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)|\b[A-Z]|\.[A-Za-z])\.$"
)
_END = re.compile(r"([.!?…]+[\"'”’)\]]*)\s+(?=[\"'“‘(\[]?[A-ZÀ-ÖØ-Þ0-9])")
_NO_SPACE = re.compile(r"([a-z][.!?][\"”]?)([A-Z][a-z])")


def sentences(text: str) -> list[str]:
    """The text cut after sentence ends; abbreviations and initials do not end a sentence."""
    text = _NO_SPACE.sub(r"\1 \2", " ".join(text.split()))
    found, start = [], 0
    for match in _END.finditer(text):
        end = match.end(1)
        if not _ABBREVIATION.search(text, max(start, end - 12), end):
            found.append(text[start:end])
            start = match.end()
    if start < len(text):
        found.append(text[start:])
    return found


_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": " -- ", "—": " -- ", "…": " ... "})
_DOUBLE = (re.compile(r"''"), '"')
_APART = [
    (re.compile(r"(\.{2,}|--+)"), r" \1 "),
    (re.compile(r"(?<!\d),|,(?!\d)"), " , "),
    (re.compile(r"([;:?!()\[\]{}\"$£€%&])"), r" \1 "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
]
_NEWS = [
    # A quote, not the clitic of a text that is tokenised already ("won 't").
    (re.compile(r"(?<!\w)'(?!(?:s|t|m|d|re|ve|ll)\b)|'(?!\w)"), " ' "),
    (re.compile(r"([/#+@*=])"), r" \1 "),
]
# Of the last word, unless it has letters and another full stop: "U.S.", "p.m.", "example.com." keep theirs.
_FULL_STOP = (re.compile(r"(?<!\S)([^\s.]+|[^\sA-Za-z]+)(?<!\.)\.(?=[\s\"')\]]*$)"), r"\1 . ")
_LAST_STOP = (re.compile(r"(?<!\.)\.(?=[\s\"')\]]*$)"), " . ")


def _spaced(sentence: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    sentence = sentence.translate(_QUOTES)
    for pattern, spaced in rules:
        sentence = pattern.sub(spaced, sentence)
    return " ".join(sentence.split())


def in_news_form(sentence: str) -> str:
    """A sentence tokenised as in One-Billion-Word: marks stand apart, "won 't", "Obama 's", plain quotes."""
    return _spaced(sentence, [_DOUBLE, *_NEWS, *_APART, _FULL_STOP])


def in_review_form(sentence: str) -> str:
    """A sentence tokenised and lower-cased as in the Yelp benchmark: fewer marks stand apart than in news."""
    return _spaced(sentence.replace(" n't", "n't"), [_DOUBLE, *_APART, _LAST_STOP]).lower()


def functions(text: str) -> list[str]:
    """The functions and methods of a Python file, each moved to the left margin; none of what Python cannot read."""
    try:
        with warnings.catch_warnings(action="ignore"):
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = re.split(r"\r\n|\r|\n", text)
    found: list[str] = []
    bodies: list[list[ast.stmt]] = [module.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                found.append(textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno])))
    return found


FORMS: dict[str, Callable[[str], str]] = {"natural": str, "news": in_news_form, "reviews": in_review_form}
SPLITS: dict[str, Callable[[str], list[str]]] = {
    "sentences": sentences,
    "lines": lambda text: [text],
    "functions": functions,
}
