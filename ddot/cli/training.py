"""Commands that make models: finetune, prepare, train, convert."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ddot.cli.app import Device, ModelName, Seed, app, check_model, cuda, flag, say


def check_texts(sources: list[str]) -> None:
    """Report missing files before torch is imported."""
    from ddot.data.sources import read

    for source in sources:
        read(source)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: toy, smollm2, …; an unknown name lists them all.")],
    output: Annotated[Path, typer.Option(help="Folder of the run, which becomes a model folder.")],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Override a setting: training.steps=200.")
    ] = [],  # noqa: B006
    resume: Annotated[bool, flag("--resume", "Resume from the last complete checkpoint.")] = False,
) -> None:
    """Train a recipe. Use torchrun for several GPUs or machines.

    Example: ddot train toy --output runs/toy
    """
    from ddot.network.places import EMBEDDED
    from ddot.training import recipes
    from ddot.training.config import override
    from ddot.training.loop import train as train_run

    run = override(recipes.recipe(recipe), settings)
    if run.start and not Path(run.start).exists():
        start = Path(run.start)
        remedy = f"make it with ddot train {start.name} --output {start}"
        if start.parent.name == "base" or start.name not in recipes.RECIPES:  # a public checkpoint
            remedy = f"make it with ddot convert, or start from the embedded model: --set start={EMBEDDED}"
        raise FileNotFoundError(f"{recipe} starts from {start}, which does not exist; {remedy}")
    figures = train_run(run, output, resume)
    interrupted = figures.pop("interrupted", False)
    if figures:
        print(json.dumps(figures))
    if interrupted:
        raise typer.Exit(130)


@app.command()
def finetune(
    texts: Annotated[list[str], typer.Argument(help="Your texts: .txt or .jsonl (also .gz, .xz), or .parquet.")],
    output: Annotated[Path, typer.Option(help="The model folder to make.")],
    minutes: Annotated[float, typer.Option(help="Time limit, including measuring and saving.")] = 5.0,
    model: ModelName = None,
    device: Device = None,
    seed: Seed = 0,
) -> None:
    """Train a copy of the embedded model on your own text; a tenth of it is held out to measure progress.

    Example: ddot finetune my-texts.txt --output my-model
    """
    check_texts(texts)
    check_model(model)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from ddot.network.places import find
    from ddot.training.finetune import finetune as train_on

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task("learning", total=1.0)

    def tell(done: float, figures: dict[str, float]) -> None:
        bar.start()  # not before the texts have been checked
        nats = figures.get("nats", figures.get("before"))
        bar.update(task, completed=done, description=None if nats is None else f"learning: {nats:.2f} nats")

    try:
        result = train_on(texts, output, find(model), minutes, device or ("cuda" if cuda() else "cpu"), seed, tell)
    finally:
        if bar.live.is_started:  # stopping a bar that was not started prints an empty line
            bar.stop()
    print(json.dumps(asdict(result)))
    before = f"{result.nats_before:.3f} nats per missing token of the held-out text"
    if result.kept:
        after = f"{result.nats_after:.3f} (±{result.nats_error:.3f})"
        say(f"went down from {before} to {after}; use it with --model {output}")
    else:
        advice = f"{output} is the unchanged model: give more text or --minutes"
        say(f"nothing learnt in {result.steps} steps lowers the {before}; {advice}")
    if result.interrupted:
        raise typer.Exit(130)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A GGUF file, or a folder with a SEDD, MDLM or Llama checkpoint.")],
    dest: Annotated[Path, typer.Argument(help="The model folder to make.")],
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json for checkpoints without one.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Prune the vocabulary to this packed corpus or model.")] = None,
    least: Annotated[int, typer.Option(help="With --keep: keep tokens that occur at least this often.")] = 1,
    int8: Annotated[bool, flag("--int8", "Quantise a ddot model folder to 8 bits.")] = False,
) -> None:
    """Convert a public checkpoint to a model folder, or a model folder to 8 bits.

    Example: ddot convert SmolLM2-135M-Instruct.Q4_1.gguf runs/base/smollm2
    """
    from ddot.network.convert import convert as convert_checkpoint
    from ddot.network.embedded import shrink

    if int8:
        if tokenizer or keep:
            raise ValueError("--int8 takes a ddot model folder; leave out --tokenizer and --keep")
        shrink(source, dest)
        return
    config = convert_checkpoint(source, dest, tokenizer, keep, least)
    print(f"{dest}: {type(config.trunk).__name__}, {config.vocabulary.base} tokens", file=sys.stderr)


@app.command()
def prepare(
    sources: Annotated[list[str], typer.Argument(help="Text files (.txt .jsonl .parquet, .xz .gz) or hub:NAME.")],
    tokenizer: Annotated[Path, typer.Option(help="A tokenizer.json, or a model folder that holds one.")],
    output: Annotated[Path, typer.Option(help="The folder to make.")],
    split: Annotated[str, typer.Option(help="sentences, lines (each one piece) or functions (Python).")] = "sentences",
    form: Annotated[str, typer.Option(help="natural, news (One-Billion-Word) or reviews (Yelp).")] = "natural",
    field: Annotated[str | None, typer.Option(help="Field or column that holds the text.")] = None,
    without: Annotated[list[Path], typer.Option(help="Benchmark .jsonl files whose texts are excluded.")] = [],  # noqa: B006
    limit: Annotated[int | None, typer.Option(help="Maximum number of documents.")] = None,
    shard_mb: Annotated[int, typer.Option(help="Megabytes per shard.")] = 1024,
    apart: Annotated[bool, flag("--apart", "Treat every sentence as a separate text.")] = False,
) -> None:
    """Pack text into token shards for training.

    Example: ddot prepare news.txt.xz --tokenizer runs/base/smollm2 --output runs/data/news
    """
    check_texts(sources)
    from ddot.data.prepare import prepare as pack_sources

    meta = pack_sources(sources, tokenizer, output, split, form, field, without, limit, shard_mb << 20, apart)
    print(json.dumps({name: meta[name] for name in ("documents", "sentences", "tokens")}))
