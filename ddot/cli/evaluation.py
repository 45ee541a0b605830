"""Commands that measure quality: evaluate, score, compare, tables."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddot.cli.app import AsJson, Device, ModelName, Seed, app, cuda, load_model, names_of, numbers, show

if TYPE_CHECKING:
    from ddot.evaluation.metrics import Fluency

LanguageModelFolder = Annotated[
    Path | None, typer.Option("--language-model", help="For perplexity: a causal model that ddot convert made.")
]
# What a table on the screen leaves out of rows.
_ASIDE = ("model", "split", "seed", "items", "length_error_abs", "batch", "device", "commit", "cut", "kept")


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, embedded, or a recipe: what is in runs/RECIPE.")],
    bench: Annotated[Path, typer.Option(help="Folder with NAME.test.jsonl and NAME.dev.jsonl.")],
    output: Annotated[Path, typer.Option(help="Rows are appended here; those it has are not made again.")],
    datasets: Annotated[str, typer.Option(help="Names, with commas.")] = "1bw-block,yelp-block,1bw-random,yelp-random",
    tasks: Annotated[str, typer.Option(help="located, free, or both with a comma.")] = "located,free",
    methods: Annotated[str, typer.Option(help="unfilled and ways of filling, with commas.")] = "unfilled,planned",
    steps: Annotated[str, typer.Option(help="Numbers of steps, with commas.")] = "16",
    split: Annotated[str, typer.Option(help="test, or dev for tuning.")] = "test",
    seed: Seed = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many items.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Names, separated by commas. Default: the usual ones.")] = None,
    device: Device = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts of 64 slots that a GPU fills at once.")] = 512,
    language_model: LanguageModelFolder = None,
    as_json: AsJson = False,
) -> None:
    """Fill benchmark items and score the texts; goes on where it was stopped.

    Texts go to a file beside the rows, as they come.

    Example: ddot evaluate embedded --bench bench --output results/rows.jsonl --limit 100
    """
    from ddot.evaluation.contenders import learnt
    from ddot.evaluation.filling import Loaded
    from ddot.evaluation.rows import measured
    from ddot.evaluation.run import evaluate as rows_of
    from ddot.evaluation.tables import read_rows
    from ddot.network.embedded import find, is_compressed, training_of

    options = {"--datasets": datasets, "--tasks": tasks, "--methods": methods}
    sets, kinds, ways = (names_of(text, option) for option, text in options.items())
    measures = names_of(metrics, "--metrics") if metrics else []
    counts = numbers(steps, "--steps")
    name = _folder_of(model)
    asked, training = load_model(name, device), training_of(name)
    if is_compressed(find(name)):
        training |= {"stored": "int8"}
    at_once = batch if asked.denoiser.device.type == "cuda" else 1
    loaded = Loaded(asked, str(Path(name)) if name else "embedded", at_once, training)
    for way in (way for way in ways if not learnt(way, training.get("recipe"))):
        print(
            f"ddot: {model} was not trained to fill as {way} does; its rows say nothing about that method",
            file=sys.stderr,
        )
    fluency = _fluency(language_model, measures, device)
    rows = []
    asked_of = (loaded, bench, output, sets, kinds, ways, counts, split, seed, limit, measures or None, fluency)
    for row in rows_of(*asked_of, _progress()):
        print(f"ddot: {_about(row)}: done", file=sys.stderr)
        rows.append(row)
    rows = _without_missing(rows)
    about: dict[str, list[Any]] = {"model": [loaded.name], "split": [split], "seed": [seed]}
    about |= {"dataset": sets, "task": kinds, "method": ways, "steps": counts}
    there = measured(read_rows(output)) if output.is_file() else []
    mine = [row for row in there if all(row[name] in some for name, some in about.items())]
    if lacking := [name for name in measures if any(name not in row for row in mine)]:
        adds = f"ddot score {output} --bench {bench} --metrics {','.join(lacking)}"
        adds += " --language-model DIR" * ("perplexity" in lacking)
        print(f"ddot: {adds} adds what is missing, once it can be had", file=sys.stderr)
    if not mine:  # why was said
        raise typer.Exit(2)
    if not rows:
        print(f"ddot: {output} has these rows already; ddot tables {output} shows them", file=sys.stderr)
        return
    aside = () if as_json else (*_ASIDE, *training)
    show([{name: value for name, value in row.items() if name not in aside} for row in rows], as_json)


def _about(row: Mapping[str, Any]) -> str:
    return f"{row['method']}, {row['dataset']}, {row['task']}, {row['steps']} steps"


def _progress(every: float = 10.0) -> Callable[[Mapping[str, Any], int, int], None]:
    """Says now and then how many texts of a row there are."""
    last = time.monotonic()

    def tell(row: Mapping[str, Any], count: int, new: int) -> None:
        nonlocal last
        if not new:
            print(f"ddot: {_about(row)}: going on after {count:,} of {row['items']:,} texts", file=sys.stderr)
        elif time.monotonic() - last >= every and count < row["items"]:
            last = time.monotonic()
            print(f"ddot: {_about(row)}: {count:,} of {row['items']:,} texts", file=sys.stderr)

    return tell


def _folder_of(model: str) -> str | None:
    """The folder of a model that is named as `ddot evaluate` allows; None for the embedded one."""
    from ddot.training.recipes import RECIPES

    if model == "embedded":
        return None
    if Path(model).exists() or model not in RECIPES:
        return model
    folder = Path("runs", model)
    if not folder.exists():
        raise FileNotFoundError(f"{model} is a recipe, and there is no {folder}; ddot train {model} --output {folder}")
    return str(folder)


@app.command()
def nats(
    bench: Annotated[Path, typer.Option(help="Folder with NAME.SPLIT.jsonl files.")],
    model: ModelName = None,
    datasets: Annotated[str, typer.Option(help="Names, separated by commas.")] = "people,rocstories,1bw-block",
    split: Annotated[str, typer.Option(help="dev or test.")] = "dev",
    limit: Annotated[int | None, typer.Option(min=1, help="Texts per set. Default: all of people, 50, 90.")] = None,
    language_model: Annotated[
        Path | None,
        typer.Option(help="A causal model made by ddot convert: sees the text before the blank only."),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Nats per token of a blank's true words, revealed from left to right: the model sees both sides and the length.

    Example: ddot nats --bench bench --language-model runs/base/smollm2
    """
    from ddot.evaluation.metrics.fluency import causal_model
    from ddot.evaluation.nats import measure

    asked, sets = load_model(model, device), names_of(datasets, "--datasets")
    causal = causal_model(language_model, device=str(asked.denoiser.device)) if language_model else None
    show(measure(asked.denoiser, asked.tokenizer, bench, sets, split, limit, causal), as_json)


@app.command("score")
def score_texts(
    rows: Annotated[Path, typer.Argument(help="Rows that ddot evaluate wrote; their texts stand beside them.")],
    bench: Annotated[Path, typer.Option(help="Folder with NAME.test.jsonl and NAME.dev.jsonl.")],
    metrics: Annotated[str, typer.Option(help="Names, with commas; what a row says already is not worked out again.")],
    samples: Annotated[int, typer.Option(min=0, help="Resamples of the items for 95% intervals; 0: none.")] = 0,
    language_model: LanguageModelFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """More metrics for texts that were filled before, and how sure they are; the model is not needed.

    Example: ddot score rows.jsonl --bench bench --metrics nist2,nist4,meteor,codebleu

    Example: ddot score rows.jsonl --bench bench --metrics bleu4,success --samples 1000
    """
    from ddot.evaluation.rescore import rescore

    names = names_of(metrics, "--metrics")
    found = _without_missing(list(rescore(rows, bench, names, samples, _fluency(language_model, names, device))))
    if not found:
        print(f"ddot: the rows of {rows} say all that already; ddot tables {rows} shows them", file=sys.stderr)
        return
    if not any(name in row for row in found for name in names):  # why was said
        raise typer.Exit(2)
    shown = ("method", "dataset", "task", "steps", "seed")
    show(
        [row if as_json else {**{name: row.get(name) for name in shown}, **_sure(row, names)} for row in found],
        as_json,
    )


def _sure(row: dict[str, Any], metrics: list[str]) -> dict[str, Any]:
    """Metrics for reading, with their intervals where they have one."""
    shown: dict[str, Any] = {}
    for name in metrics:
        value, sure = row.get(name), (row.get("intervals") or {}).get(name)
        shown[name] = value if sure is None else f"{value:.3g} [{sure[0]:.3g}, {sure[1]:.3g}]"
    return shown


@app.command()
def compare(
    rows: Annotated[list[Path], typer.Argument(help="Rows that ddot evaluate wrote; their texts stand beside them.")],
    bench: Annotated[Path, typer.Option(help="Folder with NAME.test.jsonl and NAME.dev.jsonl.")],
    methods: Annotated[str, typer.Option(help="The first is compared with each of the others; with commas.")],
    metrics: Annotated[str, typer.Option(help="Names, with commas.")] = "bleu4,success",
    samples: Annotated[int, typer.Option(min=1, help="Resamples of the items.")] = 1000,
    language_model: LanguageModelFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """One method minus others on the same items, with 95% intervals of the paired bootstrap; `wins` is the share of
    resamples in which the first is higher, a tie counts half.

    Example: ddot compare rows/*.jsonl --bench bench --methods ddot-u,lc,pop
    """
    from ddot.evaluation.rescore import contrast

    names, measures = names_of(methods, "--methods"), names_of(metrics, "--metrics")
    found = list(contrast(rows, bench, names, measures, samples, _fluency(language_model, measures, device)))
    found = [row for row in _without_missing(found) if "metric" in row]
    if not found:  # why was said
        raise typer.Exit(2)
    same = ("model", "other", "split", "seed", "items")
    aside = () if as_json else [name for name in same if len({row[name] for row in found}) < 2]
    show([{name: value for name, value in row.items() if name not in aside} for row in found], as_json)


def _without_missing(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, once what they say of missing metrics is told, each sentence once."""
    for sentence in dict.fromkeys(said for row in rows for said in row.pop("missing", {}).values()):
        print(f"ddot: {sentence}", file=sys.stderr)
    return rows


def _fluency(folder: Path | None, metrics: list[str], device: str | None) -> "Fluency | None":
    """The language model for perplexity, if that is wanted."""
    if folder is None:
        return None
    if "perplexity" not in metrics:
        raise ValueError(f"--language-model is for perplexity, and --metrics has {','.join(metrics)}; add perplexity")
    from ddot.evaluation.metrics import Fluency
    from ddot.evaluation.metrics.fluency import causal_model

    return Fluency(folder.name, causal_model(folder, device=device or ("cuda" if cuda() else "cpu")))


@app.command()
def tables(
    rows: Annotated[list[Path], typer.Argument(help="Rows of evaluate, compare and bench, JSON lines.")],
    table: Annotated[str | None, typer.Option(help="One table by name; default: all.")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="LaTeX instead of Markdown.")] = False,
    write: Annotated[Path | None, typer.Option(help="Put the tables between their markers in this document.")] = None,
) -> None:
    """The paper's tables, ours beside theirs.

    Example: ddot tables results/rows.jsonl --table block

    Example: ddot tables results/rows.jsonl results/differences.jsonl --write report.md
    """
    from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render

    found = read_rows(*rows)
    if not found:
        raise ValueError(f"there are no rows in {', '.join(map(str, rows))}; make some with ddot evaluate")
    if write is None:
        print(render(found, table, latex))
        return
    if latex:
        raise ValueError("--write puts Markdown between markers; leave out --latex, or print LaTeX without --write")
    names = [table] if table else marked(write, NAMES)
    if not names:
        raise ValueError(f"{write} has no markers; put <!-- {NAMES[0]} --> and <!-- /{NAMES[0]} --> where a table goes")
    insert(write, {name: render(found, name) for name in names})
    print(f"ddot: {', '.join(names)} in {write}", file=sys.stderr)
