"""Tables whose lines are models and whose columns are sets: the paper's results, ablations, and the short table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ddot.evaluation.rows import HEADS, UNFILLED, Row, is_number
from ddot.evaluation.tables.lines import (
    LABELS,
    SETS,
    TASKS,
    Line,
    gather,
    measured_cells,
    number_format,
    task_lines,
    trained_as_long,
    widest,
)
from ddot.evaluation.tables.naming import Naming, clocks
from ddot.evaluation.tables.page import EMPTY, Cell, Column, Section, Table, cell, no_rows
from ddot.evaluation.tables.paper import paper_tables, paper_values, printed

# What we also have beside a metric of the paper's, where it was measured.
BESIDE = {"meteor": "meteor_nltk", "d4": "perplexity", "codebleu": "exact"}
PAIRS = (("bleu2", "bleu4"), ("nist2", "nist4"), ("gaps_found", "gaps_extra"))  # share a column
WITHOUT_OT = ("no-ot", "no-ot-u")
MOVING = (UNFILLED, *(name for name in LABELS if name.startswith("ddot-")))


@dataclass(frozen=True)
class Comparison:
    """What a table shows of our rows: which ways of filling (None: all), and whether each line names its model.

    `paper`: the paper's table it stands beside, where that has another name; `metrics`: where it has others.
    `alike`: an ablation of OT, only with models that were trained equally long. `absent`: what is said where no row is
    of a set.
    """

    title: str
    methods: tuple[str, ...] | None = None
    models: bool = False
    notes: tuple[str, ...] = ()
    paper: str | None = None
    metrics: tuple[str, ...] = ()
    alike: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)


COMPARISONS = {
    "methods": Comparison(
        "Methods on blocks",
        paper="block",
        metrics=("bleu2", "bleu4", "success", "gaps_found", "gaps_extra", "length_error"),
        notes=(
            "SR: % of texts with the given words whole and in order. gaps: % of the gaps with words missing that got "
            "any; extra: % of texts that write where none are missing; a text that lost given words counts as having "
            "found none. length: words too many, or − too few.",
        ),
    ),
    "random": Comparison("Random infilling: 1 to 6 words given"),
    "block": Comparison("Block infilling: one span of 0 to 32 words missing"),
    "code": Comparison(
        "Code infilling",
        notes=("The paper's sets are cut from CodeParrot, ours from other Python packages.",),
        absent={"code-random": "There is no rebuilt set of random code."},
    ),
    "ot": Comparison(
        "With and without optimal transport",
        (UNFILLED, *(name + how for how in ("", "-drawn") for name in (*WITHOUT_OT, "ddot-r", "ddot-u"))),
        models=True,
        alike=True,
        notes=("The paper names no task here; its numbers with OT are those of DDOT-R small on the random sets.",),
    ),
    "sizes": Comparison("Sizes of the network", MOVING, models=True),
    "diversity": Comparison("Diversity: different n-grams in percent of all"),
}


def compare(name: str, rows: Sequence[Row]) -> Table:
    """One of `COMPARISONS`: the paper's lines, then ours for each task."""
    kind = COMPARISONS[name]
    numbers = paper_tables()[kind.paper or name]
    sets: list[str] = numbers["sets"]
    metrics = list(kind.metrics or numbers["metrics"])
    extra = [beside for metric, beside in BESIDE.items() if metric in metrics]
    metrics += [metric for metric in extra if any(_has(row, metric, sets) for row in rows)]
    columns = paired(metrics)
    every = gather(rows, sets, kind.methods, metrics)
    every = _trained_alike(every) if kind.alike else every
    lines = widest(every)
    naming = Naming.of(lines)
    if kind.models:
        naming = replace(naming, models=frozenset(line.method for line in lines))
    sections = _papers_sections(numbers, columns)
    for title, some_lines in task_lines(lines):
        sections.append(Section(title, _ours(some_lines, naming, [(d, c) for d in sets for c in columns])))
    if not lines:
        sections.append(no_rows(1 + len(sets) * len(columns)))
    heads = (Column("/".join(HEADS[metric] for metric in column), SETS[d]) for d in sets for column in columns)
    absent = [note for dataset, note in kind.absent.items() if all(row["dataset"] != dataset for row in rows)]
    return Table(
        name,
        kind.title,
        (Column("model"), *heads),
        tuple(sections),
        (*naming.notes(lines, sections), *_left_out(every, lines), *kind.notes, *absent, *_about(lines, metrics)),
    )


def _trained_alike(lines: Sequence[Line]) -> list[Line]:
    """Of an ablation, the lines of models that were trained as long as one without OT, a tenth more or less."""
    without = {time for line in lines if line.method.startswith(WITHOUT_OT) for time in line.every("training_seconds")}
    return [
        line for line in lines
        if not without or line.method == UNFILLED
        or trained_as_long(line, without)
    ]  # fmt: skip


def _about(lines: Sequence[Line], metrics: Sequence[str]) -> tuple[str, ...]:
    """What there is to say of the metrics: how sure they are, what they read, which model judged."""
    rows = [row for line in lines if line.method != UNFILLED for some in line.rows.values() for row in some]
    notes = []
    sure: dict[str, list[str]] = {}  # what is said of how many rows
    for metric in metrics:
        having = [row for row in rows if is_number(row.get(metric))]
        found = [ends for row in having if (ends := (row.get("intervals") or {}).get(metric)) is not None]
        if found:
            half = max((high - low) / 2 for low, high in found)
            some = f" (of {len(found)} of {len(having)} rows)" * (len(found) < len(having))
            sure.setdefault(some, []).append(f"{HEADS[metric]} ± {half:{number_format(metric).lstrip('+')}}")
    if sure:
        told = "; ".join(", ".join(halves) + some for some, halves in sure.items())
        notes.append(f"95% intervals (bootstrap over items) are at the widest {told}.")
    if "perplexity" in metrics:
        names = sorted({str(name) for line in lines for name in line.every("language_model")})
        notes.append(f"PPL: perplexity under {', '.join(names) or 'a language model'}; lower is more fluent.")
    if "exact" in metrics:
        notes.append("EM: % that are the reference, word for word.")
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        if cut := max(row.get("cut") or 0 for row in rows if row["dataset"] == dataset):
            told = f"{SETS.get(dataset, dataset)}: of {cut} programs a network is shown a part of what is given"
            notes.append(f"{told}; the rest counts as it was given.")
    return tuple(notes)


def _papers_sections(numbers: dict[str, Any], columns: Sequence[Sequence[str]]) -> list[Section]:
    """The paper's lines, under the kinds of models it has."""
    sections = []
    for title, rows in groupby(numbers["rows"], key=lambda row: row["section"]):
        lines = []
        for row in rows:
            values = [dict(zip(numbers["metrics"], found, strict=True)) for found in row["values"]]
            lines.append((cell(row["model"]), *(cell(papers(value, column)) for value in values for column in columns)))
        sections.append(Section(f"paper, {title}", tuple(lines)))
    return sections


def papers(values: dict[str, Any], column: Sequence[str]) -> str:
    """The paper's values under one column."""
    shown = [printed(values.get(metric)) for metric in column]
    return EMPTY if set(shown) == {EMPTY} else " / ".join(shown)


def paired(metrics: Iterable[str]) -> list[tuple[str, ...]]:
    """The columns of metrics: pairs of `PAIRS` together, others alone."""
    left = list(metrics)
    columns: list[tuple[str, ...]] = []
    while left:
        pair = next((pair for pair in PAIRS if pair[0] == left[0] and pair[1] in left), (left[0],))
        columns.append(pair)
        left = [metric for metric in left if metric not in pair]
    return columns


def _has(row: Row, metric: str, sets: Sequence[str]) -> bool:
    return row["dataset"] in sets and row.get(metric) is not None


def _ours(
    lines: Sequence[Line], naming: Naming, columns: Sequence[tuple[str, Sequence[str]]]
) -> tuple[tuple[Cell, ...], ...]:
    """The cells of lines, their names first; `columns` are (set, metrics)."""
    names = [cell(naming.name(line)) for line in lines]
    return tuple(zip(names, *(measured_cells(lines, dataset, metrics) for dataset, metrics in columns), strict=True))


def overview(rows: Sequence[Row]) -> Table:
    """BLEU on every set of text in one short table, for the README: the paper's DDOT-U, then ours for each task."""
    sets = [name for name in SETS if not name.startswith("code")]
    column = ("bleu2", "bleu4")
    every = gather(rows, sets, metrics=column)
    lines = widest(every)
    naming = Naming.of(lines)
    theirs = [papers(_papers_ddot_u(name), column) for name in sets]
    sections = [Section("", ((cell("paper, DDOT-U (another test sample)"), *map(cell, theirs)),))]
    for title, some in task_lines(lines):
        sections.append(Section(title, _ours(some, naming, [(name, column) for name in sets])))
    return Table(
        "overview",
        "BLEU-2 / BLEU-4 on rebuilt test sets",
        (Column("way of filling"), *(Column(SETS[name]) for name in sets)),
        tuple(sections) if lines else (*sections, no_rows(1 + len(sets))),
        (*naming.notes(lines, sections), *_left_out(every, lines)),
    )


SHORT = (("bleu2", "bleu4"), ("success",), ("length_error", "length_error_abs"), ("seconds",))


def short_table(rows: Sequence[Row]) -> Table:
    """`main`: a section for each set and task, the paper's DDOT-U in front."""
    present = {row["dataset"] for row in rows}
    sets = [name for name in SETS if name in present] + sorted(present - set(SETS))
    every = gather(rows, sets, metrics=[metric for column in SHORT for metric in column])
    lines = widest(every)
    naming = Naming.of(lines, timed=True)
    sections = []
    for dataset in sets or [name for name in SETS if _paper_row(name)]:
        theirs = _paper_row(dataset)
        here = [line for line in lines if dataset in line.rows]
        parts = task_lines(here) or [(TASKS["free"], [])]
        for title, some in parts:
            front = (theirs,) if theirs and title == TASKS["free"] else ()
            task = title.partition(":")[0].removeprefix("ours, ")
            body = _ours(some, naming, [(dataset, column) for column in SHORT])
            sections.append(Section(f"{SETS.get(dataset, dataset)}, {task}", (*front, *body)))
    heads = ("B2 / B4", "success %", "length error, words (mean / absolute)", "seconds a text")
    return Table(
        "main",
        "Infilling on rebuilt test sets",
        (Column("way of filling"), *(Column(head) for head in heads)),
        tuple(sections),
        (*naming.notes(lines, sections), *_left_out(every, lines), *clocks(lines), *_KEY),
    )


_KEY = (
    "Free: words in order, gaps not told, the paper's task. Located: told where words are missing.",
    "The paper's test sample is not public.",
)


def _paper_row(dataset: str) -> tuple[Cell, ...] | None:
    """The paper's DDOT-U on a set, under the columns of `SHORT`."""
    values = _papers_ddot_u(dataset)
    if not values:
        return None
    return (cell("paper, DDOT-U (another test sample)"), *(cell(papers(values, column)) for column in SHORT))


def _papers_ddot_u(dataset: str) -> dict[str, Any]:
    """What the paper has of DDOT-U on a set; nothing for sets that are not the paper's."""
    tables = [name for name in ("block", "random", "code") if dataset in paper_tables()[name]["sets"]]
    return paper_values(tables[0], "DDOT-U", dataset) if tables else {}


def _left_out(every: Sequence[Line], shown: Sequence[Line]) -> tuple[str, ...]:
    """Says so where lines of a sweep are not shown."""
    models = {line.model for line in shown}
    left = [line for line in every if line not in shown and line.method != UNFILLED]
    steps = "Other numbers of steps are in the table of sampling steps."
    trials = "Models trained for less time by the same recipe are left out."
    return tuple(
        note
        for note, known in ((steps, True), (trials, False))
        if any((line.model in models) == known for line in left)
    )
