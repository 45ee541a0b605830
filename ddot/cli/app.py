"""Shared by all commands: the application, options, tables for the terminal, loading a model."""

import json
import os
import sys
import warnings
from collections.abc import Collection
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ddot.infill.settings import PRECISIONS, one_of, whole_number
from ddot.network.places import here

if TYPE_CHECKING:
    from ddot.infill.model import Model

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Fill blanks of unknown length in text.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios within one run.")
plot = typer.Typer(no_args_is_help=True, help="Plot how positions move, and what was measured.")
app.add_typer(bench, name="bench")
app.add_typer(plot, name="plot")


def flag(name: str, help: str) -> Any:
    """A flag. Without the metavar Typer shows <bool>, as if it took a value."""
    return typer.Option(name, metavar="", help=help)


def _version(asked: bool | None) -> None:
    if asked:
        from ddot import __version__

        print(f"ddot {__version__}")
        raise typer.Exit()


@app.callback()
def about(
    version: Annotated[
        bool | None, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Fill blanks of unknown length in text."""


AsJson = Annotated[bool, flag("--json", "Print JSON lines instead of a table.")]
ModelName = Annotated[
    str | None, typer.Option("--model", help="A model folder, or owner/name on the hub. Default: the embedded model.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: cuda if available.")]
Precision = Annotated[
    str, typer.Option(help="int8, or float32: slower, nearly the same on any processor. auto: as stored.")
]
Steps = Annotated[int, typer.Option(help="Denoising steps, where slots move or a model unmasks.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]
Temperature = Annotated[float, typer.Option(help="0: the best of several candidates; 1: one, sampled as it comes.")]
Free = Annotated[
    bool, flag("--free", "No blanks: keep these words (not their spacing) in order, add text where it fits.")
]


def say(sentence: str) -> None:
    """Tell the user something, on stderr."""
    print(f"ddot: {sentence}", file=sys.stderr)


def names_of(text: str, option: str) -> list[str]:
    """Split comma-separated names; duplicates are dropped."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in names:
        raise ValueError(f"{option} needs comma-separated names, got '{text}'")
    return names


def numbers(text: str, option: str) -> list[int]:
    """Split comma-separated whole numbers; duplicates are dropped."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{option} needs comma-separated whole numbers, got '{text}'") from None


def show(rows: list[dict[str, Any]], as_json: bool, hidden: Collection[str] = ()) -> None:
    """Print rows as JSON lines, or as a table with rounded numbers and without the `hidden` columns."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = Table()
    names = [name for name in dict.fromkeys(chain.from_iterable(rows)) if name not in hidden]
    for name in names:
        table.add_column(name.replace("_", " "), justify="left" if name == names[0] else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(row.get(name)) for name in names))  # not every row has every metric
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def check_model(name: str | None, precision: str = "auto", threads: int | None = None) -> None:
    """Check the options of `load_model` as far as possible without torch, whose import takes seconds."""
    one_of("precision", precision, PRECISIONS)
    whole_number("threads", 1 if threads is None else threads, 1)
    here(name)


def load_model(
    name: str | None,
    device: str | None = None,
    precision: str = "auto",
    threads: int | None = None,
    compile: bool = False,
) -> "Model":
    """A model that fills as many texts at once as there are cores."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    check_model(name, precision, threads)
    from ddot.infill.model import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = load(name, device, precision, threads, compile)
    for warning in caught:
        say(str(warning.message))
    return model
