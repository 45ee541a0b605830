"""Tables whose lines are contenders: published results beside ours, variants, sweeps, models, differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Any

from ddot.evaluation.contenders import CONTENDERS, contender, importance
from ddot.evaluation.rows import HEADS, UNFILLED, Contrast, Row, is_difference, parse
from ddot.evaluation.tables.lines import (
    LOWER_IS_BETTER,
    SETS,
    Line,
    Naming,
    budgets,
    cells,
    gather,
    model_name,
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
        only=lambda name: contender(name).variant in ("", "kept"),
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


def compare(name: str, rows: Sequence[Row], room: int | None = None) -> Table:
    """One of `COMPARISONS`: the paper's lines, then ours, `room` in all. None: all lines, of all tasks."""
    kind = COMPARISONS[name]
    numbers = paper_tables()[kind.paper] if kind.paper else {}
    present = {row.dataset for row in rows}
    sets = list(kind.sets or numbers.get("columns") or [*(d for d in SETS if d in present), *sorted(present - {*SETS})])
    metrics = [*(kind.metrics or numbers["metrics"])]
    metrics += ["meteor_nltk"] * (room is None and "meteor" in metrics)
    done = [row for row in rows if kind.only(row.method)]
    done = [row for row in done if room is None or kind.by_set or row.task == kind.task or row.method == UNFILLED]
    places = [(dataset, column) for dataset in sets for column in paired(metrics)]
    theirs = _published(kind, numbers.get("source", "paper"), places, room)
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
    kind: Comparison, source: str, places: Sequence[tuple[str, Sequence[str]]], room: int | None
) -> list[Sequence[str]]:
    """The paper's lines under these columns; without a table of its own, its DDOT-U on each set."""
    if not kind.theirs:
        return []
    if kind.paper:
        every = paper_lines(kind.paper)
        found = {model: line for model, line in every.items() if room is None or model in kind.theirs} or every
    else:
        line = {
            x: values for table in ("code", "random", "block") for x, values in paper_lines(table)["DDOT-U"].items()
        }
        known = any(metric in line.get(dataset, {}) for dataset, column in places for metric in column)
        found = {"DDOT-U (another test sample)": line} if known else {}
    return [
        (f"{source}, {model}", *(papers(line.get(dataset, {}), column) for dataset, column in places))
        for model, line in found.items()
    ]


def papers(values: Mapping[str, Any], column: Sequence[str]) -> str:
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
    theirs = paper_lines(name)
    swept = [row for row in rows if not (contender(row.method).stepless or contender(row.method).variant)]
    swept = [row for row in swept if room is None or row.task == "free"]
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


_BUDGET = ("{}", "{:,}", "{:,.0f}", "{:g}")  # recipe, steps, seconds, λ


def models(rows: Sequence[Row], room: int | None = None) -> Table:
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


_PLACE = ("dataset", "metric", "difference", "low", "high", "wins")  # what a cell is; the rest is a line
_OF_LINE = [each.name for each in fields(Contrast) if each.name not in _PLACE]


def difference_tables(rows: Sequence[Mapping[str, Any]], room: int | None = None) -> list[Table]:
    """One table, or none where no line is a difference. Bold: the interval excludes 0."""
    found = [parse(Contrast, row) for row in rows if is_difference(row)]
    if not found:
        return []
    lines: dict[tuple[Any, ...], dict[tuple[str, str], Contrast]] = {}
    for each in found:
        lines.setdefault(tuple(getattr(each, name) for name in _OF_LINE), {})[each.dataset, each.metric] = each
    kept = sorted((next(iter(line.values())) for line in lines.values()), key=_by_importance)[:room]
    shown = {key: line for key, line in lines.items() if next(iter(line.values())) in kept}
    sets, metrics = dict.fromkeys(each.dataset for each in found), dict.fromkeys(each.metric for each in found)
    known = [name for name in SETS if name in sets] + sorted(set(sets) - set(SETS))
    places = [(d, m) for d in known for m in metrics if any((d, m) in line for line in shown.values())]
    differ = {name for name in _OF_LINE if len({getattr(each, name) for each in kept}) > 1}
    body = []
    for line in shown.values():
        one = next(iter(line.values()))
        parts = [" − ".join(contender(name).label for name in (one.first, one.second))]
        own = "" if _of_own_models(one) else ", ".join(map(model_name, (one.model, one.other)))
        parts += [own] * bool(own and ({"model", "other"} & differ)) + [one.task] * ("task" in differ)
        parts += [f"{one.steps} steps"] * ("steps" in differ) + [f"{one.split} split"] * (one.split != "test")
        parts += [f"n = {one.items}"] * ("items" in differ) + [f"seed {one.seed}"] * ("seed" in differ)
        body.append((", ".join(parts), *(_difference(line.get(place)) for place in places)))
    heads = [Column(HEADS.get(m, m) + " ↓" * (m in LOWER_IS_BETTER), SETS.get(d, d)) for d, m in places]
    notes = ["In brackets: 95% intervals of the paired bootstrap over items. Bold: the interval excludes 0."]
    notes += ["↓: lower is better."] * any(metric in LOWER_IS_BETTER for metric in metrics)
    return [Table("differences", "Differences on the same items", (Column(""), *heads), body, notes)]


def _of_own_models(one: Contrast) -> bool:
    """Whether both models were trained for their contenders."""
    pairs = ((one.first, one.model), (one.second, one.other))
    return all(contender(name).recipe == PurePath(model).name for name, model in pairs)


def _by_importance(one: Contrast) -> tuple[object, ...]:
    variant = any(contender(name).variant for name in (one.first, one.second))
    return variant, not _of_own_models(one), max(importance(one.first), importance(one.second))


def _difference(found: Contrast | None) -> str:
    if found is None:
        return EMPTY
    form = "+" + number_format(found.metric).lstrip("+")
    difference, low, high = (signed(value, form) for value in (found.difference, found.low, found.high))
    return f"{bold(difference) if found.low > 0 or found.high < 0 else difference} [{low}, {high}]"
