"""Tables over a number that was varied: sampling steps, and λ."""

from collections.abc import Sequence
from typing import Any

from ddot.evaluation.contenders import contender
from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.comparisons import paired, papers
from ddot.evaluation.tables.lines import SETS, Line, Naming, by_task, cells, gather, notes_of
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Section, Table, cell, no_rows
from ddot.evaluation.tables.paper import paper_tables, printed

_OVER_STEPS = (("seconds a text", "seconds"), ("B2", "bleu2"), ("B4", "bleu4"))


def steps_table(rows: Sequence[Row]) -> Table:
    """Time and BLEU against the number of steps, for contenders measured at several."""
    numbers = paper_tables()["steps"]
    times: dict[tuple[str, ...], set[int]] = {}
    for row in rows:
        times.setdefault((row.dataset, row.method, row.model, row.task), set()).add(row.steps)
    swept = [row for row in rows if _varies(row) and len(times[row.dataset, row.method, row.model, row.task]) > 1]
    counts = sorted({*numbers["steps"], *(row.steps for row in swept)})
    sections = []
    for theirs in numbers["rows"]:
        body = []
        for name, key in (("seconds a batch", "seconds_per_batch"), ("B2", "bleu2"), ("B4", "bleu4")):
            at = dict(zip(numbers["steps"], theirs[key], strict=True))
            body.append((cell(name), *(cell(printed(at.get(count))) for count in counts)))
        sections.append(Section(f"paper, {theirs['model']}", tuple(body)))
    shown: list[Line] = []
    present = {row.dataset for row in swept}
    for dataset in [*(name for name in SETS if name in present), *sorted(present - {*SETS})]:
        lines = gather(swept, [dataset])
        naming = Naming.of(lines, steps=False)
        for task, some in by_task(lines):
            sections += _over_steps(f"{task}, {SETS.get(dataset, dataset)}", dataset, some, naming, counts)
        shown += lines
    if not shown:
        sections.append(no_rows(1 + len(counts)))
    heads = (Column(""), *(Column(str(count), "steps") for count in counts))
    notes = (*notes_of(shown, ("seconds",), sections), "The paper does not state its batch.")
    return Table("steps", "Sampling steps against time and BLEU", heads, tuple(sections), notes)


def _varies(row: Row) -> bool:
    one = contender(row.method)
    return not (one.stepless or one.variant)


def _over_steps(title: str, dataset: str, lines: Sequence[Line], naming: Naming, counts: list[int]) -> list[Section]:
    """A section for each contender and model: seconds, B2 and B4 in a column for each number of steps."""
    columns = {metric: cells(lines, dataset, (metric,)) for _, metric in _OVER_STEPS}
    groups: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(lines):
        groups.setdefault((naming.name(line), line.row.model), []).append(place)
    sections = []
    for (name, _), places in groups.items():
        at = {lines[place].row.steps: place for place in places}
        body = [
            (cell(head), *(columns[metric][at[count]] if count in at else cell(EMPTY) for count in counts))
            for head, metric in _OVER_STEPS
        ]
        sections.append(Section(f"ours, {title}: {name}", tuple(body)))
    return sections


def lambda_table(rows: Sequence[Row]) -> Table:
    """λ against the metrics, for contenders with models that differ in λ alone."""
    numbers = paper_tables()["lambda"]
    metrics = [*numbers["metrics"], "success"]
    columns = paired(metrics)
    theirs = []
    for row in numbers["rows"]:
        values = dict(zip(numbers["metrics"], row["values"], strict=True))
        theirs.append((cell(str(row["lambda"])), *(cell(papers(values, column)) for column in columns)))
    sections, shown = [Section("paper", tuple(theirs))], list[Line]()
    known = [row for row in rows if row.position_factor is not None and row.method != UNFILLED]
    for dataset in SETS:
        for task, some in by_task(gather(known, [dataset], metrics)):
            if lines := [line for line in some if any(_differ_in_factor(line, other) for other in some)]:
                shown += lines
                sections.append(Section(f"ours, {task}, {SETS[dataset]}", _over_factors(dataset, lines, columns)))
    if not shown:
        sections.append(no_rows(1 + len(columns)))
    heads = (Column("λ"), *(Column("/".join(HEADS[metric] for metric in column)) for column in columns))
    notes = (
        *notes_of(shown, metrics, sections),
        *("Our λ weighs a squared error in tokens: at 64 slots 1,024 times the paper's.",) * bool(shown),
        "The paper does not say on which set it varied λ.",
    )
    return Table("lambda", "Weight of the position loss, λ", heads, tuple(sections), notes)


def _over_factors(
    dataset: str, lines: Sequence[Line], columns: Sequence[Sequence[str]]
) -> tuple[tuple[Cell, ...], ...]:
    ordered = sorted(lines, key=lambda line: (line.row.method, line.row.steps, _factor(line)))
    names = [cell(f"{_factor(line):g}, {contender(line.row.method).label}") for line in ordered]

    def alike(line: Line) -> object:
        return line.row.method, line.row.steps

    return tuple(zip(names, *(cells(ordered, dataset, column, alike) for column in columns), strict=True))


def _differ_in_factor(one: Line, other: Line) -> bool:
    def same(line: Line) -> tuple[Any, ...]:
        row = line.row
        return row.method, row.recipe, row.split, row.steps, row.items

    close = one.budget is None or other.budget is None or abs(one.budget - other.budget) <= other.budget / 10
    return _factor(one) != _factor(other) and same(one) == same(other) and close


def _factor(line: Line) -> float:
    return float(line.row.position_factor or 0)
