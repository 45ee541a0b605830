"""Commands that fill blanks: infill, lengths, score, info."""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ddot.cli.app import (
    AsJson,
    Device,
    Free,
    ModelName,
    Precision,
    Seed,
    Steps,
    Temperature,
    app,
    check_model,
    cuda,
    flag,
    load_model,
    say,
)
from ddot.infill.mistakes import COMMAND_LINE, told
from ddot.infill.request import ROLLOUTS, request, to_count, to_score
from ddot.infill.settings import Settings

if TYPE_CHECKING:
    from ddot.infill.jsonl import Line
    from ddot.infill.model import Model

_NOTHING = 'there is nothing to fill; for example: ddot infill "We were so ___ wedding."'
_TERMINAL = "Let slots move, from a grid or random start (DDOT-U, DDOT-R); ddot watch shows it."


@app.command()
def infill(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with ___ where words are missing.")] = None,
    n: Annotated[int, typer.Option("--n", help="Number of alternatives to return, best first.")] = 1,
    steps: Steps = 16,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    top_p: Annotated[float, typer.Option(help="Above temperature 0: sample from this share of probability.")] = 1.0,
    free: Free = False,
    avoid: Annotated[
        list[str], typer.Option(metavar="WORD", help="A word that fills must not contain; may be repeated.")
    ] = [],  # noqa: B006
    lock: Annotated[
        list[str], typer.Option(metavar="TEXT", help="The fill of each blank in turn; - leaves a blank open.")
    ] = [],  # noqa: B006
    terminal: Annotated[str | None, typer.Option(help=_TERMINAL)] = None,
    model: ModelName = None,
    device: Device = None,
    precision: Precision = "auto",
    threads: Annotated[int | None, typer.Option(help="Texts filled at once on a CPU. Default: one per core.")] = None,
    quiet: Annotated[bool, flag("--quiet", "Only errors: no progress and no remarks.")] = False,
    as_json: Annotated[bool, flag("--json", "Print JSON lines with fills and scores.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Save every step of filling one text, to plot later.")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="A file of JSON lines to fill; - is stdin.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where they go; a file is resumed. Default: stdout.")] = None,
    compiled: Annotated[bool, flag("--compile", "Compile first, about a minute: for large files on a GPU.")] = False,
) -> None:
    """Fill the blanks of texts.

    ___ is a blank of any length, ___{3,8} one of 3 to 8 words, ___{5} one of exactly 5; \\___ is literal.

    Example: ddot infill "We were so ___ wedding." --n 3

    Example: ddot infill --free "earned cents share costs"

    Example: ddot infill --input in.jsonl --output out.jsonl
    """
    settings = Settings(n, seed, steps, temperature, top_p, terminal, avoid)
    options: dict[str, Any] = {"name": model, "device": device, "precision": precision, "threads": threads}
    if source is not None or output is not None:
        if source is None:
            raise ValueError("--output needs --input, a file to fill; to save texts, use > instead")
        others = {f"the text '{texts[0]}'" if texts else "": texts, "--free": free, "--lock": lock, "--json": as_json}
        if unused := [name for name, value in {**others, "--trace": trace}.items() if value]:
            hint = ' (a line may have "free" instead of "text", and "fills")'
            raise ValueError(f"--input and --output fill a file; leave out {unused[0]}{hint}")
        _infill_file(source, output or Path("-"), settings, {**options, "compile": compiled}, quiet)
        return
    if compiled:
        raise ValueError("--compile is for a large file on a GPU: give --input and --output, or leave it out")
    if trace is not None:
        check_trace(trace, texts, n, lock)
    at_terminal = not texts and sys.stdin is not None and sys.stdin.isatty()
    lines = _lines(texts, lock, settings, free)
    filler = load_model(**{**options, "threads": 1} if at_terminal else options)
    bad = _print_answers(filler, lines, as_json, n > 1 and not at_terminal and len(texts or "ab") > 1, quiet)
    if trace is not None and texts:
        from ddot.infill.frames import save_trace

        saved = {name: value for name, value in asdict(settings).items() if name != "n"} | {"free": free}
        save_trace(trace, texts[0], saved, list(filler.stream(texts[0], **saved)))
    if bad:
        raise typer.Exit(1)


def check_trace(trace: Path, texts: Sequence[str] | None, n: int = 1, lock: Sequence[str] = ()) -> None:
    if len(texts or ()) != 1 or n != 1 or lock:
        raise ValueError("--trace saves one fill; give one text and --n 1, and leave out --lock")
    if trace.is_dir() or not trace.parent.is_dir():
        problem = f"{trace} is a folder" if trace.is_dir() else f"there is no folder {trace.parent}"
        raise FileNotFoundError(f"{problem}; --trace must be a file in an existing folder")


def _lines(texts: Sequence[str] | None, lock: Sequence[str], settings: Settings, free: bool) -> Iterable["Line"]:
    """The lines to fill: texts from the command line, typed at a terminal, or from stdin."""
    from ddot.infill.jsonl import Line, is_object, lines_of, read_text

    if texts:
        if free and any("___" in text for text in texts):
            raise ValueError("--free takes words without blanks and adds text where it fits; leave out ___ or --free")
        if lock and len(texts) > 1:
            raise ValueError(f"--lock gives the fills of one text, but there are {len(texts)}; give one")
        fills = [None if fill == "-" else fill for fill in lock] or None
        try:
            return [Line(number, request(text, settings, free, fills)) for number, text in enumerate(texts, 1)]
        except ValueError as error:
            if advice := _advice(texts):
                raise ValueError(f"{told(error, COMMAND_LINE).rpartition(';')[0]}; {advice}") from None
            raise
    if lock:
        raise ValueError("--lock gives the fills of one text; give the text as well")
    if sys.stdin is None:
        raise ValueError(_NOTHING)
    if sys.stdin.isatty():
        return _typed(settings, free)
    numbered = ((number, line) for number, line in enumerate(lines_of(sys.stdin.buffer.readline), 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise ValueError(_NOTHING)
    if b"\0" in first[1]:
        raise ValueError(f"line {first[0]} of stdin has a NUL byte, so it is a binary file; wanted a text a line")
    if is_object(first[1]):
        say("stdin is filled as plain text; to fill JSON lines, give --input -")
    return (read_text(number, line, settings, free) for number, line in chain([first], numbered))


def _advice(texts: Sequence[str]) -> str:
    """What the user probably meant, if texts look like a single unquoted text or a file."""
    if len(texts) > 1 and not any(" " in text for text in texts):
        return f"put a text of several words in quotes: ddot infill {shlex.quote(' '.join(texts))}"
    files = [text for text in texts if len(text) < 256 and "\0" not in text and Path(text).is_file()]
    if not files:
        return ""
    name = shlex.quote(files[0])
    is_jsonl = ".jsonl" in Path(files[0]).suffixes
    return f"to fill the file {files[0]}: ddot infill {f'--input {name} --output …' if is_jsonl else f'< {name}'}"


def _typed(settings: Settings, free: bool) -> Iterator["Line"]:
    """Templates typed at a terminal, until end of file."""
    from ddot.infill.jsonl import Line

    print("A text with ___ where words are missing, then Enter; Ctrl-D to end.", file=sys.stderr)
    number = 0
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        text = sys.stdin.readline()
        if not text:
            print(file=sys.stderr)
            return
        if text.strip():
            number += 1
            try:
                yield Line(number, request(text.removesuffix("\n"), settings, free))
            except ValueError as error:
                say(told(error, COMMAND_LINE))


def _print_answers(model: "Model", lines: Iterable["Line"], as_json: bool, numbered: bool, quiet: bool) -> int:
    """Print answers as they arrive, `numbered` with their line. Returns the number of lines that failed."""
    from ddot.infill.jsonl import NO_ANSWER, answer_lines, as_line

    bad, console = 0, Console()
    colour = console.is_terminal and not console.is_dumb_terminal and not console.no_color
    for line, answers in answer_lines(model, lines):
        if answers is None or line.request is None or not answers.best:
            bad += 1
            error = line.error or f"text {line.id}: {NO_ANSWER}"
            say(error)
            if as_json:
                sys.stdout.write(as_line({"id": line.id, "error": error}).decode())
            continue
        settings = line.request.settings
        if len(answers.best) < settings.n and not quiet:
            say(f"only {len(answers.best)} of {settings.n} answers differ")
        for infill in (answer.infill for answer in answers.best):
            if as_json:
                row = {"id": line.id, **asdict(infill), "steps": settings.steps, "seed": settings.seed}
                sys.stdout.write(as_line(row).decode())
            else:
                fills = [f"\x1b[1;32m{fill}\x1b[0m" if colour and fill else fill for fill in infill.fills]
                sys.stdout.write(f"{line.id}\t" * numbered + line.request.whole.text(fills) + "\n")
        sys.stdout.flush()
    return bad


def _infill_file(source: Path, output: Path, settings: Settings, options: dict[str, Any], quiet: bool) -> None:
    """`options`: those of `load_model`."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ddot.infill.jsonl import STREAM, Job, Share, check_files
    from ddot.network.places import EMBEDDED_NAME

    check_model(options["name"], options["precision"], options["threads"])  # before torch is imported
    check_files(Share(source), output)
    from ddot.training.distributed import barrier, largest, processes

    device = options["device"] or ("cuda" if cuda() else "cpu")
    with processes(device, patience=timedelta(days=30)) as (rank, world, own_device):
        name = EMBEDDED_NAME if options["name"] is None else options["name"]
        job = Job(source, output, settings, name, rank, world)
        filler = load_model(**{**options, "device": str(own_device)})
        columns = (TextColumn("filling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = rank > 0 or quiet or (output == STREAM and sys.stdout.isatty())
        bar = Progress(*columns, console=Console(stderr=True), disable=hidden)
        lines = None if job.share.is_stream else len(job.share)
        task = bar.add_task("", total=lines)

        def advance(lines: int) -> None:
            bar.start()
            bar.update(task, completed=lines)

        try:
            done = job.run(filler, advance)
        finally:
            if bar.live.is_started:  # stopping a bar that was not started prints an empty line
                bar.stop()
        barrier()
        stopped = bool(largest(float(done.interrupted and done.lines != lines), 0.0)[0])
        if rank == 0 and not stopped:
            job.finish()
        barrier()
    if stopped:
        say(f"interrupted; {done.lines} lines are in {job.part}; run the same command to resume")
        raise typer.Exit(130)
    if done.lines == done.before and not quiet:
        say(f"all {done.lines} lines were in {output} already" if done.lines else f"{source} has no lines to fill")
    if done.errors:
        say(f'{done.errors} of {done.lines} lines could not be filled; see "error" in the output')
        raise typer.Exit(1)


@app.command()
def lengths(
    text: Annotated[str, typer.Argument(help="A text with ___ where words are missing.")],
    seed: Seed = 0,
    rollouts: Annotated[int, typer.Option(help="Number of quick fills to count.")] = ROLLOUTS,
    model: ModelName = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """How many words each blank is likely to get, as bars.

    Example: ddot lengths "He was born in ___ and moved away because ___."
    """
    to_count(text, seed, rollouts)  # report mistakes before a model is loaded
    for number, shares in enumerate(load_model(model, device).lengths(text, seed, rollouts), 1):
        if as_json:
            print(json.dumps({"blank": number, "words": shares}))
            continue
        print(f"blank {number}")
        for words, share in shares.items():
            print(f"{words:4} {'word ' if words == 1 else 'words'} {'█' * max(1, round(40 * share))} {share:.0%}")


@app.command()
def score(
    text: Annotated[str, typer.Argument(help="A text with ___ where words are missing.")],
    fills: Annotated[list[str], typer.Option(metavar="TEXT", help="A fill of your own for each blank in turn.")],
    steps: Steps = 16,
    model: ModelName = None,
    device: Device = None,
    precision: Precision = "auto",
    as_json: AsJson = False,
) -> None:
    """How likely fills of your own are, comparable with the scores of infill for the same text; higher is better.

    In int8 a score may be half a nat off that of infill; with --precision float32 both are equal.

    Example: ddot score "I like ___ tea." --fills "green"
    """
    to_score(text, fills, Settings(steps=steps))  # report mistakes before a model is loaded
    scored = load_model(model, device, precision).scored(text, fills, steps=steps)
    if as_json:
        print(json.dumps({**asdict(scored), "steps": steps}, ensure_ascii=False))
        return
    print(f"{scored.score:.3f}  {scored.text}")
    if len(fills) > 1:
        for likelihood, fill in zip(scored.scores, scored.fills, strict=True):
            print(f"{likelihood:10.3f}  {fill.strip()}")


@app.command()
def info(
    folder: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="The same as --model: a folder, or owner/name.")
    ] = None,
    model: ModelName = None,
) -> None:
    """Describe a model: network, size, training.

    Example: ddot info
    """
    if folder is not None and model is not None:
        raise ValueError(f"there are two models, {folder} and {model}; give one")
    model = model if folder is None else folder
    check_model(model)
    from ddot.network.embedded import about

    print(json.dumps(about(model), indent=1))
