"""Commands that draw what was measured: plot quality, plot success."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ddot.cli.app import names_of, plot, say

Rows = Annotated[list[Path], typer.Argument(help="Rows written by ddot evaluate.")]
Dataset = Annotated[str | None, typer.Option(help="One set. Default: all.")]
Task = Annotated[str | None, typer.Option(help="free or located. Default: both.")]
Methods = Annotated[str | None, typer.Option(help="Contenders, separated by commas. Default: all.")]
Models = Annotated[str | None, typer.Option(help="Models as rows name them, separated by commas. Default: all.")]


def _chosen(files: list[Path], methods: str | None, models: str | None) -> list[dict[str, Any]]:
    """Rows of these contenders and models."""
    from ddot.evaluation.tables import read_rows

    rows = read_rows(*files)
    for field, option, text in (("method", "--methods", methods), ("model", "--models", models)):
        if text is None:
            continue
        wanted, there = names_of(text, option), sorted({str(row[field]) for row in rows if field in row})
        if unknown := [name for name in wanted if name not in there]:
            raise ValueError(f"no row has the {field} '{unknown[0]}'; there are {', '.join(there) or 'no rows'}")
        rows = [row for row in rows if row.get(field) in wanted]
    return rows


@plot.command("quality")
def plot_quality(
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("quality.png"),
    against: Annotated[str, typer.Option(help="steps, or seconds per text.")] = "steps",
    metric: Annotated[str, typer.Option(help="The vertical axis: bleu4, success, …")] = "bleu4",
    dataset: Dataset = None,
    task: Task = None,
    methods: Methods = None,
    models: Models = None,
) -> None:
    """Quality against the number of steps, or against seconds per text.

    Example: ddot plot quality rows.jsonl --against seconds --dataset 1bw-block -o speed.png
    """
    from ddot.figures.charts import draw_charts, quality

    draw_charts(quality(_chosen(rows, methods, models), against, metric, dataset, task), output)
    print(output)


@plot.command("success")
def plot_success(
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("success.png"),
    dataset: Dataset = None,
    task: Task = None,
    methods: Methods = None,
    models: Models = None,
) -> None:
    """Share of texts that keep the given words, against their number.

    Example: ddot plot success rows.jsonl --methods lc,ddot-u --task free -o success.png
    """
    from ddot.figures.charts import ADDS_KEPT, draw_charts, success_by_given

    charts, left = success_by_given(_chosen(rows, methods, models), dataset, task)
    draw_charts(charts, output)
    if left:
        say(f"{len(left)} rows are left out: they do not say what was kept; {ADDS_KEPT}")
    print(output)
