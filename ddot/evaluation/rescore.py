"""`ddot rescore` and `ddot compare`: more metrics for stored texts, and how certain a difference is.

They need rows and texts as `ddot evaluate` wrote them, and the benchmark's items, but not the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ddot.evaluation.items import Item, read_set
from ddot.evaluation.metrics.scoring import METRICS, Fluency, Measured, compare, measure, score
from ddot.evaluation.rows import Contrast, FilledText, Identity, Row, Task, is_measurement, is_number, parse
from ddot.evaluation.store import append, mend, read_rows, texts_of

Texts = Mapping[Identity, Mapping[str, str]]


def rescore(
    file: Path, bench: Path, metrics: Sequence[str], samples: int = 0, fluency: Fluency | None = None
) -> Iterator[Row]:
    """The rows of a file that lacked one of the metrics, with it; they are also appended to the file.

    With `samples`, also intervals. What was made with fewer samples or another language model is made again.
    """
    for written in (file, texts_of(file)):
        mend(written)
    rows, texts = _read([file], bench, metrics)
    for key, row in rows.items():
        intervals = row.intervals or {} if (row.samples or 0) >= samples else {}

        def lacks(name: str, row: Row = row, known: Mapping[str, object] = intervals) -> bool:
            other = name == "perplexity" and fluency is not None and row.language_model != fluency.name
            uncounted = name == "success" and not row.kept
            return not is_number(row.metrics.get(name)) or bool(samples and name not in known) or other or uncounted

        lacking = [name for name in metrics if lacks(name)]
        if not lacking:
            continue
        items = _items(bench, row)
        found = score(items, _in_order(items, texts.get(key, {}), row), lacking, fluency, samples)
        if samples:  # None: this metric has no interval
            found["intervals"] = {**intervals, **dict.fromkeys(lacking), **found["intervals"]}
            found["samples"] = samples
        row = row.scored(found)
        if any(name in found for name in lacking):
            append(file, [row.json()])
        yield row


def contrast(
    files: Sequence[Path],
    bench: Path,
    methods: Sequence[str],
    metrics: Sequence[str],
    samples: int = 1000,
    fluency: Fluency | None = None,
) -> tuple[list[Contrast], list[str]]:
    """(the first of `methods` minus each other one on every task both have done; why metrics are missing)."""
    if len(set(methods)) < len(methods) or len(methods) < 2:
        raise ValueError(f"'{','.join(methods)}' does not name two methods to compare; name the first, then others")
    rows, texts = _read(files, bench, metrics)
    there = list(dict.fromkeys(row.method for row in rows.values()))
    for name in methods:
        if name not in there:
            raise ValueError(f"no row has the method '{name}'; there are {', '.join(there) or 'no rows'}")
    pairs = [
        (key, other)
        for key, row in rows.items() if row.method == methods[0]
        for other, its in rows.items() if its.method in methods[1:] and its.filled_task == row.filled_task
    ]  # fmt: skip
    if not pairs:
        agree = ", ".join(asdict(next(iter(rows.values())).filled_task))
        raise ValueError(f"no two rows of {', '.join(methods)} agree in {agree}; fill the same items in as many steps")
    known: dict[Identity, Measured] = {}
    for key in dict.fromkeys(key for pair in pairs for key in pair):
        items = _items(bench, rows[key])
        known[key] = measure(items, _in_order(items, texts.get(key, {}), rows[key]), metrics, fluency)
    found: list[Contrast] = []
    missing: list[str] = []
    for key, other in pairs:
        differences, lacking = compare(known[key], known[other], samples)
        missing += lacking.values()
        about = asdict(key.filled_task) | {"first": key.method, "second": other.method}
        about |= {"model": key.model, "other": other.model}
        found += [Contrast(**about, metric=metric, **asdict(apart)) for metric, apart in differences.items()]
    return found, list(dict.fromkeys(missing))


def _read(files: Sequence[Path], bench: Path, metrics: Sequence[str]) -> tuple[dict[Identity, Row], Texts]:
    """(rows, texts by item) of files."""
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"there is no metric '{unknown[0]}'; there are {', '.join(METRICS)}")
    if not bench.is_dir():
        raise FileNotFoundError(f"there is no folder {bench}; give the --bench the rows were made with")
    of_rows = [file for file in files if not file.name.endswith(".texts.jsonl")]
    if not of_rows:
        belong = files[0].name.removesuffix(".texts.jsonl")
        raise ValueError(f"{files[0]} holds texts; give the rows they belong to, {belong}.jsonl")
    rows: dict[Identity, Row] = {}
    for line in read_rows(*of_rows):
        if is_measurement(line):
            row = parse(Row, line)
            rows[row.key] = rows[row.key].updated(row) if row.key in rows else row
    texts: dict[Identity, dict[str, str]] = {}
    for text in read_texts(of_rows):
        texts.setdefault(text.key, {})[text.id] = text.text
    return rows, texts


def _items(bench: Path, task: Task) -> list[Item]:
    return read_set(bench, task.dataset, task.split)[: task.items]


def _in_order(items: Sequence[Item], texts: Mapping[str, str], row: Row) -> list[str]:
    """The texts of a row, item by item."""
    lost = [item.id for item in items if item.id not in texts]
    if lost or len(items) < row.items:
        what = f"no text of item '{lost[0]}'" if lost else f"{row.items} items and the benchmark has {len(items)}"
        of = f"{row.method}, {row.dataset}, {row.task}"
        raise ValueError(f"the row {of} has {what}; give the --bench it was made with, or make it again")
    return [texts[item.id] for item in items]


def read_texts(files: Sequence[Path]) -> list[FilledText]:
    """The texts beside files of rows, each once: the last one counts."""
    found = {}
    for file in files:
        if file.is_file() and not texts_of(file).is_file():
            raise FileNotFoundError(f"no texts at {texts_of(file)}; ddot evaluate writes them beside the rows")
        for line in read_rows(texts_of(file)):
            text = parse(FilledText, line)
            found[text.key, text.id] = text
    return list(found.values())
