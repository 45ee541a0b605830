"""`ddot rescore` and `ddot compare`: more metrics for stored texts, and paired differences with intervals.

They need the rows and texts that `ddot evaluate` wrote and the benchmark items, but not the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ddot.evaluation.items import Item, read_set
from ddot.evaluation.metrics.scoring import METRICS, Fluency, compare, measure, score
from ddot.evaluation.rows import Contrast, FilledText, Identity, Row, is_number, merged, parse, refuse_unknown
from ddot.evaluation.store import append, mend, read_rows, texts_of

Texts = Mapping[Identity, Mapping[str, str]]  # by item


def rescore(
    file: Path, bench: Path, metrics: Sequence[str], samples: int = 0, fluency: Fluency | None = None
) -> Iterator[Row]:
    """Yield the rows that lacked one of the metrics, with it; they are also appended to the file.

    With `samples`, intervals too. Results of fewer samples or another language model are recomputed.
    """
    for path in (file, texts_of(file)):
        mend(path)
    rows, texts = _read([file], metrics)
    for row in rows.values():
        intervals = row.intervals or {} if (row.samples or 0) >= samples else {}

        def lacks(name: str, row: Row = row, known: Mapping[str, object] = intervals) -> bool:
            other_model = name == "perplexity" and fluency is not None and row.language_model != fluency.name
            uncounted = name == "success" and not row.kept
            uncertain = samples > 0 and name not in known
            return not is_number(row.metrics.get(name)) or uncertain or other_model or uncounted

        lacking = [name for name in metrics if lacks(name)]
        if not lacking:
            continue
        scores = score(*_filled(bench, row, texts), lacking, fluency, samples)
        if samples:  # None: this metric has no interval
            scores["intervals"] = {**intervals, **dict.fromkeys(lacking), **scores["intervals"]}
            scores["samples"] = samples
        row = row.updated(scores)
        if any(name in scores for name in lacking):
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
    """(the first method minus each of the others, for every task that both have filled; why metrics are missing)."""
    if len(set(methods)) < len(methods) or len(methods) < 2:
        raise ValueError(f"'{','.join(methods)}' does not name two methods to compare; name the first, then others")
    rows, texts = _read(files, metrics)
    refuse_unknown("no row has the method", methods, list(dict.fromkeys(row.method for row in rows.values())))
    pairs = [
        (key, other)
        for key, row in rows.items() if row.method == methods[0]
        for other, its in rows.items() if its.method in methods[1:] and its.filled_task == row.filled_task
    ]  # fmt: skip
    if not pairs:
        agree = ", ".join(asdict(next(iter(rows.values())).filled_task))
        raise ValueError(f"no two rows of {', '.join(methods)} agree in {agree}; fill the same items in as many steps")
    keys = dict.fromkeys(key for pair in pairs for key in pair)
    measured = {key: measure(*_filled(bench, rows[key], texts), metrics, fluency) for key in keys}
    contrasts: list[Contrast] = []
    missing: list[str] = []
    for key, other in pairs:
        differences, lacking = compare(measured[key], measured[other], samples)
        missing += lacking.values()
        pair = asdict(key.filled_task) | {"first": key.method, "second": other.method}
        pair |= {"model": key.model, "other": other.model}
        contrasts += [Contrast(**pair, metric=metric, **asdict(found)) for metric, found in differences.items()]
    return contrasts, list(dict.fromkeys(missing))


def _read(files: Sequence[Path], metrics: Sequence[str]) -> tuple[dict[Identity, Row], Texts]:
    refuse_unknown("unknown metric", metrics, METRICS)
    row_files = [file for file in files if not file.name.endswith(".texts.jsonl")]
    if not row_files:
        stem = files[0].name.removesuffix(".texts.jsonl")
        raise ValueError(f"{files[0]} holds texts; give the rows they belong to, {stem}.jsonl")
    return merged(read_rows(*row_files), lambda row: row.key), read_texts(row_files)


def _filled(bench: Path, row: Row, texts: Texts) -> tuple[list[Item], list[str]]:
    """(the items of a row, their texts)."""
    items, found = read_set(bench, row.dataset, row.split)[: row.items], texts.get(row.key, {})
    lost = [item.id for item in items if item.id not in found]
    if lost or len(items) < row.items:
        problem = f"no text of item '{lost[0]}'" if lost else f"{row.items} items and the benchmark has {len(items)}"
        name = f"{row.method}, {row.dataset}, {row.task}"
        raise ValueError(f"the row {name} has {problem}; give the --bench it was made with, or make it again")
    return items, [found[item.id] for item in items]


def read_texts(files: Sequence[Path]) -> Texts:
    """The texts beside files of rows; a later text of the same item replaces an earlier one."""
    texts: dict[Identity, dict[str, str]] = {}
    for file in files:
        if file.is_file() and not texts_of(file).is_file():
            raise FileNotFoundError(f"no texts at {texts_of(file)}; ddot evaluate writes them beside the rows")
        for text in (parse(FilledText, line) for line in read_rows(texts_of(file))):
            texts.setdefault(text.key, {})[text.id] = text.text
    return texts
