"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Fill blanks of unknown length in text.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios within one run.")
app.add_typer(bench, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a row a line, instead of a table.")]


def run() -> None:
    """The `ddot` command."""
    try:
        app()
    except (ValueError, FileNotFoundError) as error:
        print(f"ddot: {error}", file=sys.stderr)
        sys.exit(2)


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows to stdout: JSON lines, or a table with numbers rounded for reading."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right" if name != next(iter(rows[0])) else "left")
    for row in rows:
        table.add_row(*("" if v is None else f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


@bench.command("coupling")
def bench_coupling(as_json: AsJson = False, seconds: float = 1.0) -> None:
    """The linear-time coupling against the paper's dynamic program, SciPy, POT and a plain sort, on one core.

    Example: ddot bench coupling --json
    """
    from ddot.bench.coupling import SLOWDOWN_BAR, measure, slowdown

    rows = measure(seconds=seconds)
    show(rows, as_json)
    print(f"time a slot at L=1024 over L=64: {slowdown(rows):.2f} (bar: at most {SLOWDOWN_BAR})", file=sys.stderr)


if __name__ == "__main__":
    run()
