"""Tables of `ddot bench`: its columns, with numbers rounded and the paper's speeds in the notes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddot.evaluation.rows import is_difference, is_measurement, place_of
from ddot.evaluation.tables.page import EMPTY, Column, Table
from ddot.evaluation.tables.paper import paper_tables

Line = Mapping[str, Any]
# First field of a row → name and title of the table; the field whose values become columns; the fields of their cells.
BENCHES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "contender": (
        *("speed-coupling", "Speed of the coupling, one core: million slots per second / times as slow as ours", "L"),
        ("million_slots_per_second", "ddot_is_faster"),
    ),
    "network": ("speed-train", "Speed of training", "", ()),
    "way": ("speed-infill", "Speed of infilling, one core", "", ()),
    "against": ("speed-cost", "Cost of a text, one core", "", ()),
    "sampler": ("speed-methods", "Speed by sampling steps: ms a text / times LC", "steps", ("ms_a_text", "times_lc")),
    "clients": ("speed-serve", "Speed of a server", "", ()),
}


def speed_tables(rows: Sequence[Line], limit: int | None = None) -> list[Table]:
    """A table for each bench among `rows`."""
    benches: dict[str, list[Line]] = {}
    for row in rows:
        if is_measurement(row) or is_difference(row):
            continue
        first = next(iter(row), "")
        if first not in BENCHES:
            raise ValueError(
                f"{place_of(row)} begins with '{first}'; expected rows of `ddot evaluate` (method, dataset, …), "
                f"`ddot compare` (first, second, …) or `ddot bench` ({', '.join(BENCHES)})"
            )
        across = BENCHES[first][2]
        if across and not isinstance(row.get(across), int):
            raise ValueError(f"{place_of(row)}: '{across}' is not a whole number; make it with `ddot bench`")
        benches.setdefault(first, []).append(row)
    return [_speed_table(first, benches[first], limit) for first in BENCHES if first in benches]


def _speed_table(first: str, rows: Sequence[Line], limit: int | None) -> Table:
    name, title, across, values = BENCHES[first]
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in (across, *values)]
    places = list(dict.fromkeys(row[across] for row in rows)) if across else []
    lines: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in rows:
        cell = " / ".join(rounded(row.get(value)) for value in values)
        lines.setdefault(tuple(rounded(row.get(key)) for key in keys), {})[row.get(across)] = cell
    columns = [*(Column(key.replace("_", " ")) for key in keys), *(Column(str(place), across) for place in places)]
    body = [(*key, *(cells.get(place, EMPTY) for place in places)) for key, cells in lines.items()]
    return Table(name, title, columns, body[:limit], _papers_speed(first))


def rounded(value: Any) -> str:
    """A value for reading: numbers with three digits and thousands separators; – for None."""
    if value is None or isinstance(value, bool):
        return EMPTY if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        short = float(f"{value:.3g}")
        return f"{short:,.0f}" if 1000 <= abs(short) < 1e15 else f"{value:.3g}"
    return str(value)


def _papers_speed(first: str) -> list[str]:
    c, t = paper_tables()["speed"]["coupling"], paper_tables()["speed"]["training"]
    notes = {
        "contender": f"Paper: {c['tokens'] / 1e9:g} billion tokens in {c['seconds']} s on {c['cores']} cores "
        f"({c['processor']}), {c['tokens'] / c['seconds'] / c['cores'] / 1e6:.2f} million tokens a second a core. "
        "sort: NumPy draws and sorts the starting positions and pairs nothing, so it couples no texts.",
        "network": f"Paper: {t['steps']} steps of batch {t['batch']} on one {t['device']} in {t['seconds_cached']} s "
        f"with couplings made beforehand, {t['seconds_not_cached']} s without.",
        "sampler": "LC reads twice as many slots; logits are computed at masked slots only, equally many for both, so "
        "the speed-up stays below 2.",
    }
    return [note for bench, note in notes.items() if bench == first]
