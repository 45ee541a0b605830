"""Commands that fill blanks or show how: infill, watch, plot trajectories, info."""

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ddot.cli.app import Free, ModelName, Seed, Steps, Temperature, TerminalName, TopP, app, cuda, load_model, plot

if TYPE_CHECKING:
    from ddot.infill.settings import Settings


@app.command()
def infill(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with ___ where words are missing.")] = None,
    n: Annotated[int, typer.Option("--n", help="Number of alternatives to return, best first.")] = 1,
    steps: Steps = 16,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    free: Free = False,
    terminal: TerminalName = None,
    model: ModelName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines with fills and scores.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Save every step of filling one text, to plot later.")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="A file of JSON lines to fill.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Where filled lines go; resumes if begun.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the network first, about a minute: for large files on a GPU.")
    ] = False,
) -> None:
    """Fill the blanks of texts.

    ___ is a blank of any length, ___{3,8} one of 3 to 8 words, ___{5} one of exactly 5; \\___ is literal.

    Example: ddot infill "We were so ___ wedding." --n 3

    Example: ddot infill --free "earned cents share costs"

    Example: ddot infill --input in.jsonl --output out.jsonl
    """
    from ddot.infill.settings import Settings

    settings = Settings(n, seed, steps, temperature, top_p, terminal)
    if source is not None or output is not None:
        _infill_file(texts, source, output, free, model, settings, compiled)
        return
    if compiled:
        raise ValueError("--compile is for a large file on a GPU: give --input and --output, or leave it out")
    given = list(texts or ([] if sys.stdin.isatty() else [line.rstrip("\n") for line in sys.stdin if line.strip()]))
    if not given:
        raise ValueError('there is nothing to fill; for example: ddot infill "We were so ___ wedding."')
    if free and any("___" in text for text in given):
        raise ValueError("--free takes words in order, no blanks: text goes wherever it fits; leave out ___ or --free")
    if trace is not None and (len(given) != 1 or n != 1):
        raise ValueError("--trace saves one filling; give one text and --n 1")
    if trace is not None and not trace.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {trace.parent}; create it first")
    filler = load_model(model)
    requests = [filler.request(text, settings, free) for text in given]  # an error in the last comes before any work
    how = {name: value for name, value in asdict(settings).items() if name != "n"} | {"free": free}
    frames = None if trace is None else filler.stream(given[0], **how)
    for request, answers in zip(requests, filler.answers(requests), strict=True):
        if len(answers.best) < n:
            print(f"ddot: only {len(answers.best)} of {n} answers differ", file=sys.stderr)
        for each in (answer.infill for answer in answers.best):
            if as_json:
                print(json.dumps({**asdict(each), "steps": steps, "seed": seed}, ensure_ascii=False))
            else:
                Console(soft_wrap=True, highlight=False).print(_highlighted(request.template, each.fills))
    if trace is not None and frames is not None:
        from ddot.infill.frames import save_trace

        save_trace(trace, given[0], how, list(frames))


def _infill_file(
    texts: list[str] | None,
    source: Path | None,
    output: Path | None,
    free: bool,
    model: str | None,
    settings: "Settings",
    compiled: bool,
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ddot.infill.jsonl import Share, fill_file, merge, part_of
    from ddot.training.distributed import barrier, largest, processes

    if source is None or output is None:
        there, missing = ("--output", "--input") if source is None else ("--input", "--output")
        raise ValueError(f"{there} fills a file and needs {missing} as well")
    if texts or free:
        what = f"the text '{texts[0]}'" if texts else "--free"
        raise ValueError(
            f'--input and --output fill a file; leave out {what} (a line may have "free" instead of "text")'
        )
    with processes("cuda" if cuda() else "cpu", patience=timedelta(days=30)) as (rank, world, device):
        filler = load_model(model, str(device), compiled)
        columns = (TextColumn("filling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), disable=rank > 0)
        lines = len(Share(source, rank, world)) if source.is_file() else 0
        task = bar.add_task("", total=lines)
        part = part_of(output, rank, world)

        def advance(lines: int) -> None:
            bar.start()  # only when nothing is wrong with the files
            bar.update(task, completed=lines)

        try:
            done = fill_file(filler, source, part, settings, advance, rank, world)
        finally:
            bar.stop()
        barrier()
        stopped = bool(largest(float(done.lines < lines), 0.0)[0])
        if world > 1 and rank == 0 and not stopped:
            merge(output, world)
        barrier()
    if stopped:
        print(f"ddot: interrupted; {done.lines} lines are in {part}; run the same command to resume", file=sys.stderr)
        raise typer.Exit(130)
    if done.lines == done.before:
        said = f"all {done.lines} lines were in {output} already" if done.lines else f"{source} has no lines to fill"
        print(f"ddot: {said}", file=sys.stderr)
    if done.errors:
        print(
            f'ddot: {done.errors} of {done.lines} lines could not be filled; see "error" in {output}', file=sys.stderr
        )
        raise typer.Exit(1)


def _highlighted(template: Any, fills: list[str]) -> Text:
    """The text with the fills highlighted."""
    text = Text(template.literals[0])
    for fill, literal in zip(fills, template.literals[1:], strict=True):
        text.append(fill, style="bold green").append(literal)
    return text


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(help="A model folder; default: the embedded one.")] = None,
) -> None:
    """What a model is: network, size, training.

    Example: ddot info
    """
    from ddot.network.embedded import about

    print(json.dumps(about(model), indent=1))


@app.command()
def watch(
    text: Annotated[str, typer.Argument(help="A text with ___ where words are missing.")],
    steps: Steps = 16,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    free: Free = False,
    terminal: Annotated[str, typer.Option("--terminal", help="Where slots start: grid or random.")] = "grid",
    model: ModelName = None,
    delay: Annotated[float, typer.Option(min=0.0, help="Seconds each step is shown at least.")] = 0.15,
    trace: Annotated[Path | None, typer.Option(help="Save every step, to plot later.")] = None,
) -> None:
    """Watch the words move to their places, in the terminal.

    Example: ddot watch "We were so ___ wedding."
    """
    from ddot.figures.terminal import watch as show_frames
    from ddot.infill.frames import save_trace

    how = {"steps": steps, "seed": seed, "temperature": temperature, "free": free, "terminal": terminal}
    frames = show_frames(load_model(model).stream(text, **how), Console(), delay)
    if trace is not None:
        save_trace(trace, text, how, frames)


@plot.command("trajectories")
def plot_trajectories(
    text: Annotated[str | None, typer.Argument(help="A text with ___; or --from a saved trace.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("paths.png"),
    saved: Annotated[Path | None, typer.Option("--from", help="A trace saved by infill or watch.")] = None,
    scaled: Annotated[bool | None, typer.Option("--scaled/--unscaled", help="One plot; default: both.")] = None,
    steps: Steps = 32,
    seed: Seed = 0,
    free: Free = False,
    terminal: Annotated[str, typer.Option("--terminal", help="Where slots start: grid or random.")] = "grid",
    model: ModelName = None,
) -> None:
    """Positions over time, masked and revealed.

    Example: ddot plot trajectories "We were so ___ wedding." -o paths.png
    """
    from ddot.figures.trajectories import trajectories
    from ddot.infill.frames import load_trace

    if (text is None) == (saved is None):
        raise ValueError("give a text with ___, or --from a saved trace (one of the two)")
    if saved is not None:
        frames = load_trace(saved).frames
    else:
        frames = list(load_model(model).stream(text, steps=steps, seed=seed, free=free, terminal=terminal))
    trajectories(frames, output, scaled)
    print(output)


@plot.command("coupling")
def plot_coupling(
    text: Annotated[str, typer.Argument(help=r"A sentence; \[brackets] mark missing words. Without: some are chosen.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .svg file.")] = Path("coupling.png"),
    seed: Seed = 0,
) -> None:
    """The straight training paths of a sentence with and without optimal transport; crossings are counted.

    Example: ddot plot coupling "The \\[small boat] leaves the harbour \\[at dawn]." -o ot.png
    """
    from ddot.figures.paths import marked_sentence
    from ddot.figures.trajectories import training_paths

    for name, crossed in training_paths(marked_sentence(text, seed), output, seed=seed).items():
        print(f"{name}: {crossed['prompt']} crossings within the prompt, {crossed['response']} within the response")
    print(output)
