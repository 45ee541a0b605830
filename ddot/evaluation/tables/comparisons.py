"""Tables whose lines are contenders: the paper's results beside ours, ablations, variants, sweeps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ddot.evaluation.contenders import CONTENDERS, contender
from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.lines import SETS, Line, Naming, by_task, cells, gather, main_rows, model_name, notes_of
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Section, Table, cell, no_rows
from ddot.evaluation.tables.paper import paper_tables, paper_values, printed

# What is shown beside a metric of the paper's, where it was measured.
BESIDE = {"meteor": "meteor_nltk", "d4": "perplexity", "codebleu": "exact"}
# Metrics that share a column.
PAIRS = (
    *(("bleu2", "bleu4"), ("nist2", "nist4"), ("gaps_found", "gaps_extra"), ("length_error", "length_error_abs")),
    ("fill_length_error", "fill_length_error_abs"),
)
BLOCKS, TEXTS = ("1bw-block", "yelp-block"), ("1bw-block", "yelp-block", "1bw-random", "yelp-random")
_QUALITY = ("bleu2", "bleu4", "success", "length_error", "length_error_abs")
_FILLS = ("rouge1", "rouge2", "rougeL", "fill_length_error", "fill_length_error_abs", "fill_length_near", "fill_empty")


def _is_moving(name: str) -> bool:
    return name == UNFILLED or name.startswith("ddot-")


def _is_ablation(name: str) -> bool:
    return name in (UNFILLED, "ddot-r", "ddot-u") or name.startswith("no-ot")


def _has_variants(name: str) -> bool:
    return any(other.variant and other.name.startswith(name) for other in CONTENDERS.values())


@dataclass(frozen=True)
class Comparison:
    """A table: its sets, metrics and contenders. `paper`: the paper's table of the same numbers."""

    title: str
    sets: Sequence[str] = ()
    metrics: Sequence[str] = ()
    paper: str | None = None
    only: Callable[[str], bool] = lambda name: True
    variants: bool = False  # those of contenders too, and nothing without any
    by_set: bool = False  # a section for each set, not a column
    needs: str = ""  # tasks that this contender did not do are left out
    notes: tuple[str, ...] = ()


COMPARISONS = {
    "overview": Comparison("BLEU-2 / BLEU-4 on rebuilt test sets", TEXTS, ("bleu2", "bleu4")),
    "main": Comparison("Infilling on rebuilt test sets", (), (*_QUALITY, "seconds"), by_set=True),
    "methods": Comparison("Methods on blocks", BLOCKS, (*_QUALITY[:3], "gaps_found", "gaps_extra", "length_error")),
    "fills": Comparison("Blanks of everyday texts and stories", ("people", "rocstories"), _FILLS),
    "variants": Comparison("Variants of how tokens are revealed", BLOCKS, _QUALITY, only=_has_variants, variants=True),
    "random": Comparison("Random infilling: 1 to 6 words given", paper="random"),
    "block": Comparison("Block infilling: one span of 0 to 32 words missing", paper="block"),
    "code": Comparison("Code infilling", paper="code", notes=("Ours: other Python packages than the paper's.",)),
    "ot": Comparison("With and without optimal transport", paper="ot", only=_is_ablation, needs="no-ot"),
    "sizes": Comparison("Sizes of the network", paper="sizes", only=_is_moving),
    "diversity": Comparison("Diversity: distinct n-grams in percent", paper="diversity"),
}


def compare(name: str, rows: Sequence[Row]) -> Table:
    """One of `COMPARISONS`: the paper's lines, then ours for each task."""
    kind = COMPARISONS[name]
    numbers = paper_tables()[kind.paper] if kind.paper else {}
    present = {row.dataset for row in rows}
    sets = list(kind.sets or numbers.get("sets") or [*(d for d in SETS if d in present), *sorted(present - {*SETS})])
    metrics = list(kind.metrics or numbers["metrics"])
    metrics += [
        beside for metric, beside in BESIDE.items()
        if metric in metrics and any(row.dataset in sets and row.measure(beside) is not None for row in rows)
    ]  # fmt: skip
    chosen = [row for row in rows if kind.only(row.method) or (kind.variants and contender(row.method).variant)]
    done = {row.task for row in chosen if row.method == kind.needs}
    chosen = [row for row in chosen if row.task in done or not done]
    lines = gather(main_rows(chosen, kind.variants), sets, metrics)
    columns, naming = paired(metrics), Naming.of(lines)
    if kind.by_set:
        sections, heads = _by_set(sets, lines, columns, naming), [Column(_head(column)) for column in columns]
    else:
        places = [(dataset, column) for dataset in sets for column in columns]
        heads = [Column(_head(column), SETS.get(dataset, dataset)) for dataset, column in places]
        sections = _papers_sections(numbers, columns) if numbers else _papers_line(places)
        for task, some in by_task(lines):
            sections.append(Section(", ".join(filter(None, ("ours", task))), _ours(some, naming, places)))
    if not lines:
        sections.append(no_rows(1 + len(heads)))
    notes = (*notes_of(lines, metrics, sections), *kind.notes)
    return Table(name, kind.title, (Column(""), *heads), tuple(sections), notes)


def _by_set(
    sets: Sequence[str], lines: Sequence[Line], columns: Sequence[Sequence[str]], naming: Naming
) -> list[Section]:
    sections = []
    for dataset in sets:
        places = [(dataset, column) for column in columns]
        for task, some in by_task([line for line in lines if dataset in line.rows]):
            theirs = [line for section in _papers_line(places) for line in section.lines] if task == "free" else []
            title = f"{SETS.get(dataset, dataset)}, {task}"
            sections.append(Section(title, (*theirs, *_ours(some, naming, places))))
    return sections


def _head(column: Sequence[str]) -> str:
    heads = [HEADS.get(metric, metric) for metric in column]
    return heads[0] if heads[-1] == f"{heads[0]} ±" else "/".join(heads)


def _ours(
    lines: Sequence[Line], naming: Naming, places: Sequence[tuple[str, Sequence[str]]]
) -> tuple[tuple[Cell, ...], ...]:
    """The cells of lines, their names first."""
    names = [cell(naming.name(line)) for line in lines]
    return tuple(zip(names, *(cells(lines, dataset, metrics) for dataset, metrics in places), strict=True))


def paired(metrics: Iterable[str]) -> list[tuple[str, ...]]:
    """The columns of metrics: pairs of `PAIRS` together, others alone."""
    left, columns = list(metrics), list[tuple[str, ...]]()
    while left:
        columns.append(next((pair for pair in PAIRS if pair[0] == left[0] and pair[1] in left), (left[0],)))
        left = [metric for metric in left if metric not in columns[-1]]
    return columns


def papers(values: Mapping[str, Any], column: Sequence[str]) -> str:
    """The paper's values under one column."""
    shown = [printed(values.get(metric)) for metric in column]
    return EMPTY if set(shown) == {EMPTY} else " / ".join(shown)


def _papers_sections(numbers: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> list[Section]:
    """The paper's lines, under the kinds of models it has."""
    sections = []
    for title, rows in groupby(numbers["rows"], key=lambda row: row["section"]):
        lines = []
        for row in rows:
            values = [dict(zip(numbers["metrics"], found, strict=True)) for found in row["values"]]
            lines.append((cell(row["model"]), *(cell(papers(value, column)) for value in values for column in columns)))
        sections.append(Section(f"paper, {title}", tuple(lines)))
    return sections


def _papers_line(places: Sequence[tuple[str, Sequence[str]]]) -> list[Section]:
    """The paper's DDOT-U under these columns, if it has any of them."""
    shown = [papers(_papers_ddot_u(dataset), column) for dataset, column in places]
    line = (cell("paper, DDOT-U (another test sample)"), *map(cell, shown))
    return [Section("", (line,))] if set(shown) != {EMPTY} else []


def _papers_ddot_u(dataset: str) -> dict[str, Any]:
    tables = [name for name in ("block", "random", "code") if dataset in paper_tables()[name]["sets"]]
    return paper_values(tables[0], "DDOT-U", dataset) if tables else {}


_BUDGET = ("{}", "{:,}", "{:,.0f}", "{:g}")  # recipe, steps, seconds, λ


def models_table(rows: Sequence[Row]) -> Table:
    """Every model with its training budget."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.method != UNFILLED and (row.model not in found or found[row.model].training_seconds is None):
            found[row.model] = row
    lines = []
    for model, row in sorted(found.items()):
        said = (row.recipe, row.training_steps, row.training_seconds, row.position_factor)
        shown = (EMPTY if value is None else form.format(value) for value, form in zip(said, _BUDGET, strict=True))
        lines.append((cell(model_name(model)), *map(cell, shown)))
    heads = tuple(map(Column, ("model", "recipe", "training steps", "training seconds", "λ")))
    notes = ("Steps and seconds include those of the model a training started from.",)
    return Table("models", "Models and their training budgets", heads, (Section("", tuple(lines)),), notes)
