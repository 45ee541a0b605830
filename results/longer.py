"""Train methods side by side on one GPU, each from the language model, and evaluate their checkpoints as they were:

    python results/longer.py BENCH NAME SECONDS RECIPE:STEPS:METHOD[,METHOD] …
    python results/longer.py bench longer 1800 ddot_ut:850:ddot-t,ddot-u lc:500:lc

RECIPE as in results/train.sh, trained on news and reviews into runs/NAME/RECIPE, with a checkpoint after every STEPS
steps (2 GB each); METHODs fill blocks with it. SECONDS on the clock, of which each run has an equal share of the GPU.
Rows with intervals go to rows/NAME-rows.jsonl, paired differences (each METHOD minus those after it, at the first
checkpoints, the second, …, the last) to rows/NAME-differences.jsonl.

The rate falls over the second half, as the recipes have it, so an earlier checkpoint is not what a shorter training
would end with; TRAIN='--set training.decay=0' keeps it constant. Needs a GPU, the base model in runs/base/smollm2, and
in runs/data the corpora of SOURCES. Interrupted, it resumes. A run that fails stops no other, but has no rows, and the
exit status is 1. The variables TRAIN and EVALUATE may hold more options.
"""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from fill import evaluate

from ddot.evaluation.contenders import CONTENDERS, learnt
from ddot.evaluation.rescore import contrast, rescore
from ddot.evaluation.rows import measured
from ddot.evaluation.store import read_rows
from ddot.files import write_whole
from ddot.network.places import complete_steps
from ddot.training.recipes import RECIPES

SOURCES = "news-form:1.8,1bw-real:0.2,review-form:1.8,review-short:0.2"
METRICS = ("bleu2", "bleu4", "success", "gaps_found", "gaps_extra", "length_error")
COMPARED = ("bleu4", "success", "gaps_found")
Runs = dict[str, tuple[int, list[str]]]  # recipe: steps between checkpoints, methods


def asked(arguments: list[str]) -> Runs:
    """The runs of the command line; refuses what would fail after the training."""
    runs: Runs = {}
    for argument in arguments:
        match = re.fullmatch(r"(\w+):([1-9]\d*):([\w,-]+)", argument)
        if not match:
            raise ValueError(f"'{argument}' is not RECIPE:STEPS:METHODS, such as lc:500:lc")
        recipe, steps, methods = match[1], int(match[2]), match[3].split(",")
        if f"smollm2_{recipe}" not in RECIPES or recipe in runs:
            raise ValueError(f"'{argument}' needs a recipe smollm2_{recipe} that is not given twice")
        if unknown := [name for name in methods if name not in CONTENDERS]:
            raise ValueError(f"there is no method '{unknown[0]}'; available: {', '.join(CONTENDERS)}")
        able = [one.name for one in CONTENDERS.values() if one.filling and "free" in one.tasks]
        able = [name for name in able if learnt(name, f"smollm2_{recipe}")]
        if unable := [name for name in methods if name not in able]:
            raise ValueError(f"{recipe} is not trained to fill as {unable[0]} does; it can fill as {', '.join(able)}")
        runs[recipe] = steps, methods
    every = [name for _, methods in runs.values() for name in methods]
    if twice := [name for name in every if every.count(name) > 1]:
        raise ValueError(f"{twice[0]} is asked for twice; differences are between methods")
    return runs


def train(folder: Path, seconds: str, runs: Runs) -> list[str]:
    """Train them at once; the recipes that were trained to their ends."""
    fixed = {
        "start": "runs/base/smollm2", "data.sources": os.environ.get("SOURCES", SOURCES), "data.dev": "none",
        "data.workers": 14 // len(runs), "training.keep": 99, "training.seconds": seconds,
    }  # fmt: skip
    started = {}
    for recipe, (steps, _) in runs.items():
        settings = fixed | {"training.save_every": steps}
        command = [sys.executable, "-m", "ddot", "train", f"smollm2_{recipe}", "--output", str(folder / recipe)]
        command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command += ["--resume", *os.environ.get("TRAIN", "").split()]
        started[recipe] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        return [recipe for recipe, process in started.items() if process.wait() == 0]
    finally:  # interrupted, they save and stop
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait()


def fill(bench: Path, folder: Path, rows: Path, runs: Runs, trained: list[str]) -> bool:
    """Fill blocks with every checkpoint; whether all of it succeeded."""
    jobs = [(step, runs[recipe][1]) for recipe in trained for step in complete_steps(folder / recipe)]
    sets = ("--datasets", "1bw-block,yelp-block")
    return all([evaluate(str(bench), str(step), rows, methods, *sets) for step, methods in jobs])


def write(bench: Path, rows: Path, folder: Path, runs: Runs, trained: list[str]) -> None:
    """The rows with intervals and shares of the GPU, and the differences at like checkpoints."""
    for _ in rescore(rows, bench, METRICS, samples=1000):
        pass
    found = measured(read_rows(rows))
    lines = [row.json() | {"gpu_share": round(1 / len(runs), 6)} for row in found]
    write_lines(rows.with_name(f"{rows.stem}-rows.jsonl"), lines)
    number = {}
    for recipe in trained:
        *steps, last = complete_steps(folder / recipe)
        number |= {str(step): i for i, step in enumerate(steps)} | {str(last): -1}
    methods = [name for recipe in trained for name in runs[recipe][1] if name in {row.method for row in found}]
    pairs = [pair for i in range(len(methods) - 1) for pair in contrast([rows], bench, methods[i:], COMPARED)[0]]
    like = [asdict(pair) for pair in pairs if number.get(pair.model, "failed") == number.get(pair.other)]
    write_lines(rows.with_name(f"{rows.stem}-differences.jsonl"), like)


def write_lines(file: Path, lines: list[dict[str, object]]) -> None:
    write_whole(file, "".join(f"{json.dumps(line)}\n" for line in lines).encode())


def main(bench: Path, name: str, seconds: str, runs: Runs) -> bool:
    """Whether every run was trained and evaluated."""
    folder, rows = Path("runs") / name, Path("rows") / f"{name}.jsonl"
    trained = train(folder, seconds, runs)
    rows.parent.mkdir(exist_ok=True)
    filled = fill(bench, folder, rows, runs, trained)
    if rows.is_file():
        write(bench, rows, folder, runs, trained)
    return filled and len(trained) == len(runs)


if __name__ == "__main__":
    try:
        if len(sys.argv) < 5:
            raise ValueError(f"got {len(sys.argv) - 1} arguments; wanted BENCH NAME SECONDS RECIPE:STEPS:METHODS …")
        bench, name, seconds = Path(sys.argv[1]), *sys.argv[2:4]
        if not (bench / "1bw-block.test.jsonl").is_file():
            raise ValueError(f"{bench} has no 1bw-block.test.jsonl; give the folder of test sets")
        if not re.fullmatch(r"[1-9]\d*", seconds) or not re.fullmatch(r"[\w-]+", name):
            raise ValueError(f"'{name} {seconds}' is not NAME SECONDS, such as longer 1800")
        runs = asked(sys.argv[4:])
    except ValueError as error:
        print(f"results/longer.py: {error}", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # either stops the trainings as well
    try:
        sys.exit(0 if main(bench, name, seconds, runs) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
