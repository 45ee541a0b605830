"""Commands that draw: watch, and plot trajectories, coupling, quality, success and cost."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ddot.cli.app import Free, ModelName, Seed, Steps, Temperature, app, flag, load_model, names_of, plot, say
from ddot.cli.infill import check_trace
from ddot.infill.request import request
from ddot.infill.settings import Settings

Picture = Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")]
Rows = Annotated[list[Path], typer.Argument(help="Rows written by ddot evaluate.")]
Dataset = Annotated[str | None, typer.Option(help="One set. Default: all.")]
Task = Annotated[str | None, typer.Option(help="free or located. Default: both.")]
Methods = Annotated[str | None, typer.Option(help="Comma-separated contenders. Default: all.")]
Models = Annotated[str | None, typer.Option(help="Comma-separated models, as rows name them. Default: all.")]
Terminal = Annotated[str, typer.Option(help="Where slots start: grid or random.")]


@app.command()
def watch(
    text: Annotated[str, typer.Argument(help="A text with ___ where words are missing.")],
    steps: Steps = 16,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    free: Free = False,
    terminal: Terminal = "grid",
    model: ModelName = None,
    delay: Annotated[float, typer.Option(min=0.0, help="Minimum seconds to show each step.")] = 0.15,
    trace: Annotated[Path | None, typer.Option(help="Save every step, to plot later.")] = None,
) -> None:
    """Watch the words move to their places, in the terminal.

    Example: ddot watch "We were so ___ wedding."
    """
    settings: dict[str, Any] = {"steps": steps, "seed": seed, "temperature": temperature, "terminal": terminal}
    request(text, Settings(**settings), free)  # report mistakes before a model is loaded
    if trace is not None:
        check_trace(trace, [text])
    settings["free"] = free
    loaded = load_model(model)
    from ddot.figures.terminal import watch as show_frames
    from ddot.infill.frames import save_trace

    frames = show_frames(loaded.stream(text, **settings), Console(), delay)
    if trace is not None:
        save_trace(trace, text, settings, frames)


@plot.command("trajectories")
def plot_trajectories(
    text: Annotated[str | None, typer.Argument(help="A text with ___; or --from a saved trace.")] = None,
    output: Picture = Path("paths.png"),
    saved: Annotated[Path | None, typer.Option("--from", help="A trace saved by infill or watch.")] = None,
    scaled: Annotated[bool | None, flag("--scaled/--unscaled", "One plot; default: both.")] = None,
    steps: Steps = 32,
    seed: Seed = 0,
    free: Free = False,
    terminal: Terminal = "grid",
    model: ModelName = None,
) -> None:
    """Plot the positions of slots over time, masked and revealed.

    Example: ddot plot trajectories "We were so ___ wedding." -o paths.png
    """
    if (text is None) == (saved is None):
        raise ValueError("give either a text with ___ or --from a saved trace")
    from ddot.figures.canvas import check_picture

    check_picture(output)
    settings: dict[str, Any] = {"steps": steps, "seed": seed, "terminal": terminal}
    if text is not None:
        request(text, Settings(**settings), free)  # report mistakes before a model is loaded
        frames = list(load_model(model).stream(text, **settings, free=free))
    elif saved is not None:
        from ddot.infill.frames import load_trace

        frames = load_trace(saved).frames
    from ddot.figures.trajectories import trajectories

    trajectories(frames, output, scaled)
    print(output)


@plot.command("coupling")
def plot_coupling(
    text: Annotated[str, typer.Argument(help=r"A sentence; \[brackets] mark missing words. Default: some are chosen.")],
    output: Picture = Path("coupling.png"),
    seed: Seed = 0,
) -> None:
    """Plot the straight training paths of a sentence, and count crossings, with and without optimal transport.

    Example: ddot plot coupling "The \\[small boat] leaves the harbour \\[at dawn]." -o ot.png
    """
    from ddot.figures.trajectories import marked_sentence, training_paths

    for name, crossed in training_paths(marked_sentence(text, seed), output, seed).items():
        print(f"{name}: {crossed['prompt']} crossings within the prompt, {crossed['response']} within the response")
    print(output)


def _chosen(files: list[Path], methods: str | None = None, models: str | None = None) -> list[dict[str, Any]]:
    """The rows of these contenders and models."""
    from ddot.evaluation.rows import refuse_unknown
    from ddot.evaluation.store import read_rows

    rows = read_rows(*files)
    for field, option, text in (("method", "--methods", methods), ("model", "--models", models)):
        if text is not None:
            names = names_of(text, option)
            refuse_unknown(f"no row has the {field}", names, sorted({str(row[field]) for row in rows if field in row}))
            rows = [row for row in rows if row.get(field) in names]
    return rows


@plot.command("quality")
def plot_quality(
    rows: Rows,
    output: Picture = Path("quality.png"),
    against: Annotated[str, typer.Option(help="steps, seconds per text, or minutes of training.")] = "steps",
    metric: Annotated[str, typer.Option(help="The vertical axis: bleu4, success, …")] = "bleu4",
    dataset: Dataset = None,
    task: Task = None,
    methods: Methods = None,
    models: Models = None,
) -> None:
    """Plot quality against the number of steps, seconds per text, or minutes of training (snapshots of one run).

    Example: ddot plot quality rows.jsonl --against seconds --dataset 1bw-block -o speed.png
    """
    chosen = _chosen(rows, methods, models)
    from ddot.figures.charts import draw_charts, quality

    draw_charts(quality(chosen, against, metric, dataset, task), output)
    print(output)


@plot.command("success")
def plot_success(
    rows: Rows,
    output: Picture = Path("success.png"),
    dataset: Dataset = None,
    task: Task = None,
    methods: Methods = None,
    models: Models = None,
) -> None:
    """Plot the share of texts that keep the given words, against the number of given words.

    Example: ddot plot success rows.jsonl --methods lc,ddot-u --task free -o success.png
    """
    chosen = _chosen(rows, methods, models)
    from ddot.figures.charts import ADDS_KEPT, draw_charts, success_by_given

    charts, uncounted = success_by_given(chosen, dataset, task)
    draw_charts(charts, output)
    if uncounted:
        say(f"{len(uncounted)} rows are left out: they do not say how many texts keep what is given; {ADDS_KEPT}")
    print(output)


@plot.command("cost")
def plot_cost(
    rows: Annotated[list[Path], typer.Argument(help="Rows written by ddot bench cost --json.")],
    output: Picture = Path("cost.png"),
) -> None:
    """Plot milliseconds per text against the words around a blank, and against the number of blanks.

    Example: ddot plot cost results/bench-cost.jsonl -o cost.png
    """
    chosen = _chosen(rows)
    from ddot.figures.charts import costs, draw_charts

    draw_charts(costs(chosen), output)
    print(output)
