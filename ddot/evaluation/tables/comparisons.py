"""Tables whose lines are contenders: published results beside ours, ablations, variants, sweeps, models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddot.evaluation.contenders import CONTENDERS, contender
from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.lines import (
    SETS,
    Line,
    Naming,
    budgets,
    cells,
    gather,
    model_name,
    notes_of,
    of_own_model,
    rank,
    shortened,
)
from ddot.evaluation.tables.page import EMPTY, Column, Table, joined
from ddot.evaluation.tables.paper import paper_tables, paper_values, printed

# Metrics that share a column.
PAIRS = (
    *(("bleu2", "bleu4"), ("nist2", "nist4"), ("gaps_found", "gaps_extra"), ("length_error", "length_error_abs")),
    ("fill_length_error", "fill_length_error_abs"),
)
BLOCKS, TEXTS = ("1bw-block", "yelp-block"), ("1bw-block", "yelp-block", "1bw-random", "yelp-random")
_QUALITY = ("bleu2", "bleu4", "success", "length_error", "length_error_abs")
_ROUGE = ("rouge1", "rouge2", "rougeL")
_LENGTHS = ("fill_length_error", "fill_length_error_abs", "fill_length_near", "fill_empty")
_SIMILAR = ("GPT-2 medium, prefix only", "SEDD small", "SEDD medium", "DiffuGPT small", "DiffuGPT medium", "LLaMA2 7B")


@dataclass(frozen=True)
class Comparison:
    """A table: its sets, metrics, task and contenders. `paper`: a table in paper_tables.json of the same numbers."""

    title: str
    sets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    paper: str | None = None
    theirs: Sequence[str] = ("LC", "DDOT-U")  # the paper's lines that are always shown; all if it has none of them
    task: str = "free"
    only: Callable[[str], bool] = lambda name: not contender(name).variant
    by_set: bool = False  # a line, not a column, for each set; all tasks
    notes: tuple[str, ...] = ()


def _variants(kind: str) -> Callable[[str], bool]:
    """The variants of one kind, and what they are variants of."""
    names = {one.name for one in CONTENDERS.values() if one.variant == kind}
    bases = {base for base in CONTENDERS if any(name.startswith(base + "-") for name in names)}
    return lambda name: name in names or (name in bases and not contender(name).variant)


def _appendix(kind: str, title: str) -> Comparison:
    return Comparison(f"Variant: {title}", BLOCKS, _QUALITY, theirs=(), only=_variants(kind))


_MOVING = (UNFILLED, "ddot-r", "ddot-u")
COMPARISONS = {
    "overview": Comparison("BLEU-2 / BLEU-4 on rebuilt test sets", TEXTS, ("bleu2", "bleu4")),
    "main": Comparison("Infilling on rebuilt test sets", (), (*_QUALITY, "seconds"), theirs=(), by_set=True),
    "outside": Comparison(
        "ROCStories: the third of five sentences, ours beside published figures", ("rocstories",), (*_ROUGE, *_LENGTHS),
        "outside", (*_SIMILAR, "DiffuLLaMA 7B"), "located",
        notes=("Published models (1,000 stories) are told the number of tokens; ours only where it says so.",),
    ),
    "people": Comparison(
        "Blanks of everyday texts", ("people",), ("nats", *_ROUGE, *_LENGTHS), theirs=(), task="located",
        notes=("Nats: per token of the true words, of texts with one blank (ddot nats).",),
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


def compare(name: str, rows: Sequence[Row], room: int | None = None) -> Table:
    """One of `COMPARISONS`: the paper's lines, then ours, `room` in all. None: all lines, of all tasks."""
    kind = COMPARISONS[name]
    numbers = paper_tables()[kind.paper] if kind.paper else {}
    present = {row.dataset for row in rows}
    sets = list(kind.sets or numbers.get("sets") or [*(d for d in SETS if d in present), *sorted(present - {*SETS})])
    metrics = [*(kind.metrics or numbers["metrics"])]
    metrics += ["meteor_nltk"] * (room is None and "meteor" in metrics)
    done = [row for row in rows if kind.only(row.method)]
    done = [row for row in done if room is None or kind.by_set or row.task == kind.task or row.method == UNFILLED]
    places = [(dataset, column) for dataset in sets for column in paired(metrics)]
    theirs = _published(kind, numbers, places, room)
    lines = shortened(gather(of_own_model(done), sets, metrics), None if room is None else room - len(theirs))
    naming = Naming.of(lines)
    if kind.by_set:
        body, heads = _by_set(sets, lines, metrics, room), [Column(_head(column)) for column in paired(metrics)]
    else:
        columns = (cells(lines, dataset, column) for dataset, column in places)
        body = [*theirs, *zip(map(naming.name, lines), *columns, strict=True)]
        heads = [Column(_head(column), SETS.get(dataset, dataset) * (len(sets) > 1)) for dataset, column in places]
    body += [("ours: no rows", *(EMPTY for _ in heads))] * (not lines)
    task = f" ({kind.task} task)" * (kind.task == "free" and not kind.by_set and room is not None)
    return Table(name, kind.title + task, (Column(""), *heads), body, (*notes_of(lines, metrics, body), *kind.notes))


def _by_set(
    sets: Sequence[str], lines: Sequence[Line], metrics: Sequence[str], room: int | None
) -> list[Sequence[str]]:
    body: list[Sequence[str]] = []
    for dataset in sets:
        some = [line for line in lines if dataset in line.rows]
        naming = Naming.of(some, tasks=False)
        names = (f"{SETS.get(dataset, dataset)}, {line.row.task}: {naming.name(line)}" for line in some)
        body += zip(names, *(cells(some, dataset, column) for column in paired(metrics)), strict=True)
    return body[:room]


def _head(column: Sequence[str]) -> str:
    heads = [HEADS.get(metric, metric) for metric in column]
    return heads[0] if heads[-1] == f"{heads[0]} ±" else "/".join(heads)


def paired(metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns of metrics: pairs of `PAIRS` together, others alone."""
    left, columns = list(metrics), list[tuple[str, ...]]()
    while left:
        columns.append(next((pair for pair in PAIRS if pair[0] == left[0] and pair[1] in left), (left[0],)))
        left = [metric for metric in left if metric not in columns[-1]]
    return columns


def _published(
    kind: Comparison, numbers: Mapping[str, Any], places: Sequence[tuple[str, Sequence[str]]], room: int | None
) -> list[Sequence[str]]:
    """The paper's lines under these columns; without a table of its own, its DDOT-U on each set."""
    if not kind.theirs:
        return []
    if not numbers:
        tables = {dataset: name for name in ("code", "random", "block") for dataset in paper_tables()[name]["sets"]}
        values = {dataset: paper_values(tables.get(dataset, "block"), "DDOT-U", dataset) for dataset, _ in places}
        known = any(metric in values[dataset] for dataset, column in places for metric in column)
        found = {"DDOT-U (another test sample)": values} if known else {}
    else:
        models = [row["model"] for row in numbers["rows"]]
        models = [m for m in models if room is None or m in kind.theirs] or models
        found = {m: {dataset: paper_values(str(kind.paper), m, dataset) for dataset, _ in places} for m in models}
    source = numbers.get("source", "paper")
    return [
        (f"{source}, {model}", *(papers(values[dataset], column) for dataset, column in places))
        for model, values in found.items()
    ]


def papers(values: Mapping[str, Any], column: Sequence[str]) -> str:
    """The paper's values under one column."""
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


def sweep(name: str, rows: Sequence[Row], room: int | None = None) -> Table:
    """A column for each number of sampling steps, or for each λ; a line for each contender and set."""
    title, metrics, note = _SWEEPS[name]
    theirs = _papers_sweep(name)
    swept = [row for row in rows if not (contender(row.method).stepless or contender(row.method).variant)]
    if room is not None:
        swept = [row for row in swept if row.task == "free"]
    series: dict[tuple[object, ...], dict[Any, Line]] = {}
    for dataset in SETS:
        lines = gather(swept, [dataset], metrics)
        close = budgets(lines)
        for line in lines:
            row = line.row
            same: tuple[object, ...] = (row.model,) if name == "steps" else (row.recipe, row.steps, close[line.budget])
            x = row.steps if name == "steps" else row.position_factor
            if x is not None and row.method != UNFILLED:
                series.setdefault((dataset, row.method, row.task, row.split, row.items, *same), {})[x] = line
    longest = [key for key, points in series.items() if len(points) > 1]
    longest.sort(key=lambda key: rank(next(iter(series[key].values())).row))
    shown = {key: series[key] for key in longest[: None if room is None else room - len(theirs)]}
    every = [line for points in shown.values() for line in points.values()]
    naming = Naming.of(every, steps=False)
    columns = sorted({x for points in [*map(set, theirs.values()), *map(set, shown.values())] for x in points})
    body: list[Sequence[str]] = [
        (f"paper, {model}".rstrip(", "), *(papers(points.get(x, {}), metrics) for x in columns))
        for model, points in theirs.items()
    ]
    for points in shown.values():
        first = next(iter(points.values()))
        place = first.row.dataset
        beside = [line for line in every if place in line.rows]
        made = dict(zip(beside, cells(beside, place, metrics), strict=True))
        label = naming.name(first) if name == "steps" else contender(first.row.method).label
        found = (made[points[x]] if x in points else EMPTY for x in columns)
        body.append((f"{SETS[place]}: {label}", *found))
    body += [("ours: no rows", *(EMPTY for _ in columns))] * (not shown)
    heads = (Column(""), *(Column(f"{x:g}", "steps" if name == "steps" else "λ") for x in columns))
    return Table(name, title, heads, body, (*notes_of(every, metrics, body), note))


def _papers_sweep(name: str) -> dict[str, dict[Any, Mapping[str, Any]]]:
    """Model → {steps or λ: values}."""
    numbers = paper_tables()[name]
    if name == "lambda":
        pairs = ((row["lambda"], dict(zip(numbers["metrics"], row["values"], strict=True))) for row in numbers["rows"])
        return {"": dict(pairs)}
    keys = {"bleu2": "bleu2", "bleu4": "bleu4", "seconds": "seconds_per_batch"}
    return {
        row["model"]: {x: {m: row[key][i] for m, key in keys.items()} for i, x in enumerate(numbers["steps"])}
        for row in numbers["rows"]
    }


_BUDGET = ("{}", "{:,}", "{:,.0f}", "{:g}")  # recipe, steps, seconds, λ


def models(rows: Sequence[Row], room: int | None = None) -> Table:
    """Every model with its training budget."""
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (row.training_seconds is None, *rank(row))):
        if row.method != UNFILLED:
            found.setdefault(row.model, row)
    body = []
    for model, row in list(found.items())[:room]:
        said = (row.recipe, row.training_steps, row.training_seconds, row.position_factor)
        shown = (EMPTY if value is None else form.format(value) for value, form in zip(said, _BUDGET, strict=True))
        body.append((model_name(model), *shown))
    heads = tuple(map(Column, ("model", "recipe", "training steps", "training seconds", "λ")))
    notes = ("Steps and seconds include those of the model a training started from.",)
    return Table("models", "Models and their training budgets", heads, body, notes)
