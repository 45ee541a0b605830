"""Fill the benchmarks with the models that results/train.sh trained: python results/fill.py BENCH ROWS [λ …]

Every contender of the registry is filled with the model of its recipe (runs/RECIPE), and ddot-u and ddot-r with those
of runs/lambda-λ. Interrupted, it resumes; a failure does not stop the others, and the exit status is 1. The variable
EVALUATE may hold more options of `ddot evaluate`; they override those given here.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ddot.evaluation.contenders import CONTENDERS, UNFILLED

AT_ONCE = 3  # more of them only wait for each other
SWEPT = ("ddot-u", "ddot-t", "lc", "pop")  # timed at every number of steps; the others at 16


def evaluate(bench: str, model: str, rows: Path, methods: list[str], *options: str) -> bool:
    """Whether `ddot evaluate` succeeded."""
    command = [sys.executable, "-m", "ddot", "evaluate", model, "--bench", bench, "--output", str(rows)]
    more = os.environ.get("EVALUATE", "").split()
    asked = [*command, "--methods", ",".join(methods), "--tasks", "free", *options, *more]
    return subprocess.run(asked, stdout=subprocess.DEVNULL).returncode == 0


def fill(bench: str, folder: Path, factors: list[str]) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    trained = [one for one in CONTENDERS.values() if one.recipe]
    jobs: list[tuple[str, ...]] = []
    for recipe in dict.fromkeys(str(one.recipe) for one in trained):
        plain, variants = ([o.name for o in trained if o.recipe == recipe and o.variant == v] for v in (False, True))
        plain += [UNFILLED] * (recipe == "smollm2_ddot")
        jobs.append((f"runs/{recipe}", recipe, ",".join([*plain, *variants])))
        jobs.append((f"runs/{recipe}", f"{recipe}-code", ",".join(plain), "--datasets", "code-block"))
        jobs[-1] += ("--tasks", "located,free")
    for factor in factors:
        jobs.append((f"runs/lambda-{factor}", f"lambda-{factor}", "ddot-u,ddot-r"))
        jobs[-1] += ("--datasets", "1bw-block,yelp-block")

    def run(job: tuple[str, ...]) -> bool:
        model, name, methods, *options = job
        return evaluate(bench, model, folder / f"{name}.jsonl", methods.split(","), *options)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(run, jobs))
    # One after the other, because these are timed; in a file that comes last they replace the rows made above.
    for one in (one for one in trained if not one.variant):
        steps = "2,4,8,16,32,64" if one.name in SWEPT else "16"
        timed = ("--datasets", "1bw-block", "--steps", steps)
        done.append(evaluate(bench, f"runs/{one.recipe}", folder / "timed.jsonl", [one.name], *timed))
    return all(done)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("python results/fill.py BENCH ROWS [λ …]: say where the benchmarks are and where rows go")
    sys.exit(0 if fill(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]) else 1)
