"""`ddot tables`: the paper's tables with our rows beside its numbers, as Markdown or LaTeX."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ddot.evaluation.rows import Row, measured
from ddot.evaluation.store import read_rows
from ddot.evaluation.tables import page
from ddot.evaluation.tables.comparisons import COMPARISONS, compare, models_table
from ddot.evaluation.tables.differences import difference_tables
from ddot.evaluation.tables.document import insert, marked
from ddot.evaluation.tables.settings import settings_table
from ddot.evaluation.tables.speed import speed_tables
from ddot.evaluation.tables.sweeps import lambda_table, steps_table

__all__ = ["NAMES", "insert", "marked", "read_rows", "render"]

_OF_ROWS: dict[str, Callable[[Sequence[Row]], page.Table]] = {
    **{name: partial(compare, name) for name in COMPARISONS},
    "lambda": lambda_table,
    "steps": steps_table,
    "models": models_table,
    "hyperparameters": lambda rows: settings_table(),
}
# Those of other commands, and the command.
_OF_LINES: dict[str, tuple[Callable[[Sequence[Mapping[str, Any]]], list[page.Table]], str]] = {
    "differences": (difference_tables, "compare"),
    "speed": (speed_tables, "bench"),
}
NAMES = (*_OF_ROWS, *_OF_LINES)


def render(rows: Sequence[Mapping[str, Any]], table: str | None = None, latex: bool = False) -> str:
    """The table of that name, or all of them, from lines of `ddot evaluate`, `ddot compare` and `ddot bench`."""
    if table is not None and table not in NAMES:
        raise ValueError(f"there is no table '{table}'; there are {', '.join(NAMES)}")
    ours, made = measured(rows), list[page.Table]()
    for name in NAMES:
        if name in _OF_ROWS:
            made += [_OF_ROWS[name](ours)] if table in (None, name) else []
            continue
        make, command = _OF_LINES[name]
        found = make(rows)  # also where another one is asked for: it refuses lines that nobody knows
        if table == name and not found:
            raise ValueError(f"there are no rows of `ddot {command}` among {len(rows)}; give a file of `… --json`")
        made += found if table in (None, name) else []
    return "\n".join([page.PACKAGES, *map(page.latex, made)] if latex else map(page.markdown, made))
