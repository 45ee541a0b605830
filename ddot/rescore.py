"""`ddot score` and `ddot compare`: more metrics for texts that were filled before, and how sure a difference is.

No model is needed: rows and texts as `ddot evaluate` wrote them, and the benchmark's items.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddot.benchmarks import BenchmarkItem, read_set
from ddot.metrics import METRICS, compare, score
from ddot.tables import read_rows
from ddot.tables.lines import IDENTITY, is_number

# Two rows that agree in these filled the same items with as many steps.
SAME_TASK = ("dataset", "split", "task", "steps", "seed", "items")


def rescore(
    file: Path,
    bench: Path,
    metrics: Sequence[str],
    samples: int = 0,
    language_model: Callable[..., Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of a file that lack one of the metrics, with them. Each is also appended to the file, and then holds.

    With `samples`, intervals too, as in `score`.
    """
    rows, texts = _read([file], bench, metrics)
    for key, row in rows.items():
        sure = row.get("intervals", {})
        lacking = [name for name in metrics if not is_number(row.get(name)) or (samples and name not in sure)]
        if not lacking:
            continue
        items = _items(bench, row)
        row.pop("missing", None)
        found = score(items, _in_order(items, texts.get(key, {}), row), lacking, language_model, samples)
        if samples:  # None: this metric has no interval
            found["intervals"] = sure | dict.fromkeys(lacking) | found["intervals"]
        row |= found
        with open(file, "a", encoding="utf-8") as output:
            output.write(json.dumps(row) + "\n")
        yield row


def contrast(
    files: Sequence[Path],
    bench: Path,
    methods: Sequence[str],
    metrics: Sequence[str],
    samples: int = 1000,
    language_model: Callable[..., Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """The first of `methods` minus each of the others, wherever both filled the same items: one row for each metric."""
    if len(methods) < 2:
        raise ValueError(f"one method ('{methods[0]}') cannot be compared; name the other ones after it, with commas")
    rows, texts = _read(files, bench, metrics)
    for name in methods:
        if not any(row["method"] == name for row in rows.values()):
            there = ", ".join(dict.fromkeys(row["method"] for row in rows.values()))
            raise ValueError(f"no row has the method '{name}'; there are {there}")
    for key, row in rows.items():
        for other_key, other in rows.items():
            if row["method"] != methods[0] or other["method"] not in methods[1:] or _task(row) != _task(other):
                continue
            items = _items(bench, row)
            mine, theirs = (_in_order(items, texts.get(k, {}), r) for k, r in ((key, row), (other_key, other)))
            found = compare(items, mine, theirs, metrics, language_model, samples)
            missing = found.pop("missing", {})
            about = {"first": row["method"], "second": other["method"], "model": row["model"], "other": other["model"]}
            about |= {name: row[name] for name in SAME_TASK}
            for metric, apart in found.items():
                yield about | {"metric": metric, **apart}
            if missing:
                yield about | {"missing": missing}


def _task(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAME_TASK)


def _read(
    files: Sequence[Path], bench: Path, metrics: Sequence[str]
) -> tuple[dict[tuple[Any, ...], dict[str, Any]], dict[tuple[Any, ...], dict[str, str]]]:
    """(rows, texts by item) of files, by what identifies a row."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"there is no metric '{unknown[0]}'; there are {', '.join(METRICS)}")
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; give the --bench the rows were made with")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in read_rows(*files):
        key = _identity(row)
        rows[key] = rows.get(key, {}) | row
    texts: dict[tuple[Any, ...], dict[str, str]] = {}
    for said in read_texts(files):
        texts.setdefault(_identity(said), {})[said["id"]] = said["text"]
    return rows, texts


def _items(bench: Path, row: dict[str, Any]) -> list[BenchmarkItem]:
    return read_set(bench, row["dataset"], row["split"])[: row["items"]]


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
