"""`ddot score`: more metrics for texts that were filled before, without the model: rows and texts as `ddot evaluate`
wrote them, and the benchmark's items."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddot.benchmarks import BenchmarkItem, read_set
from ddot.metrics import METRICS, score
from ddot.tables import read_rows
from ddot.tables.lines import IDENTITY, is_number


def rescore(file: Path, bench: Path, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a file that lack one of the metrics, with them. Each is also appended to the file, and then holds."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"there is no metric '{unknown[0]}'; there are {', '.join(METRICS)}")
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; give the --bench the rows were made with")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in read_rows(file):
        key = _identity(row)
        rows[key] = rows.get(key, {}) | row
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for said in read_texts([file]):
        texts.setdefault(_identity(said), {})[said["id"]] = said["text"]
    for key, row in rows.items():
        lacking = [name for name in metrics if not is_number(row.get(name))]
        if not lacking:
            continue
        items = read_set(bench, row["dataset"], row["split"])[: row["items"]]
        row.pop("missing", None)
        row |= score(items, _in_order(items, texts.get(key, {}), row), lacking)
        with open(file, "a", encoding="utf-8") as output:
            output.write(json.dumps(row) + "\n")
        yield row


def _in_order(items: Sequence[BenchmarkItem], texts: dict[str, str], row: dict[str, Any]) -> list[str]:
    """The texts of a row, item by item."""
    lost = [item.id for item in items if item.id not in texts]
    if lost or len(items) < row["items"]:
        what = f"no text of item '{lost[0]}'" if lost else f"{row['items']} items and the benchmark has {len(items)}"
        raise ValueError(
            f"the row {row['method']}, {row['dataset']}, {row['task']} has {what}; "
            "give the --bench it was made with, or make it again with ddot evaluate"
        )
    return [texts[item.id] for item in items]


def read_texts(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The texts of files of rows (they stand beside them) or of texts, each once: what was written last holds."""
    wanted = (*IDENTITY, "id", "text")
    found = {}
    for number, row in enumerate(read_rows(*map(_texts_of, files)), 1):
        lacking = [name for name in wanted if name not in row]
        if lacking:
            raise ValueError(f"text {number} has no '{lacking[0]}'; wanted texts as `ddot evaluate` writes them")
        found[*_identity(row), row["id"]] = row
    return list(found.values())


def _texts_of(file: Path) -> Path:
    texts = file if file.name.endswith(".texts.jsonl") else file.with_suffix(".texts.jsonl")
    if file.is_file() and not texts.is_file():
        raise FileNotFoundError(f"no texts at {texts}; ddot evaluate writes them there, beside the rows in {file.name}")
    return texts


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    lacking = [name for name in IDENTITY if name not in row]
    if lacking:
        raise ValueError(f"a row has no '{lacking[0]}'; wanted rows as `ddot evaluate` writes them")
    return tuple(row[name] for name in IDENTITY)
