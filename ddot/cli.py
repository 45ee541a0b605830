"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Fill blanks of unknown length in text.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios within one run.")
app.add_typer(bench, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, a row a line, instead of a table.")]


def run() -> None:
    """The `ddot` command."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"ddot: {error}", file=sys.stderr)
        sys.exit(2)


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Rows to stdout: JSON lines, or a table with numbers rounded for reading."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = Table()
    if not rows:
        print("ddot: nothing new to show", file=sys.stderr)
        return
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right" if name != next(iter(rows[0])) else "left")
    for row in rows:
        table.add_row(*("" if v is None else f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


ModelName = Annotated[
    str | None, typer.Option("--model", help="A model folder, or owner/name on the hub. Default: the embedded model.")
]
Steps = Annotated[int, typer.Option(help="Steps of the reverse process.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]
Temperature = Annotated[float, typer.Option(help="0: the likeliest words; 1: as the model says.")]
TopP = Annotated[float, typer.Option(help="With a temperature: the likeliest words of this total chance.")]
Free = Annotated[bool, typer.Option("--free", help="No blanks: these words, in order, with text wherever it fits.")]
TerminalName = Annotated[
    str | None, typer.Option("--terminal", help="grid or random: slots start there and move (DDOT-U, DDOT-R).")
]


@app.command()
def infill(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts with ___ where words are missing.")] = None,
    n: Annotated[int, typer.Option("--n", help="So many different answers, best first.")] = 1,
    steps: Steps = 16,
    seed: Seed = 0,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    free: Free = False,
    terminal: TerminalName = None,
    model: ModelName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines with fills and scores.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Save how the words moved (one text).")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="A file of JSON lines to fill.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Where filled lines go; goes on if begun.")] = None,
) -> None:
    """Fill the blanks of texts.

    ___ is a blank of any length, ___{3,8} one of 3 to 8 words, ___{5} one of exactly 5; \\___ is literal.

    Example: ddot infill "We were so ___ wedding." --n 3

    Example: ddot infill --free "earned cents share costs"

    Example: ddot infill --input in.jsonl --output out.jsonl
    """
    settings = {
        "n": n, "steps": steps, "seed": seed, "temperature": temperature, "top_p": top_p, "terminal": terminal
    }  # fmt: skip
    if source is not None or output is not None:
        _infill_file(texts, source, output, free, model, settings)
        return
    given = list(texts or ([] if sys.stdin.isatty() else [line.rstrip("\n") for line in sys.stdin if line.strip()]))
    if not given:
        raise ValueError('there is nothing to fill; for example: ddot infill "We were so ___ wedding."')
    if trace is not None and (len(given) != 1 or n != 1):
        raise ValueError("--trace saves one filling; give one text and --n 1")
    filler = _load(model)
    for text in given:
        for found in filler.infill(text, free=free, **settings):
            if as_json:
                print(json.dumps({**asdict(found), "steps": steps, "seed": seed}, ensure_ascii=False))
            else:
                Console(soft_wrap=True, highlight=False).print(_highlighted(filler.template(text, free), found.fills))
    if trace is not None:
        from ddot.trace import save_trace

        del settings["n"]
        save_trace(trace, given[0], settings, list(filler.stream(given[0], free=free, **settings)))


def _infill_file(
    texts: list[str] | None, source: Path | None, output: Path | None, free: bool, model: str | None, settings: Any
) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ddot.batch import count_lines, fill_file, merge, part_of
    from ddot.distributed import barrier, processes

    if source is None or output is None or texts or free:
        raise ValueError('a file wants --input and --output and no texts; a line of it may say "free"')
    with processes("cpu" if not _cuda() else "cuda") as (rank, world, device):
        filler = _load(model, str(device))
        columns = (TextColumn("filling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), disable=rank > 0) as bar:
            task = bar.add_task("", total=-(-count_lines(source) // world) if source.is_file() else None)
            part = part_of(output, rank, world)
            done = fill_file(filler, source, part, settings, lambda n: bar.update(task, completed=n), rank, world)
        barrier()
        if world > 1 and rank == 0 and not done.interrupted:
            merge(output, world)
        barrier()
    if done.interrupted:
        print(f"ddot: interrupted; {done.lines} lines are in {part}, the same command goes on", file=sys.stderr)
        raise typer.Exit(130)
    if done.errors:
        print(
            f'ddot: {done.errors} of {done.lines} lines could not be filled; see "error" in {output}', file=sys.stderr
        )
        raise typer.Exit(1)


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _load(name: str | None, device: str | None = None) -> Any:
    """A model, with the cores of this machine shared out as is best for short texts: one each."""
    import torch

    from ddot.infill import load

    torch.set_num_threads(1)
    return load(name, device, threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def _highlighted(template: Any, fills: list[str]) -> Text:
    """The text with what was filled in set off."""
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
    from ddot.package import about

    print(json.dumps(about(model), indent=1))


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as toy; see ddot train --help.")],
    output: Annotated[Path, typer.Option(help="Folder of the run; a model folder afterwards.")],
    settings: Annotated[list[str], typer.Option("--set", help="Change a part: training.steps=200.")] = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last complete checkpoint.")] = False,
) -> None:
    """Train a recipe. Start it with torchrun for several GPUs or machines.

    Example: ddot train toy --output runs/toy
    """
    from ddot import recipes
    from ddot.run import override
    from ddot.train import train as train_run

    run = override(recipes.recipe(recipe), settings)
    figures = train_run(run, output, resume)
    if figures:
        print(json.dumps(figures))


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A GGUF file, or a folder with a SEDD, MDLM or Llama checkpoint.")],
    dest: Annotated[Path, typer.Argument(help="The model folder to make.")],
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json for checkpoints that bring none.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Prune the vocabulary to what this packed corpus uses.")] = None,
    least: Annotated[int, typer.Option(help="With --keep: tokens that occur at least so often.")] = 1,
) -> None:
    """Turn somebody else's checkpoint into a model folder.

    Example: ddot convert SmolLM2-135M-Instruct.Q4_1.gguf runs/base/smollm2
    """
    from ddot.convert import convert as convert_checkpoint

    config = convert_checkpoint(source, dest, tokenizer, keep, least)
    print(f"{dest}: {type(config.trunk).__name__}, {config.vocabulary.base} tokens", file=sys.stderr)


@app.command()
def prepare(
    sources: Annotated[list[str], typer.Argument(help="Text files (.txt .jsonl .parquet, .xz .gz) or hub:NAME.")],
    tokenizer: Annotated[Path, typer.Option(help="A tokenizer.json, or a model folder that holds one.")],
    output: Annotated[Path, typer.Option(help="The folder to make.")],
    split: Annotated[str, typer.Option(help="sentences, or lines (a line is one piece).")] = "sentences",
    form: Annotated[str, typer.Option(help="natural, news (One-Billion-Word) or reviews (Yelp).")] = "natural",
    field: Annotated[str | None, typer.Option(help="Field or column that holds the text.")] = None,
    without: Annotated[list[Path], typer.Option(help="Benchmark .jsonl files whose texts are left out.")] = [],  # noqa: B006
    limit: Annotated[int | None, typer.Option(help="At most so many documents.")] = None,
    shard_mb: Annotated[int, typer.Option(help="Megabytes a shard.")] = 1024,
    apart: Annotated[bool, typer.Option("--apart", help="Every sentence is a text of its own.")] = False,
) -> None:
    """Pack text into token shards that training reads without the text.

    Example: ddot prepare news.txt.xz --tokenizer runs/base/smollm2 --output runs/data/news
    """
    from ddot.prepare import prepare as pack_sources

    meta = pack_sources(sources, tokenizer, output, split, form, field, without, limit, shard_mb << 20, apart)
    print(json.dumps({name: meta[name] for name in ("documents", "sentences", "tokens")}))


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, or embedded.")],
    bench: Annotated[Path, typer.Option(help="Folder with NAME.test.jsonl and NAME.dev.jsonl.")],
    output: Annotated[Path, typer.Option(help="Rows are appended here; those it has are not made again.")],
    datasets: Annotated[str, typer.Option(help="Names, with commas.")] = "1bw-block,yelp-block,1bw-random,yelp-random",
    tasks: Annotated[str, typer.Option(help="located, free or both.")] = "located,free",
    methods: Annotated[str, typer.Option(help="unfilled and ways of filling, with commas.")] = "unfilled,planned",
    steps: Annotated[str, typer.Option(help="Numbers of steps, with commas.")] = "16",
    split: Annotated[str, typer.Option(help="test, or dev for tuning.")] = "test",
    seed: Seed = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many items.")] = None,
    metrics: Annotated[
        str, typer.Option(help="Names, with commas.")
    ] = "bleu2,bleu4,success,length_error,length_error_abs",
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fill benchmark items and score the texts; goes on where it was stopped.

    Example: ddot evaluate embedded --bench bench --output results/rows.jsonl --limit 100
    """
    from ddot.evaluate import Loaded
    from ddot.evaluate import evaluate as rows_of

    asked = _load(None if model == "embedded" else model, device)
    on_gpu = asked.filler.device.type == "cuda"
    loaded = Loaded(asked.denoiser, asked.tokenizer, model, 256 if on_gpu else 1, 1 if on_gpu else asked.threads)
    sets, kinds, ways, measures = (text.split(",") for text in (datasets, tasks, methods, metrics))
    counts = _numbers(steps, "--steps")
    rows = rows_of(loaded, bench, output, sets, kinds, ways, counts, split, seed, limit, measures)
    aside = () if as_json else ("model", "split", "seed", "items", "length_error_abs", "batch", "device", "commit")
    show([{name: value for name, value in row.items() if name not in aside} for row in rows], as_json)


def _numbers(text: str, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} wants whole numbers with commas, got '{text}'") from None


@bench.command("coupling")
def bench_coupling(as_json: AsJson = False, seconds: float = 1.0) -> None:
    """The linear-time coupling against the paper's dynamic program, SciPy, POT and a plain sort, on one core.

    Example: ddot bench coupling --json
    """
    from ddot.bench.coupling import SLOWDOWN_BAR, measure, slowdown

    rows = measure(seconds=seconds)
    show(rows, as_json)
    print(f"time a slot at L=1024 over L=64: {slowdown(rows):.2f} (bar: at most {SLOWDOWN_BAR})", file=sys.stderr)


@bench.command("infill")
def bench_infill(
    model: ModelName = None,
    steps: Steps = 16,
    rounds: Annotated[int, typer.Option(help="Times each sentence is filled.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Milliseconds a sentence: as shipped, in float32, the plain way, moving slots, left to right; one run, one core.

    Example: ddot bench infill --json
    """
    import torch

    from ddot.bench.infill import measure

    torch.set_num_threads(1)
    show(measure(model, steps, rounds), as_json)


@bench.command("train")
def bench_train(
    networks: Annotated[list[str], typer.Argument(help="sedd-small, sedd-medium, smollm2, toy.")] = ["toy"],  # noqa: B006
    length: Annotated[list[int], typer.Option(help="L, as often as wanted.")] = [64],  # noqa: B006
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    slots: Annotated[int, typer.Option(help="Slots a batch, B times L.")] = 2048,
    steps: Annotated[int, typer.Option(help="Steps; the second half is timed.")] = 20,
    workers: Annotated[int, typer.Option(help="Loader processes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Training speed: slots a second, share of the measured bf16 matrix peak, waiting for data, couplings on and off.

    Example: ddot bench train smollm2 sedd-small --device cuda --slots 131072 --steps 60 --workers 14
    """
    from ddot.bench.train import measure

    show(measure(networks, length, device, slots, steps, workers), as_json)


if __name__ == "__main__":
    run()
