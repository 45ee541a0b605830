"""Tables of `ddot bench`: its columns as they are, numbers rounded, the paper's speeds in the notes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddot.evaluation.rows import is_difference, is_measurement, place_of
from ddot.evaluation.tables.page import EMPTY, Column, Section, Table, cell
from ddot.evaluation.tables.paper import paper_tables

Line = Mapping[str, Any]
# The first column of a bench → the table's name and title.
BENCHES = {
    "contender": ("speed-coupling", "Speed of the coupling, one core"),
    "network": ("speed-train", "Speed of training"),
    "way": ("speed-infill", "Speed of infilling, one core"),
    "sampler": ("speed-methods", "Speed of the methods"),
}


def speed_tables(rows: Sequence[Line]) -> list[Table]:
    """A table for each bench that `rows` hold."""
    found: dict[str, list[Line]] = {}
    for number, row in enumerate(rows, 1):
        if is_measurement(row) or is_difference(row):
            continue
        first = next(iter(row), "")
        if first not in BENCHES:
            raise ValueError(
                f"{place_of(row, number)} begins with '{first}'; wanted rows of `ddot evaluate` (method, dataset, …), "
                f"`ddot compare` (first, second, …) or `ddot bench` ({', '.join(BENCHES)})"
            )
        found.setdefault(first, []).append(row)
    return [_speed_table(first, found[first]) for first in BENCHES if first in found]


def _speed_table(first: str, rows: Sequence[Line]) -> Table:
    name, title = BENCHES[first]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = tuple(tuple(cell(rounded(row.get(key))) for key in keys) for row in rows)
    columns = tuple(Column(key.replace("_", " ")) for key in keys)
    return Table(name, title, columns, (Section("", lines),), _papers_speed(first))


def rounded(value: Any) -> str:
    """A value for reading: three digits of a number, thousands set apart; – for none."""
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        short = float(f"{value:.3g}")
        return f"{short:,.0f}" if 1000 <= abs(short) < 1e15 else f"{value:.3g}"
    return str(value)


def _papers_speed(first: str) -> tuple[str, ...]:
    speeds = paper_tables()["speed"]
    if first == "contender":
        c = speeds["coupling"]
        a_core = c["tokens"] / c["seconds"] / c["cores"] / 1e6
        return (
            f"Paper: {c['tokens'] / 1e9:g} billion tokens in {c['seconds']} s on {c['cores']} cores "
            f"({c['processor']}), that is {a_core:.2f} million tokens a second a core.",
        )
    if first == "network":
        t = speeds["training"]
        return (
            f"Paper: {t['steps']} steps of batch {t['batch']} on one {t['device']} in {t['seconds_cached']} s with "
            f"couplings made beforehand, {t['seconds_not_cached']} s without.",
        )
    return ()
