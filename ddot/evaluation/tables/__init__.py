"""`ddot tables`: published figures beside ours, as Markdown or LaTeX; at most `MOST` lines per table."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ddot.evaluation.rows import Row, measured, refuse_unknown
from ddot.evaluation.store import read_rows
from ddot.evaluation.tables import page
from ddot.evaluation.tables.comparisons import COMPARISONS, compare, difference_tables, models, sweep
from ddot.evaluation.tables.page import insert, marked
from ddot.evaluation.tables.settings import settings_table
from ddot.evaluation.tables.speed import speed_tables

__all__ = ["MOST", "NAMES", "insert", "marked", "read_rows", "render"]

MOST = 10  # lines of a table, unless all are asked for
_OF_ROWS: dict[str, Callable[[Sequence[Row], int | None], page.Table]] = {
    **{name: partial(compare, name) for name in COMPARISONS},
    **{name: partial(sweep, name) for name in ("lambda", "steps")},
    "models": models,
    "hyperparameters": lambda rows, limit: settings_table(limit=limit),
}
# Tables of other commands, and the command.
_OF_LINES: dict[str, tuple[Callable[[Sequence[Mapping[str, Any]], int | None], list[page.Table]], str]] = {
    "differences": (difference_tables, "compare"),
    "speed": (speed_tables, "bench"),
}
NAMES = (*_OF_ROWS, *_OF_LINES)


def render(
    rows: Sequence[Mapping[str, Any]], table: str | None = None, latex: bool = False, every: bool = False
) -> str:
    """One table, or all of them, from lines of `ddot evaluate`, `compare`, `nats` and `bench`.

    `every`: all lines, not just the most important ones.
    """
    names, limit = NAMES if table is None else (table,), None if every else MOST
    refuse_unknown("unknown table", names, NAMES)
    ours = measured(rows)
    made = {name: [make(ours, limit)] for name, make in _OF_ROWS.items() if name in names}
    for name, (make, command) in _OF_LINES.items():
        made[name] = make(rows, limit)  # even if not shown: refuses lines of unknown commands
        if table == name and not made[name]:
            raise ValueError(f"there are no rows of `ddot {command}` among {len(rows)}; give a file of `… --json`")
    tables = [table for name in names for table in made[name]]
    return "\n".join([page.PACKAGES, *map(page.latex, tables)] if latex else map(page.markdown, tables))
