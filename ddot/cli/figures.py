"""Commands that draw what was measured: plot quality, plot success."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ddot.cli.app import plot

Rows = Annotated[list[Path], typer.Argument(help="Files that ddot evaluate wrote.")]
Dataset = Annotated[str | None, typer.Option(help="One set; default: all there are.")]
Task = Annotated[str | None, typer.Option(help="free or located; default: both.")]


@plot.command("quality")
def plot_quality(
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("quality.png"),
    against: Annotated[str, typer.Option(help="steps, or seconds a text takes.")] = "steps",
    metric: Annotated[str, typer.Option(help="What is drawn upwards: bleu4, success, …")] = "bleu4",
    dataset: Dataset = None,
    task: Task = None,
) -> None:
    """Quality against the number of steps, or against time.

    Example: ddot plot quality rows.jsonl --against seconds --dataset 1bw-block -o speed.png
    """
    from ddot.charts import draw_charts
    from ddot.curves import quality
    from ddot.tables import read_rows

    draw_charts(quality(read_rows(*rows), against, metric, dataset, task), output)
    print(output)


@plot.command("success")
def plot_success(
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("success.png"),
    dataset: Dataset = None,
    task: Task = None,
) -> None:
    """Share of texts that keep what is given, against how many words that is.

    Example: ddot plot success rows.jsonl -o success.png
    """
    from ddot.charts import draw_charts
    from ddot.curves import ADDS_KEPT, success_by_given
    from ddot.tables import read_rows

    charts, left = success_by_given(read_rows(*rows), dataset, task)
    draw_charts(charts, output)
    if left:
        print(f"ddot: {len(left)} rows are left out, they do not say what was kept; {ADDS_KEPT}", file=sys.stderr)
    print(output)
