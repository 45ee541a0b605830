"""Every table by name."""

from collections.abc import Sequence

from ddot.evaluation.rows import Row, measured
from ddot.evaluation.tables import page
from ddot.evaluation.tables.comparisons import COMPARISONS, compare, overview, short_table
from ddot.evaluation.tables.differences import difference_tables
from ddot.evaluation.tables.settings import settings_table
from ddot.evaluation.tables.speed import speed_tables
from ddot.evaluation.tables.sweeps import lambda_table, steps_table

NAMES = ("overview", "main", *COMPARISONS, "differences", "lambda", "steps", "hyperparameters", "speed")


def render(rows: Sequence[Row], table: str | None = None, latex: bool = False) -> str:
    """The table of that name, or all of them: rows of `ddot evaluate`, `ddot compare` and `ddot bench` beside the
    paper's numbers."""
    if table is not None and table not in NAMES:
        raise ValueError(f"there is no table '{table}'; there are {', '.join(NAMES)}")
    made = make(rows, NAMES if table is None else (table,))
    return "\n".join([page.PACKAGES, *map(page.latex, made)] if latex else map(page.markdown, made))


def make(rows: Sequence[Row], names: Sequence[str] = NAMES) -> list[page.Table]:
    """The tables of these names. Rows that are of none of these commands are refused, whatever is asked for."""
    ours, speeds, apart = measured(rows), speed_tables(rows), difference_tables(rows)
    for name, found, command in (("speed", speeds, "bench"), ("differences", apart, "compare")):
        if tuple(names) == (name,) and not found:
            raise ValueError(
                f"there are no rows of `ddot {command}` among {len(rows)}; give a file that it wrote with --json"
            )
    made: list[page.Table] = []
    for name in names:
        if name in COMPARISONS:
            made.append(compare(name, ours))
        elif name == "overview":
            made.append(overview(ours))
        elif name == "main":
            made.append(short_table(ours))
        elif name == "differences":
            made += apart
        elif name == "lambda":
            made.append(lambda_table(ours))
        elif name == "steps":
            made.append(steps_table(ours))
        elif name == "hyperparameters":
            made.append(settings_table())
        else:
            made += speeds
    return made
