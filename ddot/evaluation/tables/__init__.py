"""`ddot tables`: published figures with our rows beside them, as Markdown or LaTeX; at most `MOST` lines a table."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ddot.evaluation.rows import Row, measured
from ddot.evaluation.store import read_rows
from ddot.evaluation.tables import page
from ddot.evaluation.tables.comparisons import COMPARISONS, compare, difference_tables, models, sweep
from ddot.evaluation.tables.page import insert, marked
from ddot.evaluation.tables.settings import settings_table
from ddot.evaluation.tables.speed import speed_tables

__all__ = ["MOST", "NAMES", "insert", "marked", "read_rows", "render"]

MOST = 10  # lines of a table, unless all are wanted
_OF_ROWS: dict[str, Callable[[Sequence[Row], int | None], page.Table]] = {
    **{name: partial(compare, name) for name in COMPARISONS},
    **{name: partial(sweep, name) for name in ("lambda", "steps")},
    "models": models,
    "hyperparameters": lambda rows, room: settings_table(room=room),
}
# Those of other commands, and the command.
_OF_LINES: dict[str, tuple[Callable[[Sequence[Mapping[str, Any]], int | None], list[page.Table]], str]] = {
    "differences": (difference_tables, "compare"),
    "speed": (speed_tables, "bench"),
}
NAMES = (*_OF_ROWS, *_OF_LINES)


def render(
    rows: Sequence[Mapping[str, Any]], table: str | None = None, latex: bool = False, every: bool = False
) -> str:
    """The table of that name, or all of them, from lines of `ddot evaluate`, `compare`, `nats` and `bench`.

    `every`: all lines, not the most important ones.
    """
    if table is not None and table not in NAMES:
        raise ValueError(f"there is no table '{table}'; there are {', '.join(NAMES)}")
    ours, made, room = measured(rows), list[page.Table](), None if every else MOST
    for name in NAMES:
        if name in _OF_ROWS:
            made += [_OF_ROWS[name](ours, room)] if table in (None, name) else []
            continue
        make, command = _OF_LINES[name]
        found = make(rows, room)  # always: it refuses lines of unknown commands
        if table == name and not found:
            raise ValueError(f"there are no rows of `ddot {command}` among {len(rows)}; give a file of `… --json`")
        made += found if table in (None, name) else []
    return "\n".join([page.PACKAGES, *map(page.latex, made)] if latex else map(page.markdown, made))
