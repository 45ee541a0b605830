"""Commands that measure quality: evaluate, nats, score, compare, tables."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddot.cli.app import AsJson, Device, ModelName, Seed, app, cuda, flag, load_model, names_of, numbers, say, show

if TYPE_CHECKING:
    from ddot.evaluation.filling import Loaded
    from ddot.evaluation.metrics.scoring import Fluency
    from ddot.evaluation.rows import Row

_NAMES = "Comma-separated names."
_CONTENDERS = "unfilled,infill"
Bench = Annotated[Path, typer.Option(help="Folder with NAME.SPLIT.jsonl files.")]
_ROWS = "Rows written by ddot evaluate, their texts beside them."
LanguageModelFolder = Annotated[Path | None, typer.Option(help="For perplexity: a causal model made by ddot convert.")]
# Columns that tables in the terminal leave out.
_HIDDEN = ("model", "split", "seed", "items", "length_error_abs", "batch", "device", "commit", "cut", "kept")


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, embedded, or a recipe: the model in runs/RECIPE.")],
    bench: Bench,
    output: Annotated[Path, typer.Option(help="Rows are appended here; rows already in the file are skipped.")],
    datasets: Annotated[str, typer.Option(help=_NAMES)] = "1bw-block,yelp-block,1bw-random,yelp-random",
    tasks: Annotated[str, typer.Option(help="located, free, or both.")] = "located,free",
    methods: Annotated[str, typer.Option(help="Comma-separated contenders: infill, unfilled, …")] = _CONTENDERS,
    steps: Annotated[str, typer.Option(help="Comma-separated numbers of steps.")] = "16",
    split: Annotated[str, typer.Option(help="test, or dev for tuning.")] = "test",
    seed: Seed = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first N items.")] = None,
    metrics: Annotated[str | None, typer.Option(help=f"{_NAMES} Default: the usual ones of the set.")] = None,
    device: Device = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size on a GPU, for texts of 64 slots.")] = 512,
    language_model: LanguageModelFolder = None,
    as_json: AsJson = False,
) -> None:
    """Fill benchmark items and score the texts; resumes where it was interrupted.

    Texts are stored in a file beside the rows.

    Example: ddot evaluate embedded --bench bench --output rows.jsonl --methods infill --limit 100

    Example: ddot evaluate embedded --bench bench --output rows.jsonl --datasets people --split dev --methods infill
    """
    from ddot.evaluation.run import evaluate as rows_of

    sets, kinds, names = names_of(datasets, "--datasets"), names_of(tasks, "--tasks"), names_of(methods, "--methods")
    measures, counts = names_of(metrics, "--metrics") if metrics else None, numbers(steps, "--steps")
    loaded, fluency = _loaded(model, device, batch, names), _fluency(language_model, measures or [], device)
    options = (sets, kinds, names, counts, split, seed, limit, measures)
    rows = []
    for row in rows_of(loaded, bench, output, *options, fluency, _progress()):
        say(f"{_name(row)}: done")
        rows.append(row)
    _report_missing(rows)
    if lacking := list(dict.fromkeys(name for row in rows for name in row.missing)):
        command = f"ddot rescore {output} --bench {bench} --metrics {','.join(lacking)}"
        command += " --language-model DIR" * ("perplexity" in lacking)
        say(f"{command} adds what is missing, once it is available")
    if rows:
        show([row.json() for row in rows], as_json, (*_HIDDEN, *loaded.training))
    else:
        _explain_nothing(output, loaded.name, sets, kinds, names)


def _loaded(model: str, device: str | None, batch: int, methods: list[str]) -> "Loaded":
    """The model to evaluate; warns about methods it was not trained for."""
    from ddot.evaluation.contenders import learnt
    from ddot.evaluation.filling import Loaded
    from ddot.network.places import find, is_compressed, training_of

    name = _folder_of(model)
    loaded, training = load_model(name, device), training_of(name)
    for method in (method for method in methods if not learnt(method, training.get("recipe"))):
        say(f"{model} was not trained to fill as {method} does; its rows say nothing about that method")
    training |= {"stored": "int8"} if is_compressed(find(name)) else {}
    batch = batch if loaded.denoiser.device.type == "cuda" else 1
    return Loaded(loaded, str(Path(name)) if name else "embedded", batch, training)


def _explain_nothing(output: Path, model: str, sets: list[str], tasks: list[str], methods: list[str]) -> None:
    """Say why there is no new row: all are in the file, or no contender supports the task."""
    from ddot.evaluation.store import Store

    options = {"model": [model], "dataset": sets, "task": tasks, "method": methods}
    if any(all(getattr(row, name) in values for name, values in options.items()) for row in Store(output).rows):
        say(f"{output} already has these rows; ddot tables {output} shows them")
        return
    reason = f"{', '.join(methods)} cannot fill {', '.join(sets)}"
    raise ValueError(f"{reason} for the {', '.join(tasks)} task; choose others")


def _name(row: "Row") -> str:
    return f"{row.method}, {row.dataset}, {row.task}, {row.steps} steps"


def _progress(every: float = 10.0) -> Callable[["Row", int, int], None]:
    """Reports the number of texts of a row every few seconds."""
    last = time.monotonic()

    def tell(row: "Row", count: int, new: int) -> None:
        nonlocal last
        if not new:
            say(f"{_name(row)}: resuming after {count:,} of {row.items:,} texts")
        elif time.monotonic() - last >= every and count < row.items:
            last = time.monotonic()
            say(f"{_name(row)}: {count:,} of {row.items:,} texts")

    return tell


def _folder_of(model: str) -> str | None:
    """The folder of a model, which may be named by its recipe; None for the embedded model."""
    from ddot.training.recipes import RECIPES

    if model == "embedded":
        return None
    if Path(model).exists() or model not in RECIPES:
        return model
    folder = Path("runs", model)
    if not folder.exists():
        raise FileNotFoundError(f"{model} is a recipe without {folder}; run ddot train {model} --output {folder}")
    return str(folder)


@app.command()
def nats(
    bench: Bench,
    model: ModelName = None,
    datasets: Annotated[str, typer.Option(help=_NAMES)] = "people,rocstories,1bw-block",
    split: Annotated[str, typer.Option(help="dev or test.")] = "dev",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Texts per set. Default: all of people, 50 of rocstories, 90 of others.")
    ] = None,
    language_model: Annotated[
        Path | None, typer.Option(help="A causal model made by ddot convert; sees only the text before the blank.")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Nats per token of a blank's true words, revealed from left to right: the model sees both sides of the blank.

    Example: ddot nats --bench bench --language-model runs/base/smollm2
    """
    from ddot.evaluation.metrics.fluency import causal_model
    from ddot.evaluation.nats import measure

    loaded, sets = load_model(model, device), names_of(datasets, "--datasets")
    causal = causal_model(language_model, device=str(loaded.denoiser.device)) if language_model else None
    name = str(Path(model)) if model else "embedded"
    show(measure(name, loaded.denoiser, loaded.tokenizer, bench, sets, split, limit, causal), as_json)


@app.command("rescore")
def rescore_texts(
    rows: Annotated[Path, typer.Argument(help=_ROWS)],
    bench: Bench,
    metrics: Annotated[str, typer.Option(help=f"{_NAMES} Metrics that a row already has are not recomputed.")],
    samples: Annotated[int, typer.Option(min=0, help="Resamples of the items for 95% intervals; 0: none.")] = 0,
    language_model: LanguageModelFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Add metrics and intervals to stored texts; the model is not needed.

    Example: ddot rescore rows.jsonl --bench bench --metrics nist2,nist4,meteor,codebleu

    Example: ddot rescore rows.jsonl --bench bench --metrics bleu4,success --samples 1000
    """
    from ddot.evaluation.rescore import rescore

    names = names_of(metrics, "--metrics")
    rescored = list(rescore(rows, bench, names, samples, _fluency(language_model, names, device)))
    _report_missing(rescored)
    if not rescored:
        say(f"the rows of {rows} already have all that; ddot tables {rows} shows them")
        return
    if not any(name in row.metrics for row in rescored for name in names):  # the reason was reported
        raise typer.Exit(2)
    show([row.json() if as_json else _with_intervals(row, names) for row in rescored], as_json)


def _with_intervals(row: "Row", metrics: list[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {name: getattr(row, name) for name in ("method", "dataset", "task", "steps", "seed")}
    for name in metrics:
        value, ends = row.metrics.get(name), (row.intervals or {}).get(name)
        shown[name] = value if ends is None else f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]"
    return shown


@app.command()
def compare(
    rows: Annotated[list[Path], typer.Argument(help=_ROWS)],
    bench: Bench,
    methods: Annotated[str, typer.Option(help="Comma-separated; the first is compared with each of the others.")],
    metrics: Annotated[str, typer.Option(help=_NAMES)] = "bleu4,success",
    samples: Annotated[int, typer.Option(min=1, help="Resamples of the items.")] = 1000,
    language_model: LanguageModelFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """One method minus others on the same items, with 95% intervals of the paired bootstrap. `wins`: the share of
    resamples in which the first scores higher; ties count half.

    Example: ddot compare rows/*.jsonl --bench bench --methods ddot-u,lc,pop
    """
    from ddot.evaluation.rescore import contrast

    names, measures = names_of(methods, "--methods"), names_of(metrics, "--metrics")
    fluency = _fluency(language_model, measures, device)
    contrasts, missing = contrast(rows, bench, names, measures, samples, fluency)
    for sentence in missing:
        say(sentence)
    if not contrasts:
        raise typer.Exit(2)
    first = ("first", "second", "model", "other")
    lines = [{name: getattr(pair, name) for name in first} | asdict(pair) for pair in contrasts]
    shared = ("model", "other", "split", "seed", "items")
    show(lines, as_json, [name for name in shared if len({line[name] for line in lines}) < 2])


def _report_missing(rows: "list[Row]") -> None:
    """Say why metrics are missing, each reason once."""
    for sentence in dict.fromkeys(why for row in rows for why in row.missing.values()):
        say(sentence)


def _fluency(folder: Path | None, metrics: list[str], device: str | None) -> "Fluency | None":
    """The language model for perplexity, if one is given."""
    if folder is None:
        return None
    if "perplexity" not in metrics:
        raise ValueError(f"--language-model is for perplexity, and --metrics has {','.join(metrics)}; add perplexity")
    from ddot.evaluation.metrics.fluency import causal_model
    from ddot.evaluation.metrics.scoring import Fluency

    return Fluency(folder.name, causal_model(folder, device=device or ("cuda" if cuda() else "cpu")))


@app.command()
def tables(
    rows: Annotated[list[Path], typer.Argument(help="JSON lines of evaluate, compare and bench.")],
    table: Annotated[str | None, typer.Option(help="Name of one table. Default: all.")] = None,
    latex: Annotated[bool, flag("--latex", "LaTeX instead of Markdown.")] = False,
    write: Annotated[Path | None, typer.Option(help="Insert the tables between their markers in this file.")] = None,
    every: Annotated[bool, flag("--all", "All lines, not just the ten most important of each table.")] = False,
) -> None:
    """The paper's tables, ours beside theirs; docs/results.md explains names and columns.

    Example: ddot tables results/rows.jsonl --table block

    Example: ddot tables results/rows.jsonl results/differences.jsonl --write report.md
    """
    from ddot.evaluation.store import read_rows

    lines = read_rows(*rows)
    if not lines:
        raise ValueError(f"there are no rows in {', '.join(map(str, rows))}; make some with ddot evaluate")
    from ddot.evaluation.tables import NAMES, insert, marked, render

    if write is None:
        print(render(lines, table, latex, every))
        return
    if latex:
        raise ValueError("--write inserts Markdown; leave out --latex, or print LaTeX without --write")
    names = [table] if table else marked(write, NAMES)
    if not names:
        raise ValueError(f"{write} has no markers; put <!-- {NAMES[0]} --> and <!-- /{NAMES[0]} --> where a table goes")
    insert(write, {name: render(lines, name, every=every) for name in names})
    say(f"{', '.join(names)} in {write}")
