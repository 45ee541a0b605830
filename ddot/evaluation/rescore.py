"""`ddot score` and `ddot compare`: more metrics for texts that were filled before, and how sure a difference is.

The model that filled them is not needed: rows and texts as `ddot evaluate` wrote them, and the benchmark's items.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddot.evaluation.items import BenchmarkItem, read_set
from ddot.evaluation.metrics import METRICS, Fluency, Measured, compare, measure, score
from ddot.evaluation.rows import IDENTITY, check, identity, is_number, place_of
from ddot.evaluation.store import append, mend
from ddot.evaluation.tables import read_rows

# Two rows that agree in these filled the same items with as many steps.
SAME_TASK = tuple(name for name in IDENTITY if name not in ("model", "method"))
Key = tuple[Any, ...]


def rescore(
    file: Path, bench: Path, metrics: Sequence[str], samples: int = 0, fluency: Fluency | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a file that lack one of the metrics, with them. What was found is appended to the file, and holds.

    With `samples`, intervals too, as in `score`. What was made with fewer samples or another language model is made
    again.
    """
    for written in (file, file.with_suffix(".texts.jsonl")):
        mend(written)
    rows, texts = _read([file], bench, metrics)
    for key, row in rows.items():
        sure = row.get("intervals") or {} if (row.get("samples") or 0) >= samples else {}
        lacking = [name for name in metrics if not is_number(row.get(name)) or (samples and name not in sure)]
        if "success" in metrics and not row.get("kept"):
            lacking = [*dict.fromkeys([*lacking, "success"])]
        if fluency and "perplexity" in metrics and row.get("language_model") != fluency.name:
            lacking = [*dict.fromkeys([*lacking, "perplexity"])]
        if not lacking:
            continue
        items = _items(bench, row)
        row.pop("missing", None)
        found = score(items, _in_order(items, texts.get(key, {}), row), lacking, fluency, samples)
        if samples:  # None: this metric has no interval
            found["intervals"] = sure | dict.fromkeys(lacking) | found["intervals"]
            found["samples"] = samples
        row |= found
        if any(name in found for name in lacking):
            append(file, [row])
        yield row


def contrast(
    files: Sequence[Path],
    bench: Path,
    methods: Sequence[str],
    metrics: Sequence[str],
    samples: int = 1000,
    fluency: Fluency | None = None,
) -> Iterator[dict[str, Any]]:
    """The first of `methods` minus each of the others, wherever both filled the same items: one row for each metric.

    Where a metric could not be had, a row says why under "missing".
    """
    if len(set(methods)) < len(methods) or len(methods) < 2:
        raise ValueError(f"'{','.join(methods)}' names no two methods to compare; name the first, then others")
    rows, texts = _read(files, bench, metrics)
    there = list(dict.fromkeys(row["method"] for row in rows.values()))
    for name in methods:
        if name not in there:
            raise ValueError(f"no row has the method '{name}'; there are {', '.join(there) or 'no rows'}")
    pairs = [
        (key, other)
        for key, row in rows.items() if row["method"] == methods[0]
        for other, its in rows.items() if its["method"] in methods[1:] and _task(its) == _task(row)
    ]  # fmt: skip
    if not pairs:
        raise ValueError(
            f"no two rows of {', '.join(methods)} agree in {', '.join(SAME_TASK)}; fill the same items with as many "
            "steps (ddot evaluate)"
        )
    known: dict[Key, Measured] = {}
    for key in dict.fromkeys(key for pair in pairs for key in pair):
        items = _items(bench, rows[key])
        known[key] = measure(items, _in_order(items, texts.get(key, {}), rows[key]), metrics, fluency)
    for key, other in pairs:
        found = compare(known[key], known[other], samples)
        missing = found.pop("missing", {})
        about = {"first": rows[key]["method"], "second": rows[other]["method"]}
        about |= {"model": rows[key]["model"], "other": rows[other]["model"]}
        about |= {name: rows[key][name] for name in SAME_TASK}
        for metric, apart in found.items():
            yield about | {"metric": metric, **apart}
        if missing:
            yield about | {"missing": missing}


def _task(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in SAME_TASK)


def _read(
    files: Sequence[Path], bench: Path, metrics: Sequence[str]
) -> tuple[dict[Key, dict[str, Any]], dict[Key, dict[str, str]]]:
    """(rows, texts by item) of files, by what identifies a row."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"there is no metric '{unknown[0]}'; there are {', '.join(METRICS)}")
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; give the --bench the rows were made with")
    of_rows = [file for file in files if not file.name.endswith(".texts.jsonl")]
    if not of_rows:
        belong = files[0].name.removesuffix(".texts.jsonl")
        raise ValueError(f"{files[0]} holds texts; give the rows they belong to, {belong}.jsonl")
    rows: dict[Key, dict[str, Any]] = {}
    for number, row in enumerate(read_rows(*of_rows), 1):
        key = check(row, place_of(row, number))
        rows[key] = rows.get(key, {}) | row
    texts: dict[Key, dict[str, str]] = {}
    for said in read_texts(of_rows):
        texts.setdefault(identity(said), {})[said["id"]] = said["text"]
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
    found = {}
    for number, row in enumerate(read_rows(*map(_texts_of, files)), 1):
        place = place_of(row, number)
        for name, kind in (("id", str | int), ("text", str)):
            if not isinstance(row.get(name), kind):
                raise ValueError(f"{place} has no '{name}'; wanted texts as `ddot evaluate` writes them")
        row["id"] = str(row["id"])
        found[*identity(row, place), row["id"]] = row
    return list(found.values())


def _texts_of(file: Path) -> Path:
    texts = file if file.name.endswith(".texts.jsonl") else file.with_suffix(".texts.jsonl")
    if file.is_file() and not texts.is_file():
        raise FileNotFoundError(
            f"no texts at {texts}; ddot evaluate writes them beside rows, and without them nothing can be scored"
        )
    return texts
