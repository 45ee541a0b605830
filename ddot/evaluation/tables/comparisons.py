"""Tables of contenders: published results beside ours, variants, sweeps, models, differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

from ddot.evaluation.contenders import CONTENDERS, contender, importance
from ddot.evaluation.rows import HEADS, UNFILLED, Contrast, Row, is_difference, parse
from ddot.evaluation.tables.lines import (
    LOWER_IS_BETTER,
    SETS,
    Line,
    budgets,
    cells,
    gather,
    in_order,
    is_own,
    model_name,
    naming,
    notes_of,
    number_format,
    of_own_model,
    rank,
    shortened,
    signed,
)
from ddot.evaluation.tables.page import EMPTY, Column, Table, bold, joined
from ddot.evaluation.tables.paper import paper_lines, paper_tables, printed

# Metrics that share a column.
PAIRS = (
    *(("bleu2", "bleu4"), ("nist2", "nist4"), ("gaps_found", "gaps_extra"), ("length_error", "length_error_abs")),
    ("fill_length_error", "fill_length_error_abs"),
)
BLOCKS, TEXTS = ("1bw-block", "yelp-block"), ("1bw-block", "yelp-block", "1bw-random", "yelp-random")
_QUALITY = ("bleu2", "bleu4", "success", "length_error", "length_error_abs")
_ROUGE = ("rouge1", "rouge2", "rougeL")
_LENGTHS = ("fill_length_error", "fill_length_error_abs", "fill_length_near", "fill_empty")
_SIMILAR = ("GPT-2 medium, prefix only", "SEDD medium", "DiffuGPT small", "DiffuGPT medium")


@dataclass(frozen=True)
class Comparison:
    """A table: its sets, metrics, task and contenders. `paper`: the name in paper_tables.json."""

    title: str
    sets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    paper: str | None = None
    theirs: Sequence[str] = ("LC", "DDOT-U")  # the paper's lines that short tables show; all if it has none of these
    task: str = "free"
    only: Callable[[str], bool] = lambda name: not contender(name).variant
    by_set: bool = False  # sets are lines instead of columns; all tasks
    notes: tuple[str, ...] = ()


def _variants(kind: str) -> Callable[[str], bool]:
    """Selects the variants of one kind, and their base contenders."""
    names = {entry.name for entry in CONTENDERS.values() if entry.variant == kind}
    bases = {base for base in CONTENDERS if any(name.startswith(base + "-") for name in names)}
    return lambda name: name in names or (name in bases and not contender(name).variant)


def _appendix(kind: str, title: str) -> Comparison:
    return Comparison(f"Variant: {title}", BLOCKS, _QUALITY, theirs=(), only=_variants(kind))


def _with_kept(name: str) -> bool:
    return contender(name).variant in ("", "kept")


_MOVING = (UNFILLED, "ddot-r", "ddot-u")
COMPARISONS = {
    "overview": Comparison("BLEU-2 / BLEU-4 on rebuilt test sets", TEXTS, ("bleu2", "bleu4")),
    "main": Comparison("Infilling on rebuilt test sets", (), (*_QUALITY, "seconds"), theirs=(), by_set=True),
    "outside": Comparison(
        "ROCStories: the third of five sentences, ours beside published figures", ("rocstories",), (*_ROUGE, *_LENGTHS),
        "outside", (*_SIMILAR, "DiffuLLaMA 7B"), "located", only=_with_kept,
        notes=("Published models (1,000 stories) are told the number of tokens; ours only where it says so.",),
    ),
    "people": Comparison(
        "Blanks of everyday texts", ("people",), ("nats", *_ROUGE, *_LENGTHS), theirs=(), task="located",
        only=_with_kept,
        notes=(
            "Nats: per token of the true words, of texts with one blank (ddot nats).",
            "The blanks of a text that was changed outside them count as empty.",
        ),
    ),
    "methods": Comparison("Methods on blocks", BLOCKS, (*_QUALITY[:3], "gaps_found", "gaps_extra", "length_error")),
    "located": Comparison("Blocks, told where words are missing", BLOCKS, _QUALITY, theirs=(), task="located"),
    "random": Comparison("Random infilling: 1 to 6 words given", paper="random"),
    "block": Comparison("Block infilling: one span of 0 to 32 words missing", paper="block"),
    "code": Comparison(
        "Code infilling", ("code-block",), ("bleu2", "bleu4", "codebleu", "success", "exact"), "code",
        notes=("Ours: other Python packages than the paper's.",),
    ),
    "ot": Comparison(
        "With and without optimal transport", paper="ot", only=lambda name: name in (*_MOVING, "no-ot", "no-ot-u")
    ),
    "sizes": Comparison("Sizes of the network", paper="sizes", only=lambda name: name in _MOVING),
    "diversity": Comparison("Diversity: distinct n-grams in percent", (), ("d2", "d4", "perplexity"), "diversity"),
    "leaps": _appendix("leaps", "τ-leaps instead of the most certain first"),
    "drawn": _appendix("drawn", "pads drawn instead of the likeliest"),
    "kept": _appendix("kept", "the given words kept by projection"),
}  # fmt: skip


def compare(name: str, rows: Sequence[Row], limit: int | None = None) -> Table:
    """One of `COMPARISONS`: the paper's lines, then ours, at most `limit` in all. None: all lines, of all tasks."""
    kind = COMPARISONS[name]
    numbers = paper_tables()[kind.paper] if kind.paper else {}
    sets = list(kind.sets or numbers.get("columns") or in_order((row.dataset for row in rows), SETS))
    metrics = [*(kind.metrics or numbers["metrics"])]
    metrics += ["meteor_nltk"] * (limit is None and "meteor" in metrics)
    shown = [row for row in rows if kind.only(row.method)]
    shown = [row for row in shown if limit is None or kind.by_set or row.task == kind.task or row.method == UNFILLED]
    columns = [(dataset, column) for dataset in sets for column in paired(metrics)]
    theirs = _published(kind, numbers.get("source", "paper"), columns, limit)
    lines = shortened(gather(of_own_model(shown), sets, metrics), None if limit is None else limit - len(theirs))
    if kind.by_set:
        body, heads = _by_set(sets, lines, metrics)[:limit], [Column(_head(column)) for column in paired(metrics)]
    else:
        values = (cells(lines, dataset, column) for dataset, column in columns)
        body = [*theirs, *zip(map(naming(lines), lines), *values, strict=True)]
        heads = [Column(_head(column), SETS.get(dataset, dataset) * (len(sets) > 1)) for dataset, column in columns]
    body += [("ours: no rows", *(EMPTY for _ in heads))] * (not lines)
    task = f" ({kind.task} task)" * (kind.task == "free" and not kind.by_set and limit is not None)
    return Table(name, kind.title + task, (Column(""), *heads), body, (*notes_of(lines, metrics, body), *kind.notes))


def _by_set(sets: Sequence[str], lines: Sequence[Line], metrics: Sequence[str]) -> list[Sequence[str]]:
    body: list[Sequence[str]] = []
    for dataset in sets:
        on_set = [line for line in lines if dataset in line.rows]
        name = naming(on_set, tasks=False)
        names = (f"{SETS.get(dataset, dataset)}, {line.row.task}: {name(line)}" for line in on_set)
        body += zip(names, *(cells(on_set, dataset, column) for column in paired(metrics)), strict=True)
    return body


def _head(column: Sequence[str]) -> str:
    heads = [HEADS.get(metric, metric) for metric in column]
    return heads[0] if heads[-1] == f"{heads[0]} ±" else "/".join(heads)


def paired(metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns of metrics: `PAIRS` share a column, others have their own."""
    remaining, columns = list(metrics), list[tuple[str, ...]]()
    while remaining:
        first = remaining[0]
        columns.append(next((pair for pair in PAIRS if pair[0] == first and pair[1] in remaining), (first,)))
        remaining = [metric for metric in remaining if metric not in columns[-1]]
    return columns


def _published(
    kind: Comparison, source: str, columns: Sequence[tuple[str, Sequence[str]]], limit: int | None
) -> list[Sequence[str]]:
    """The paper's lines for these columns; if it has no such table, its DDOT-U on each set."""
    if not kind.theirs:
        return []
    if kind.paper:
        every = paper_lines(kind.paper)
        lines = {model: line for model, line in every.items() if limit is None or model in kind.theirs} or every
    else:
        line = {
            x: values for table in ("code", "random", "block") for x, values in paper_lines(table)["DDOT-U"].items()
        }
        known = any(metric in line.get(dataset, {}) for dataset, column in columns for metric in column)
        lines = {"DDOT-U (another test sample)": line} if known else {}
    return [
        (f"{source}, {model}", *(_printed(line.get(dataset, {}), column) for dataset, column in columns))
        for model, line in lines.items()
    ]


def _printed(values: Mapping[str, Any], column: Sequence[str]) -> str:
    return joined([printed(values.get(metric)) for metric in column])


_SWEEPS = {
    "steps": (
        "Sampling steps: B2 / B4 / seconds",
        ("bleu2", "bleu4", "seconds"),
        "Seconds: ours per text, the paper's per batch of a size it does not state.",
    ),
    "lambda": (
        "Weight of the position loss, λ: B2 / B4 / SR",
        ("bleu2", "bleu4", "success"),
        "Our λ weighs a squared error in tokens: at 64 slots 1,024 times the paper's, which names no set.",
    ),
}


def sweep(name: str, rows: Sequence[Row], limit: int | None = None) -> Table:
    """A column for each number of sampling steps, or for each λ; a line for each contender and set."""
    title, metrics, note = _SWEEPS[name]
    theirs = paper_lines(name)
    swept = [row for row in rows if not (contender(row.method).stepless or contender(row.method).variant)]
    swept = [row for row in swept if limit is None or row.task == "free"]
    series: dict[tuple[object, ...], dict[Any, Line]] = {}
    for dataset in SETS:
        lines = gather(swept, [dataset], metrics)
        groups = budgets(lines)
        for line in lines:
            row = line.row
            same: tuple[object, ...] = (row.model,) if name == "steps" else (row.recipe, row.steps, groups[line.budget])
            x = row.steps if name == "steps" else row.position_factor
            if x is not None and row.method != UNFILLED:
                series.setdefault((dataset, row.method, row.task, row.split, row.items, *same), {})[x] = line
    ranked = sorted(
        (points for points in series.values() if len(points) > 1),
        key=lambda points: rank(next(iter(points.values())).row),
    )
    shown = ranked[: None if limit is None else limit - len(theirs)]
    every = [line for points in shown for line in points.values()]
    line_name = naming(every, steps=False)
    columns = sorted({*chain(*theirs.values(), *shown)})
    body: list[Sequence[str]] = [
        (f"paper, {model}".rstrip(", "), *(_printed(points.get(x, {}), metrics) for x in columns))
        for model, points in theirs.items()
    ]
    for points in shown:
        first = next(iter(points.values()))
        dataset = first.row.dataset
        on_set = [line for line in every if dataset in line.rows]
        values = dict(zip(on_set, cells(on_set, dataset, metrics), strict=True))
        label = line_name(first) if name == "steps" else contender(first.row.method).label
        body.append((f"{SETS[dataset]}: {label}", *(values[points[x]] if x in points else EMPTY for x in columns)))
    body += [("ours: no rows", *(EMPTY for _ in columns))] * (not shown)
    heads = (Column(""), *(Column(f"{x:g}", "steps" if name == "steps" else "λ") for x in columns))
    return Table(name, title, heads, body, (*notes_of(every, metrics, body), note))


_BUDGET = ("{}", "{:,}", "{:,.0f}", "{:g}")  # recipe, steps, seconds, λ


def models(rows: Sequence[Row], limit: int | None = None) -> Table:
    by_model: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (row.training_seconds is None, *rank(row))):
        if row.method != UNFILLED:
            by_model.setdefault(row.model, row)
    body = []
    for model, row in list(by_model.items())[:limit]:
        budget = (row.recipe, row.training_steps, row.training_seconds, row.position_factor)
        shown = (EMPTY if value is None else form.format(value) for value, form in zip(budget, _BUDGET, strict=True))
        body.append((model_name(model), *shown))
    heads = tuple(map(Column, ("model", "recipe", "training steps", "training seconds", "λ")))
    notes = ("Steps and seconds include those of the model a training started from.",)
    return Table("models", "Models and their training budgets", heads, body, notes)


# The fields of a contrast that make a cell; the others make a line.
_CELL = ("dataset", "metric", "difference", "low", "high", "wins")
_LINE = [field.name for field in fields(Contrast) if field.name not in _CELL]


def difference_tables(rows: Sequence[Mapping[str, Any]], limit: int | None = None) -> list[Table]:
    """One table, or none if no row is a difference. Bold: the interval excludes 0."""
    contrasts = [parse(Contrast, row) for row in rows if is_difference(row)]
    if not contrasts:
        return []
    lines: dict[tuple[Any, ...], list[Contrast]] = {}
    for contrast in contrasts:
        lines.setdefault(tuple(getattr(contrast, name) for name in _LINE), []).append(contrast)
    kept = sorted((line[0] for line in lines.values()), key=_by_importance)[:limit]
    shown = [line for line in lines.values() if line[0] in kept]
    sets = in_order((contrast.dataset for contrast in contrasts), SETS)
    metrics = dict.fromkeys(contrast.metric for contrast in contrasts)
    places = {(contrast.dataset, contrast.metric) for line in shown for contrast in line}
    columns = [(dataset, metric) for dataset in sets for metric in metrics if (dataset, metric) in places]
    differ = {name for name in _LINE if len({getattr(contrast, name) for contrast in kept}) > 1}
    body = []
    for line in shown:
        one, at = line[0], {(contrast.dataset, contrast.metric): contrast for contrast in line}
        parts = [" − ".join(contender(name).label for name in (one.first, one.second))]
        own = "" if _of_own_models(one) else ", ".join(map(model_name, (one.model, one.other)))
        parts += [own] * bool(own and ({"model", "other"} & differ)) + [one.task] * ("task" in differ)
        parts += [f"{one.steps} steps"] * ("steps" in differ) + [f"{one.split} split"] * (one.split != "test")
        parts += [f"n = {one.items}"] * ("items" in differ) + [f"seed {one.seed}"] * ("seed" in differ)
        body.append((", ".join(parts), *(_difference(at.get(column)) for column in columns)))
    heads = [Column(HEADS.get(m, m) + " ↓" * (m in LOWER_IS_BETTER), SETS.get(d, d)) for d, m in columns]
    notes = ["In brackets: 95% intervals of the paired bootstrap over items. Bold: the interval excludes 0."]
    notes += ["↓: lower is better."] * any(metric in LOWER_IS_BETTER for metric in metrics)
    return [Table("differences", "Differences on the same items", (Column(""), *heads), body, notes)]


def _of_own_models(contrast: Contrast) -> bool:
    """Whether both models were trained for their contenders."""
    return is_own(contrast.first, contrast.model) and is_own(contrast.second, contrast.other)


def _by_importance(contrast: Contrast) -> tuple[object, ...]:
    pair = (contrast.first, contrast.second)
    return any(contender(name).variant for name in pair), not _of_own_models(contrast), max(map(importance, pair))


def _difference(contrast: Contrast | None) -> str:
    if contrast is None:
        return EMPTY
    form = "+" + number_format(contrast.metric).lstrip("+")
    difference, low, high = (signed(value, form) for value in (contrast.difference, contrast.low, contrast.high))
    return f"{bold(difference) if contrast.low > 0 or contrast.high < 0 else difference} [{low}, {high}]"
