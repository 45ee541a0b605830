"""Tables over a number that is varied: sampling steps, and λ."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ddot.evaluation.rows import HEADS, UNFILLED, Row
from ddot.evaluation.tables.comparisons import paired, papers
from ddot.evaluation.tables.lines import SETS, Line, best, gather, measured_cells, task_lines, trained_as_long
from ddot.evaluation.tables.naming import Naming, clocks
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Piece, Section, Table, cell, no_rows
from ddot.evaluation.tables.paper import paper_tables, printed

PAPERS_SET = "1bw-block"  # of the table over steps, by its numbers at 64


def steps_table(rows: Sequence[Row]) -> Table:
    """Time and BLEU against the number of steps: the paper's set, and others on which steps were varied."""
    numbers = paper_tables()["steps"]
    sets = _varied(rows)
    shown = [row for row in rows if row["dataset"] in sets and row["method"] != UNFILLED]
    taken = {row["steps"] for row in shown}
    counts = sorted({*numbers["steps"], *taken})
    sections = []
    for row in numbers["rows"]:
        theirs = []
        for name, key in (("seconds a batch", "seconds_per_batch"), ("B2", "bleu2"), ("B4", "bleu4")):
            at = dict(zip(numbers["steps"], row[key], strict=True))
            theirs.append((cell(name), *(cell(printed(at.get(count))) for count in counts)))
        sections.append(Section(f"paper, {row['model']}", tuple(theirs)))
    found = {dataset: _swept(gather(rows, [dataset])) for dataset in sets}
    lines = [line for some in found.values() for line in some]
    naming = replace(Naming.of(lines, timed=True), steps=False)  # the columns say them
    for dataset, here in found.items():
        for title, some in task_lines(here):
            sections += _over_steps(dataset, title, some, naming, counts)
    if not lines:
        sections.append(no_rows(1 + len(counts)))
    notes = replace(Naming.of(lines), steps=True).notes(lines, sections)
    batch = "The paper's batch is not stated, so its seconds are not seconds a text."
    heads = (Column(str(count), "steps") for count in counts)
    return Table(
        "steps",
        "Sampling steps against time and BLEU",
        (Column(""), *heads),
        tuple(sections),
        (*notes, *clocks(lines), batch),
    )


def _varied(rows: Sequence[Row]) -> list[str]:
    """The paper's set if there are rows of it, and the sets with a method at more than one number of steps."""
    found: dict[str, dict[Any, set[Any]]] = {}
    for row in rows:
        if row["method"] != UNFILLED:
            found.setdefault(row["dataset"], {}).setdefault((row["method"], row["model"]), set()).add(row["steps"])
    return [
        dataset for dataset, steps in sorted(found.items(), key=lambda item: item[0] != PAPERS_SET)
        if dataset == PAPERS_SET or any(len(counts) > 1 for counts in steps.values())
    ]  # fmt: skip


def _swept(lines: Sequence[Line]) -> list[Line]:
    """Lines of ways that have several numbers of steps, and of the unfilled prompt; all of them where no way has."""
    found: dict[tuple[str, ...], set[int | None]] = {}
    for line in lines:
        found.setdefault((line.method, line.model, line.task), set()).add(line.steps)
    several = {way for way, steps in found.items() if len(steps) > 1}
    return [
        line for line in lines
        if not several or line.method == UNFILLED or (line.method, line.model, line.task) in several
    ]  # fmt: skip


def _over_steps(dataset: str, title: str, lines: Sequence[Line], naming: Naming, counts: list[int]) -> list[Section]:
    """A section for each line but for its steps: seconds, B2 and B4 in a column for each number of steps."""
    tops = {metric: best(lines, dataset, metric) for metric in ("bleu2", "bleu4")}
    places: dict[tuple[str, str], list[int]] = {}  # folders of one name are two models
    for place, line in enumerate(lines):
        places.setdefault((naming.name(line), line.model), []).append(place)
    task = title.partition(":")[0]
    sections = []
    for (name, _), some in places.items():
        body = []
        for head, metric in (("seconds a text", "seconds"), ("B2", "bleu2"), ("B4", "bleu4")):
            cells: dict[int | None, Cell] = {}
            for place in some:
                found = lines[place].measure(dataset, metric)
                if found is not None:
                    cells[lines[place].steps] = (Piece(found.text(metric), place in tops.get(metric, ())),)
            # The unfilled prompt (no steps) is what it is after any number of them, and takes no time.
            same = cells.get(None, cell(EMPTY))
            if not (lines[some[0]].method == UNFILLED and metric == "seconds"):
                body.append((cell(head), *(cells.get(count, same) for count in counts)))
        sections.append(Section(f"{task}, {SETS.get(dataset, dataset)}: {name}", tuple(body)))
    return sections


_UNITS = (
    "Our λ weighs a squared error in tokens, which at 64 slots is 1,024 times the paper's, by `TokenUnitWeight`.",
)


def lambda_table(rows: Sequence[Row]) -> Table:
    """λ against the metrics: ours from rows that say `position_factor`, of ways that have more than one λ on a set,
    by models that were trained as long by the same recipe. Success is ours alone."""
    numbers = paper_tables()["lambda"]
    columns = paired([*numbers["metrics"], "success"])
    theirs = []
    for row in numbers["rows"]:
        values = dict(zip(numbers["metrics"], row["values"], strict=True))
        theirs.append((cell(str(row["lambda"])), *(cell(papers(values, column)) for column in columns)))
    sections = [Section("paper", tuple(theirs))]
    swept = [row for row in rows if row.get("position_factor") is not None and row["method"] != UNFILLED]
    shown: list[Line] = []
    for dataset in [name for name in SETS if any(row["dataset"] == name for row in swept)]:
        for title, every in task_lines(gather(swept, [dataset])):
            if lines := [line for line in every if any(_differ_in_factor(line, other) for other in every)]:
                shown += lines
                sections.append(_over_factors(f"{title.partition(':')[0]}, {SETS[dataset]}", dataset, lines, columns))
    named = frozenset(line.method for line in shown)
    notes = Naming(models=named, steps=True).notes(shown, sections)
    heads = (Column("/".join(HEADS[metric] for metric in column)) for column in columns)
    return Table(
        "lambda",
        "Weight of the position loss, λ",
        (Column("λ"), *heads),
        (*sections, *(() if shown else (no_rows(1 + len(columns)),))),
        (*notes, *_UNITS * bool(shown), "The paper does not say on which set it varied λ."),
    )


def _over_factors(title: str, dataset: str, lines: Sequence[Line], columns: Sequence[Sequence[str]]) -> Section:
    """A line for each λ; the best λ of each way of filling in bold."""
    ordered = sorted(lines, key=lambda line: (line.method, line.split, line.limit or 0, line.steps or 0, _factor(line)))
    # Another λ is another model: they are named only where there is more to tell apart.
    several = len({line.model for line in lines}) > len({_factor(line) for line in lines})
    naming = Naming(models=frozenset(line.method for line in lines) if several else frozenset(), steps=True)
    names = [cell(f"{_factor(line):g}, {naming.name(line)}") for line in ordered]
    cells = (measured_cells(ordered, dataset, column, lambda line: (line.method, line.steps)) for column in columns)
    return Section(title, tuple(zip(names, *cells, strict=True)))


def _differ_in_factor(one: Line, other: Line) -> bool:
    """Whether two lines differ in their λ, and in nothing else that matters."""
    if _factor(one) == _factor(other) or one.every("recipe") != other.every("recipe"):
        return False
    same = ("method", "task", "split", "steps", "limit")
    times = other.every("training_seconds")
    return all(getattr(one, name) == getattr(other, name) for name in same) and (
        trained_as_long(one, times) or not times
    )


def _factor(line: Line) -> float:
    """The λ a line's model was trained with."""
    return float(min(line.every("position_factor")))
