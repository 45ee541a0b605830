"""Small mistakes, each made in a scratch copy of the package; the named tests must notice every one of them.

    make mutants                      all of them
    python tests/mutants.py pool law  those whose name or file contains one of these words
    python tests/mutants.py --check   only check that every `old` text occurs exactly once

Each mutant runs in a process forked from one that has torch imported. Before a test file counts as a judge it must pass
without any mutant.
"""

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Seconds for the tests of one mutant; one that never ends is noticed as well. On a busy machine the first one counts.
LIMIT_CPU, LIMIT = 120, 1200
KILLED, SURVIVED, EQUIVALENT, BROKEN = "killed", "SURVIVED", "equivalent", "BROKEN"
_FAILED = 1  # pytest's exit status when tests ran and some failed


@dataclass(frozen=True)
class Mutant:
    """`old`, which occurs once in ddot/`file`, becomes `new`; one of the `tests` (below tests/) must fail.

    `equivalent` says why no test can notice; such a mutant is not run.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""


def mutants() -> list[Mutant]:
    """The table."""
    found = []
    for tests, file, rows in TABLE:
        for name, old, new, *why in rows:
            found.append(Mutant(name, file, old, new, tuple(tests.split()), *why))
    return found


def mistakes(table: Iterable[Mutant]) -> Iterator[str]:
    """What is wrong with the table itself."""
    table = list(table)
    for name, times in Counter(mutant.name for mutant in table).items():
        if times > 1:
            yield f"{times} mutants are called '{name}'"
    for mutant in table:
        file = ROOT / "ddot" / mutant.file
        times = file.read_text().count(mutant.old) if file.is_file() else 0
        if times != 1:
            yield f"'{mutant.name}': wanted once in ddot/{mutant.file}, found {times} times: {mutant.old!r}"
        for test in mutant.tests:
            if not (ROOT / "tests" / test.partition("::")[0]).is_file():
                yield f"'{mutant.name}': there is no tests/{test}"


class Copy:
    """A copy of the package and its tests, in which one file at a time is changed."""

    def __init__(self, where: Path):
        self.where = where
        unwanted = shutil.ignore_patterns("__pycache__", "model")
        for folder in ("ddot", "tests"):
            shutil.copytree(ROOT / folder, where / folder, ignore=unwanted)
        (where / "ddot" / "model").symlink_to(ROOT / "ddot" / "model")
        for path in ROOT.iterdir():
            if path.name not in ("ddot", "tests", ".git", ".venv"):
                (where / path.name).symlink_to(path)
        self.moments = count(int(time.time()) + 10)

    def passes(self, tests: Sequence[str], mutant: Mutant | None = None) -> tuple[int | None, str]:
        """(pytest's exit status, None where time ran out; the last lines it wrote)."""
        log, cache = self.where / "log.txt", self.where / "numba"
        if mutant is None:
            return self._run(tests, log, cache), _end_of(log)
        path = self.where / "ddot" / mutant.file
        before, moment = path.read_text(), path.stat().st_mtime_ns
        path.write_text(before.replace(mutant.old, mutant.new))
        # Caches of compiled code go by seconds and size: each mutant gets a second of its own.
        os.utime(path, ns=(moment, next(self.moments) * 10**9))
        if "from numba" in before:
            cache = self.where / f"numba-{next(self.moments)}"
        try:
            return self._run(tests, log, cache), _end_of(log)
        finally:
            path.write_text(before)
            os.utime(path, ns=(moment, moment))

    def _run(self, tests: Sequence[str], log: Path, cache: Path) -> int | None:
        child = os.fork()
        if not child:
            status = 3
            try:
                os.setsid()  # so that what the tests start ends with them
                status = _in_child(self.where, tests, log, cache)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)  # never back into the code of the parent
        end = time.monotonic() + LIMIT
        try:
            while time.monotonic() < end:
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.05)
            return None
        finally:
            _end_group(child)


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(leader, 0)


def _in_child(where: Path, tests: Sequence[str], log: Path, cache: Path) -> int:
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(where)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_CPU, LIMIT_CPU + 5))
    os.environ["PYTHONPATH"] = str(where)
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    sys.path.insert(0, str(where))
    import pytest

    # Without the checks of shapes and types: a mutant is to be noticed by what it does, and that takes half as long.
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--no-header",
        f"--rootdir={where}",
        "-oaddopts=",
    ]
    status = int(pytest.main([*options, *(f"tests/{test}" for test in tests)]))
    sys.stdout.flush()
    return status


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def judged(table: Sequence[Mutant]) -> Iterator[tuple[Mutant, str, float, str]]:
    """(mutant, what became of it, seconds, the end of the log where something is wrong)."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder).resolve())
        sound: dict[str, str] = {}  # test file → why it cannot judge; empty if it can
        for mutant in table:
            start = time.monotonic()
            if mutant.equivalent:
                yield mutant, EQUIVALENT, 0.0, mutant.equivalent
                continue
            for test in mutant.tests:
                if test not in sound:
                    status, log = copy.passes([test])
                    sound[test] = log if status != 0 else ""
            if wrong := "".join(sound[test] for test in mutant.tests):
                yield mutant, BROKEN, time.monotonic() - start, f"its tests fail without it:\n{wrong}"
                continue
            status, log = copy.passes(mutant.tests, mutant)
            fate = SURVIVED if status == 0 else KILLED if status in (_FAILED, None, -signal.SIGXCPU) else BROKEN
            yield mutant, fate, time.monotonic() - start, log if fate == BROKEN else ""


def _share(table: Sequence[Mutant], queue) -> None:  # type: ignore[no-untyped-def]
    for result in judged(table):
        queue.put(result)
    queue.put(None)


def _together(table: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str, float, str]]:
    """The same, on several processes; mutants of one test file stay together."""
    if jobs == 1:
        yield from judged(table)
        return
    context = get_context("fork")
    queue = context.Queue()
    judges = sorted({mutant.tests for mutant in table})
    shares = [[mutant for mutant in table if judges.index(mutant.tests) % jobs == job] for job in range(jobs)]
    processes = [context.Process(target=_share, args=(share, queue)) for share in shares]
    for process in processes:
        process.start()
    left = jobs
    while left:
        result = queue.get()
        if result is None:
            left -= 1
        else:
            yield result
    for process in processes:
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run mutants whose name or file contains one of these")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--check", action="store_true", help="check the table and run nothing")
    chosen = parser.parse_args()
    table = mutants()
    wrong = list(mistakes(table))
    if wrong:
        print(*wrong, f"{len(wrong)} mistakes in the table of mutants; nothing was run", sep="\n", file=sys.stderr)
        return 2
    if chosen.check:
        print(f"{len(table)} mutants, each of one place")
        return 0
    if chosen.words:
        table = [m for m in table if any(word in m.name or word in m.file for word in chosen.words)]
        if not table:
            print(f"no mutant has {' or '.join(chosen.words)} in its name or file", file=sys.stderr)
            return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch  # noqa: F401

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that scratch copies go away
    fates: Counter[str] = Counter()
    left = []
    for mutant, fate, seconds, log in _together(table, chosen.jobs):
        fates[fate] += 1
        print(f"{fate:10} {seconds:6.1f} s  {mutant.file:32} {mutant.name}", flush=True)
        if fate in (SURVIVED, BROKEN):
            left.append(mutant)
        if fate == BROKEN:
            print(log, flush=True)
    judged_ones = fates[KILLED] + fates[SURVIVED]
    print(", ".join(f"{number} {fate}" for fate, number in fates.items()), end="")
    print(f": {fates[KILLED] / judged_ones:.1%} of those that can be noticed" if judged_ones else "")
    for mutant in left:
        print(f"  {mutant.file}: {mutant.name}")
    return 1 if left else 0


# Tests of alternatives that need no embedded model.
_INFILL = " ".join(
    f"integration/test_infill.py::{name}"
    for name in (
        "test_alternatives_are_the_one_alone_and_the_best_of_twice_as_many",
        "test_a_blank_that_must_stay_empty_is_filled_once",
        "test_one_answer_where_there_is_only_one",
        "test_the_same_seed_gives_the_same_answer_and_others_do_not",
    )
)
# (tests that must notice, below tests/; file below ddot/; rows of (name, old, new[, equivalent because …])).
TABLE: list[tuple[str, str, list[tuple[str, ...]]]] = [
    (
        "unit/test_folders.py",
        "training/checkpoints.py",
        [("two checkpoints are kept whatever is asked", "complete_steps(run)[:-keep]", "complete_steps(run)[:-2]")],
    ),
    (
        "unit/test_tables.py",
        "evaluation/tables/lines.py",
        [("deviation of a population of seeds", "statistics.stdev(values)", "statistics.pstdev(values)")],
    ),
    (
        "integration/test_train.py",
        "training/checkpoints.py",
        [("a training that keeps two checkpoints", "nbytes, settings.keep)", "nbytes, 2)")],
    ),
    (
        "unit/test_fills.py",
        "methods/continuation.py",
        [
            (
                "continuations that attend to padding",
                "seen = torch.zeros_like(x, dtype=torch.bool)",
                "seen = torch.ones_like(x, dtype=torch.bool)",
            ),
            ("continuations that begin at their first place", "first = widest + place - x.shape[1]", "first = place"),
            ("continuations that may hold an edge", "logits[:, never] = -torch.inf", "logits[:, never] += 0"),
        ],
    ),
    (
        "unit/test_fills.py",
        "evaluation/filling.py",
        [("a language model that forgets its own fills", "(gaps[k], given[k : k + 1])", "(gaps[0], given[k : k + 1])")],
    ),
    (
        "unit/test_fills.py unit/test_tables.py",
        "evaluation/rows.py",
        [
            (
                "nats of another model's row",
                "return BASE if row.method == BASE else NATS, row.model,",
                'return NATS, "",',
            )
        ],
    ),
    (
        "unit/test_positions.py unit/test_laws.py",
        "core/rng.py",
        [
            (
                "uniform numbers that may be 0",
                "+ np.float32(0.5)) * np.float32(2.0**-23)",
                "+ np.float32(0.0)) * np.float32(2.0**-23)",
            ),
            ("uniform numbers of half the interval", "* np.float32(2.0**-23)", "* np.float32(2.0**-24)"),
            (
                "rows of a run share one key",
                "np.arange(first, first + rows, dtype=np.uint64)",
                "np.full(rows, first, dtype=np.uint64)",
            ),
            ("row keys that ignore the seed", "seed & _WORD], np.uint64)), 1)", "0 & _WORD], np.uint64)), 1)"),
            ("fold that ignores its word", "np.array([word & _WORD], np.uint64)", "np.array([1 & _WORD], np.uint64)"),
            ("numbers of a row all alike", "np.arange(1, n + 1, dtype=np.uint64)", "np.full(n, 1, dtype=np.uint64)"),
            ("times below the smallest", "(smallest + (1 - smallest) * even)", "((1 - smallest) * even)"),
            ("times not spread over the batch", "np.arange(rows) / rows) % 1.0", "np.arange(rows) * 0.0) % 1.0"),
            ("weights that are not normalised", "np.cumsum(weights / weights.sum())[:-1]", "np.cumsum(weights)[:-1]"),
        ],
    ),
    (
        "unit/test_positions.py unit/test_laws.py",
        "core/positions.py",
        [
            (
                "a grid with a point too few spacings",
                "(2.0 * np.arange(n) - (n - 1)) / max(1, n - 1)",
                "(2.0 * np.arange(n) - (n - 1)) / max(1, n)",
            ),
            ("clean positions that do not shrink", "(n_real / L * grid(n_real)", "(1.0 * grid(n_real)"),
            ("pads that do not shrink", "return z_T_pad * (n_real / L)", "return z_T_pad * 1.0"),
            ("paths walked backwards", "torch.lerp(z_0, z_T, t[:, None])", "torch.lerp(z_T, z_0, t[:, None])"),
            (
                "a random terminal on half the interval",
                "points = 2 * uniform(keys, is_prompt.shape[1]) - 1",
                "points = uniform(keys, is_prompt.shape[1]) - 0.5",
            ),
            (
                "a random terminal whose sets are cut at one place",
                "(np.sort(np.where(chosen, points, np.inf), axis=1) for chosen in (is_prompt, ~is_prompt))",
                "(np.sort(points, axis=1) for chosen in (is_prompt, ~is_prompt))",
            ),
            (
                "jitter of one sign",
                "jitter = (2 * uniform(keys, is_prompt.shape[1]) - 1)",
                "jitter = uniform(keys, is_prompt.shape[1])",
            ),
            ("jitter of half its spread", "* self.spread * spacing", "* self.spread * spacing / 2"),
            (
                "jitter that leaves the interval",
                "np.clip(grid_terminal(is_prompt, keys) + jitter, -1, 1)",
                "(grid_terminal(is_prompt, keys) + jitter)",
            ),
            (
                "a text start that draws the pool together too",
                "np.where(is_prompt, z * size / is_prompt.shape[1], z)",
                "(z * size / is_prompt.shape[1])",
            ),
            ("a stretch tied to the first jitter", "uniform(fold(keys, 0x571D), 1)", "uniform(keys, 1)"),
            (
                "a stretch that only widens",
                "width = 1 + (2 * uniform(fold(keys, 0x571D), 1) - 1) * self.by",
                "width = 1 + uniform(fold(keys, 0x571D), 1) * self.by",
            ),
            ("a mixture chosen by the first jitter", "uniform(fold(keys, 0xC401CE), 1)", "uniform(keys, 1)"),
            (
                "a mixture in which rows share keys",
                "terminal(is_prompt[rows], keys[rows])",
                "terminal(is_prompt[rows], keys[: rows.sum()])",
            ),
        ],
    ),
    (
        "unit/test_coupling.py unit/test_laws.py",
        "core/coupling_kernels.py",
        [
            ("the pool drawn with the prompt's key", "np.uint64(key) ^ _POOL)", "np.uint64(key))"),
            ("a given prompt set that is not sorted", "prompt[:n_prompt].sort()", "pass"),
            ("a given pool that is not sorted", "pool[:n_pool].sort()", "pass"),
            (
                "gaps of another law",
                "out[i] = (51.5 - exponent) * _LOG2 - 2 * s * series",
                "out[i] = ((51.5 - exponent) * _LOG2 - 2 * s * series) ** 2",
            ),
            ("gaps that are uniform numbers", "out[i] = (51.5 - exponent) * _LOG2 - 2 * s * series", "out[i] = out[i]"),
            ("one gap too few", "scale = 2.0 / total", "scale = 2.0 / out[n - 1] if n else 2.0"),
            (
                "a match that never leaves a point for later",
                "if newest + x < 0.0:",
                "if newest < 0.0 and newest + x < -2.0:",
            ),
            ("a slope stored for the wrong side", "left[top] = newest + 2.0 * x", "left[top] = newest + x"),
            (
                "a sweep that forgets to move its head",
                "while right[head] + x >= 0.0:",
                "while right[head] + x >= 4.0:",
                "tracing back never has as many targets left as the slopes that are dropped stand for",
            ),
            (
                "pads that do not shrink in the coupling",
                "clean[slot] = scale * (target[which] if taken else b)",
                "clean[slot] = (scale * target[which] if taken else b)",
            ),
            ("a response that does not shrink in the coupling", "clean[slot] = scale * a", "clean[slot] = a"),
            (
                "pads in another order",
                "pad = L - 1",
                "pad = real",
                "pads are told apart by nothing but their positions",
            ),
        ],
    ),
    (
        "unit/test_coupling.py unit/test_laws.py",
        "core/coupling.py",
        [
            (
                "no OT for the prompt alone",
                "(np.flatnonzero(is_prompt[row]), np.flatnonzero(~is_prompt[row]))",
                "(np.flatnonzero(is_prompt[row]),)",
            ),
            (
                "no OT for the pool alone",
                "(np.flatnonzero(is_prompt[row]), np.flatnonzero(~is_prompt[row]))",
                "(np.flatnonzero(~is_prompt[row]),)",
            ),
            (
                "no OT that mixes the two sets",
                "(np.flatnonzero(is_prompt[row]), np.flatnonzero(~is_prompt[row]))",
                "(np.arange(is_prompt.shape[1]),)",
            ),
            ("no OT that draws one permutation for all rows", "rng = generator(key)", "rng = generator(1)"),
            (
                "no OT that leaves pads where OT had them",
                "z_0[row, n_real[row] :] = pad_positions(",
                "_ = pad_positions(",
            ),
            (
                "no OT that draws from the rows' own keys",
                "enumerate(fold(keys, 0x1DE9).tolist())",
                "enumerate(keys.tolist())",
                "another generator (Philox) draws from those keys: nothing else uses its numbers",
            ),
            ("couple that ignores a given terminal", "given, z_T is not None)", "given, False)"),
        ],
    ),
    (
        "unit/test_absorbing.py",
        "core/absorbing.py",
        [
            ("prompts that are masked", "(u < masked_share[:, None]) & ~is_prompt", "(u < masked_share[:, None])"),
            ("masking with the other share", "(u < masked_share[:, None])", "(u > masked_share[:, None])"),
            ("a shift by all states", "self.states - 1.0", "self.states * 1.0"),
            ("score entropy without its rate", "return dsigma * score_entropy(", "return score_entropy("),
            ("score entropy that counts [mask]", "- log_score[:, mask].exp()", ""),
            ("score entropy without its constant", "+ a * (torch.log(a) - 1)", ""),
            (
                "cross entropy that lets [mask] be",
                "torch.where(is_mask, -torch.inf, logits.float()), x_0",
                "logits.float(), x_0",
            ),
            ("a loss weighted by the rate alone", "nats * dsigma / torch.expm1(sigma)", "nats * dsigma"),
            ("an unweighted loss that is weighted", "if self.elbo else nats", "if not self.elbo else nats"),
            (
                "a clean token that is not normalised",
                "torch.log_softmax(_at_mask(logits.float(), mask, -torch.inf), -1)",
                "_at_mask(logits.float(), mask, -torch.inf)",
            ),
            ("a step of the wrong size", "torch.expm1(sigma - sigma_next)", "torch.expm1(sigma)"),
            ("an Euler step without its rate", "(dt * dsigma)[:, None]", "dt[:, None]"),
            (
                "a final draw that may stay masked",
                "torch.softmax(_at_mask(log_score, mask, -torch.inf), -1)",
                "torch.softmax(log_score, -1)",
            ),
            ("more than certainty", "moves = moves / leave.clamp(min=1.0)[:, None]", "moves = moves"),
        ],
    ),
    (
        "unit/test_absorbing.py",
        "core/noise.py",
        [
            (
                "a schedule that starts masked",
                "return -torch.log1p(-(1 - self.eps) * t)",
                "return -torch.log1p(-(1 - self.eps) * t) + 0.01",
            ),
            (
                "a rate that is not the slope",
                "return (1 - self.eps) / (1 - (1 - self.eps) * t)",
                "return 1 / (1 - (1 - self.eps) * t) ** 2",
            ),
        ],
    ),
    (
        "unit/test_sampling.py",
        "core/annealing.py",
        [
            (
                "greedy that never stays",
                "return _greedy(chances, vocabulary.mask)",
                "return _greedy(_without(chances, vocabulary.mask), vocabulary.mask)",
            ),
            (
                "greedy words that give [pad] nothing",
                "return _greedy(chances, vocabulary.mask, vocabulary.pad)",
                "return _greedy(_without(chances, vocabulary.pad), vocabulary.mask, vocabulary.pad)",
            ),
            ("a temperature the wrong way", ".pow(1 / self.temperature)", ".pow(self.temperature)"),
            (
                "a nucleus that is too small",
                "(words.cumsum(-1) - words < self.top_p)",
                "(words.cumsum(-1) <= self.top_p)",
            ),
            (
                "words that take the mass of [pad]",
                "rest = (1 - stay - pad).clamp(min=0)[:, None]",
                "rest = (1 - stay).clamp(min=0)[:, None]",
            ),
            (
                "a draw that may take what has no chance",
                "index = torch.minimum(below.sum(-1, keepdim=True), last)",
                "index = below.sum(-1, keepdim=True).clamp(max=self.tokens.shape[1] - 1)",
            ),
        ],
    ),
    (
        "unit/test_sampling.py",
        "core/sampling.py",
        [
            ("Euler where the exact step is asked for", "elif self.exact:", "elif not self.exact:"),
            ("no final denoiser", "if s <= 0:\n                chances", "if s < 0:\n                chances"),
            (
                "a reading that keeps [mask]",
                "(row != vocabulary.pad) & (row != vocabulary.mask)",
                "(row != vocabulary.pad)",
            ),
            (
                "a reading that keeps [pad]",
                "(row != vocabulary.pad) & (row != vocabulary.mask)",
                "(row != vocabulary.mask)",
            ),
            (
                "a reading in the order of slots",
                "rows = state.x.gather(1, order).cpu().numpy()",
                "rows = state.x.cpu().numpy()",
            ),
            (
                "every step draws the same numbers",
                "uniform(fold(keys, step), state.x.shape[1])",
                "uniform(fold(keys, 0), state.x.shape[1])",
            ),
            ("positions that jump to the goal", "torch.lerp(state.z, goal.z, (t - s) / t)", "goal.z"),
            (
                "positions that stop before the end",
                "z = goal.z if s <= 0 else torch.lerp(state.z, goal.z, (t - s) / t)",
                "z = torch.lerp(state.z, goal.z, (t - s) / max(t, 0.5))",
            ),
            ("velocity the wrong way", "z=state.z + t * prediction.velocity", "z=state.z - t * prediction.velocity"),
            (
                "restrictions that are not heard",
                "prediction = restrict(state, prediction)",
                "restrict(state, prediction)",
            ),
            ("projections that are not heard", "goal = project(goal)", "project(goal)"),
            ("a first step of no length", "if steps == 1 or first <= 1 / steps:", "if True:"),
            (
                "the least certain first",
                "sure.argsort(dim=-1, descending=True, stable=True)",
                "sure.argsort(dim=-1, stable=True)",
            ),
            (
                "one slot a step too many",
                "torch.where(place < (masked - stay)[:, None], drawn, state.x)",
                "torch.where(place <= (masked - stay)[:, None], drawn, state.x)",
            ),
            (
                "neighbours that do not wait",
                "sure = torch.where(group & ~_surest_around(state.z, sure, group), sure - 1, sure)",
                "pass",
            ),
            (
                "neighbours by slot instead of by place",
                "order = z.argsort(dim=-1, stable=True)\n    row, remaining",
                "order = torch.arange(z.shape[1]).expand_as(z)\n    row, remaining",
            ),
            (
                "pads before all words",
                "order = torch.where(group, (rank + 0.5) / group.sum(-1, keepdim=True).clamp(min=1), order)",
                "order = torch.where(group, (drawn != vocabulary.pad) + (rank + 0.5) / 1000, order)",
            ),
        ],
    ),
    (
        "unit/test_sampling.py unit/test_gaps.py",
        "core/projections.py",
        [
            (
                "an echo of the left neighbour",
                "for neighbour in (row[:, :-2], row[:, 2:]):",
                "for neighbour in (row[:, 2:],):",
            ),
            (
                "an echo across slots instead of places",
                "order = state.z.argsort(dim=-1, stable=True)",
                "order = torch.arange(state.z.shape[1]).expand_as(state.z)",
            ),
            (
                "[pad]s that forbid each other",
                "keep = (token == vocabulary.mask) | (token == vocabulary.pad)",
                "keep = token == vocabulary.mask",
            ),
            ("prompts that may change", "x=torch.where(is_prompt, start.x, state.x)", "x=state.x"),
            (
                "prompts that may lie on one place",
                "z=sort_within(state.z, state.is_prompt, apart=_APART)",
                "z=sort_within(state.z, state.is_prompt)",
            ),
            (
                "prompts out of order",
                "return dataclasses.replace(state, z=sort_within(state.z, state.is_prompt, apart=_APART))",
                "return state",
            ),
            ("words out of order", "return dataclasses.replace(state, z=sort_within(state.z, words))", "return state"),
            (
                "masked slots sorted with the words",
                "words = ~state.is_prompt & (state.x != vocabulary.mask)",
                "words = ~state.is_prompt",
            ),
            ("slots in a closed gap that stay", "z=torch.where(inside, state.z, target)", "z=state.z"),
            (
                "slots that go to the farther gap",
                "(state.z - left_end <= right_end - state.z)",
                "(state.z - left_end > right_end - state.z)",
            ),
            (
                "slots that end on the border",
                "torch.nextafter(left_end, -inf), torch.nextafter(right_end, inf)",
                "left_end, right_end",
            ),
            (
                "slots of one gap further",
                "low = torch.nextafter(borders.gather(1, gap), inf)",
                "low = torch.nextafter(borders.gather(1, gap + 1), inf)",
            ),
        ],
    ),
    (
        "unit/test_gaps.py unit/test_masks.py unit/test_losses.py",
        "core/gaps.py",
        [
            ("ties that go to the later slot", "(slot[None, :] < slot[:, None])", "(slot[None, :] > slot[:, None])"),
            (
                "hints that close the wrong side",
                "(hint == GLUED) | (hint == BEFORE)",
                "(hint == GLUED) | (hint == AFTER)",
            ),
            (
                "gaps open beyond the prompt",
                "return (gap <= order[:, -1:]) & (closing == 0)",
                "return (gap <= order[:, -1:] + 1) & (closing == 0)",
            ),
            ("a gap open on one side only", "return missing[:-1] | missing[1:]", "return missing[1:]"),
            (
                "hints before and after exchanged",
                "np.array([[GLUED, AFTER], [BEFORE, BOTH]])",
                "np.array([[GLUED, BEFORE], [AFTER, BOTH]])",
            ),
            (
                "gap lengths of the gap before",
                "np.diff(given, append=len(is_prompt)) - 1",
                "np.diff(given, prepend=-1) - 1",
            ),
            (
                "the last gap without its end",
                "np.diff(given, append=len(is_prompt)) - 1",
                "np.diff(given, append=len(is_prompt) - 1) - 1",
            ),
            ("gaps that count pads", "return torch.minimum(after, real) - index - 1", "return after - index - 1"),
        ],
    ),
    (
        "unit/test_lengths.py",
        "core/gap_lengths.py",
        [
            ("classes that begin one too late", "right=True)", "right=False)"),
            ("class lengths at the lower bound", "return lowest + (width - 1) / 2", "return lowest"),
        ],
    ),
    (
        "unit/test_losses.py unit/test_layout.py",
        "methods/losses.py",
        [
            (
                "a length head taught the gap before",
                "gaps_after(slots).flatten()[length_at]",
                "gaps_after(slots).roll(1, 1).clamp(min=0).flatten()[length_at]",
            ),
            ("a told length of 0 read as untold", "(slots.gap_length < 0)", "(slots.gap_length <= 0)"),
            (
                "lengths asked of response slots",
                "((slots.kind == PROMPT) & (slots.gap_length < 0))",
                "(slots.gap_length < 0)",
            ),
            ("a length loss that weighs nothing", "+ gap_length_factor * gap_length", "+ 0 * gap_length"),
            (
                "positions weighed alike at all times",
                "position_weight(slots.t, slots.u.shape[1])",
                "equal_weight(slots.t, slots.u.shape[1])",
            ),
            ("a velocity the wrong way", "(velocity - (z_0 - z_T)).square()", "(velocity - (z_T - z_0)).square()"),
            ("λ that weighs nothing", "return token + weight * position", "return token + position"),
            (
                "token losses per masked slot",
                "token = per_slot.sum() / slots.u.numel()",
                "token = per_slot.sum() / max(1, len(at))",
            ),
            ("a knee that is not squared", "t**2 / (t**2 + self.knee**2)", "t**2 / (t**2 + self.knee)"),
            ("training at the clean positions", "z=interpolate(slots.z_0, slots.z_T, slots.t)", "z=slots.z_0"),
            (
                "training told no lengths",
                "return slots.state(x=x,",
                "return slots.state(gap_length=torch.full_like(slots.gap_length, -1), x=x,",
            ),
            (
                "training told no hints",
                "return slots.state(x=x,",
                "return slots.state(hint=slots.hint.clamp(max=1), x=x,",
            ),
        ],
    ),
    (
        "unit/test_layout.py unit/test_planning.py unit/test_laws.py",
        "methods/layout.py",
        [
            ("masks drawn with the key of z_T", "fold(keys, 0x3A5C)", "fold(keys, 0x7E2)"),
            (
                "an oracle layout without the first missing tokens",
                "spread_out(example, int(given[0]), missing_after",
                "spread_out(example, 0, missing_after",
            ),
            ("told lengths that are not laid out", "lengths[places] = gap_length", "pass"),
            (
                "told lengths that do not reach the table",
                "self.gap_length[row, :n] = np.where(example.is_prompt, example.gap_lengths, UNKNOWN_LENGTH)",
                "pass",
            ),
            (
                "hints that do not reach the table",
                "self.hint[row, :n] = np.where(example.is_prompt, example.hints, NOT_PROMPT)",
                "self.hint[row, :n] = np.where(example.is_prompt, UNKNOWN, NOT_PROMPT)",
            ),
            (
                "hints lost with the rest of the text",
                "Example(example.tokens[given], given[given], example.hints[given],",
                "Example(example.tokens[given], given[given], None,",
            ),
            (
                "lengths lost with the rest of the text",
                "example.hints[given], example.gap_lengths[given])",
                "example.hints[given], 0 * example.gap_lengths[given] - 1)",
            ),
            ("pads that are responses", "np.where(real, RESPONSE, PAD)", "np.where(real, RESPONSE, RESPONSE)"),
            (
                "a line of another spacing",
                "((2 * np.arange(L) - (L - 1)) / L)",
                "((2 * np.arange(L) - (L - 1)) / max(1, L - 1))",
            ),
            (
                "still pads inside the text",
                "n / self.L + 2 / self.L * np.arange(1, self.L - n + 1)",
                "n / self.L - 2 / self.L * np.arange(1, self.L - n + 1)",
            ),
            (
                "lengths laid out one gap too late",
                "np.cumsum(missing) - missing",
                "np.cumsum(missing) - missing + np.roll(missing, 1) * 0 + missing[0]",
            ),
            ("pads masked where nothing moves", "torch.where(slots.kind == PAD, 2.0, slots.u)", "slots.u"),
            (
                "a start that is told no lengths",
                "(x, z, self.hint, self.gap_length, t)",
                "(x, z, self.hint, np.full(self.x_0.shape, -1), t)",
            ),
            (
                "places after the end that are asked",
                "self.start(self.still, self.kind == RESPONSE)",
                "self.start(self.still, ~self.is_prompt)",
            ),
            (
                "a start that draws from other keys than training",
                "terminal(table.is_prompt, fold(keys, 0x7E2))",
                "terminal(table.is_prompt, fold(keys, 0x7E3))",
            ),
            (
                "placeholders in closed gaps",
                "np.isin(example.hints[given], (AFTER, BOTH))",
                "np.isin(example.hints[given], (AFTER, BOTH, UNKNOWN))",
            ),
            ("placeholders kept where they do not fit", "is_open &= lengths > 0", "pass"),
        ],
    ),
    (
        "unit/test_layout.py unit/test_losses.py",
        "methods/ddot.py",
        [
            (
                "training that ignores its terminal",
                "self.couple(table.is_prompt, table.n_real, fold(keys, 0xC0), z_T)",
                "self.couple(table.is_prompt, table.n_real, fold(keys, 0xC0), None)",
            ),
            (
                "training and sampling from other terminals",
                "return start_at(self.terminal, prompts",
                "return start_at(grid_terminal, prompts",
            ),
            ("no restrictions in sampling", "self.reveal, kept, self.restrictions)", "self.reveal, kept)"),
            ("no projections in sampling", "(clamp_prompt(start), *self.projections)", "(clamp_prompt(start),)"),
            ("prompts that are not clamped", "(clamp_prompt(start), *self.projections)", "(*self.projections,)"),
            (
                "a loss without its weight of lengths",
                "self.position_weight, self.gap_length_factor)",
                "self.position_weight)",
            ),
        ],
    ),
    (
        "unit/test_writing.py",
        "network/trunk.py",
        [
            (
                "a cache that keeps old values",
                "values[:, read - new : read] = k, v",
                "values[:, read - new : read] = k, k",
            ),
            (
                "padding that is seen",
                "visible = self.seen[:, None] |",
                "visible = torch.ones_like(self.seen)[:, None] |",
            ),
            ("a cache that forgets when it grows", "more[:, : old.shape[1]] = old", "pass"),
            ("what comes later is seen", "visible & (slot[read - new :, None] >= slot)", "visible"),
            (
                "query heads in another order",
                "q.unflatten(2, (K, -1)).transpose(2, 3).flatten(1, 2)",
                "q.unflatten(2, (-1, K)).flatten(1, 2)",
            ),
            (
                "a mask for each head in turn",
                "mask.repeat_interleave(q.shape[2] // k.shape[2], 1)",
                "mask.repeat(1, q.shape[2] // k.shape[2], 1)",
            ),
        ],
    ),
    (
        "unit/test_writing.py",
        "infill/draft.py",
        [
            ("blanks that end too soon", "end = WITH_SEP if missing == 0 and", "end = WITH_SEP if"),
            ("capitals glued to a mark", "if not self.tokenised and self._is_after_mark(tokens):", "if False:"),
            ("initials that nothing may follow", " and not _ABBREVIATION.search(text)", ""),
            ("drafts pruned at once", "self.fluency() < best - _PRUNE_MARGIN", "self.fluency() < best"),
            ("tokens that earn nothing", "+ len(log_probs) * (_SENTENCE", "+ 0 * (_SENTENCE"),
            ("sentences told from words", "if is_sentence else _TOKEN_BONUS)", "if not is_sentence else _TOKEN_BONUS)"),
            (
                "places beyond the next",
                "self.done = self.current == self.n_gaps",
                "self.done = self.current == len(self.gaps)",
            ),
            (
                "too many words",
                "if bounds.most is not None and fill.words >= bounds.most:",
                "if False:",
            ),
            (
                "words glued to the last",
                "return END if ends_sentence else CLOSE",
                "return FINISH if ends_sentence else CONTINUE",
            ),
            (
                "sentences that end in mid-phrase",
                "if gap.ends_sentence and gap.bounds.most is not None and",
                "if False and",
            ),
            (
                "no words begun in a hurry",
                "return BEGIN if missing else NOTHING + WITH_SEP",
                "return NOTHING + WITH_SEP",
            ),
            ("an end in the middle of bounds", "if self._count_words(tokens[:length]) >= bounds.least\n", "if True\n"),
            ("echoes", "tokens = [self.text[-1]] if self.text[-1] != self.sep else []", "tokens: list[int] = []"),
            ("words that may be avoided", "for *before, last in self.banned if", "for *before, last in () if"),
            (
                "letters that are forgotten",
                "return self.alphabet.tokens_spelling(self.prefix[len(spelt) :])",
                "return []",
            ),
            ("text that is left behind", "del self.text[-removed:], self.told_lengths[-removed:]", "pass"),
        ],
    ),
    (
        "unit/test_writing.py",
        "infill/passes.py",
        [
            (
                "candidates that draw alike",
                "= uniform(fold(keys, draws), 1)[:, 0]",
                "= uniform(fold(keys * 0, draws * 0), 1)[:, 0]",
            ),
            (
                "words that stay as cheap when they were chosen",
                "self.penalties.scatter_(1, token, self.engine.repetition_penalty.cost[token])",
                "pass",
            ),
            (
                "a clock that goes back when a batch is forgotten",
                "self.past_passes += self.batches.pop(other).passes",
                "self.batches.pop(other)",
            ),
            (
                "a nucleus that is not cut",
                "chances = chances * (chances.cumsum(-1) - chances < top_p)",
                "chances = chances * 1",
            ),
            (
                "trailing candidates that others are pruned for",
                " and not candidate.trailing:\n            self.best",
                ":\n            self.best",
            ),
            ("trailing candidates that catch up", "candidate.trailing |= draft", "candidate.trailing = draft"),
            (
                "nothing is pruned",
                "candidate.pruned = draft.done = trails_all",
                "candidate.pruned = draft.done = False",
            ),
            ("answers fewer than wanted", "trails(pruning.nth_best(candidate.window.n_best))", "trails(pruning.best)"),
            (
                "as many texts as candidates",
                "self.fluencies[tuple(candidate.draft.fills[0].tokens)]",
                "self.fluencies[id(candidate)]",
            ),
            (
                "pruning that more candidates change",
                "if candidate.window.draw < candidates_for_one(candidate.window) and not",
                "if not",
            ),
            (
                "pruning at a temperature by candidates that one does not draw",
                "< candidates_for_one(candidate.window) and not",
                "< CANDIDATES and not",
            ),
            ("outlines that are told nothing", "length[gap.after] = gap.told", "pass"),
            ("no end in the score", "by_blank[numbers[-1]] += of_gap[done:]", "pass"),
            (
                "rows that keep the penalties of those before",
                "self.penalties.index_fill_(0, send(torch.tensor(list(new)), cost.device), 0.0)",
                "pass",
            ),
            ("rows that are never freed", "self.rows = [active.get(row) for row in range(len(self.rows))]", "pass"),
            ("a pass for everyone who waits", "if seen == batch.passes:", "if True:"),
            ("siblings that forget their outline", "self.outline = sibling.outline", "self.outline = []"),
            ("families that come and are left out", "fitting[: shape.prefill.rows]", "fitting[:1]"),
            (
                "small families that pass a large one",
                "it waits for\n                        break",
                "\n                        continue",
            ),
            ("graphs that are kept for ever", "if len(self.graphs) > _MAX_GRAPHS:", "if False:"),
            (
                "a family whose rows nobody frees",
                "for batch, family in batches:\n            batch.drop(family)",
                "pass",
            ),
        ],
    ),
    (
        "unit/test_writing.py",
        "infill/writing.py",
        [
            ("texts that wait for ever", "at_once=passes == seen", "at_once=False"),
            ("words avoided and no other way to say it", "and not candidate.window.settings.avoid", "and True"),
            ("rows that leave and change how others round", "if candidate.draft.n_gaps == 1 and", "if True and"),
            ("answers that were pruned", "if not candidate.pruned}", "if True}"),
            ("candidates without pruning", "candidate.pruning = pruning", "pass"),
            (
                "text after a place that is not filled yet",
                "for after in view.after if after > place)",
                "for after in places if after > place)",
            ),
            ("texts of somebody who has left", "if job not in jobs]", "if True]"),
            ("texts judged with any others", "if other.size == job.size and other is not job]", "if other is not job]"),
        ],
    ),
    (
        "unit/test_writing.py",
        "infill/reading.py",
        [
            ("what was taken back is seen", "self.cache.seen[row] &= self.units[row] < place", "pass"),
            (
                "rows that share a place",
                "np.where(real, place + np.array(places)[:, None], 0)",
                "np.where(real, np.array(places)[:, None], 0)",
            ),
            ("a row of a continuous batch sees what is not written", "<= self.at[:, None]\n", "<= self.columns\n"),
            ("prefixes that keep their padding", "(column + width - counts).clamp", "(column + 0 * counts).clamp"),
            ("hints that stay when a row is replaced", "old.index_fill_(0, rows, empty)", "pass"),
        ],
    ),
    (
        "unit/test_view.py",
        "infill/view.py",
        [("every blank a paragraph", "_LINE_END.search(literal) and", "True and")],
    ),
    (
        "unit/test_writing.py",
        "infill/draft.py",
        [("paragraphs that end anywhere", "missing == 0 and self._may_end(tokens)", "missing == 0")],
    ),
    (
        "unit/test_layout.py",
        "methods/fixed_length.py",
        [
            (
                "pads drawn at fixed lengths",
                "(without(v.pad, v.sep), without_echo(v), *self.restrictions)",
                "(without(v.sep), without_echo(v), *self.restrictions)",
            ),
            (
                "fixed length with echoes",
                "(without(v.pad, v.sep), without_echo(v), *self.restrictions)",
                "(without(v.pad, v.sep), *self.restrictions)",
            ),
            (
                "fixed length that moves",
                "kept = (clamp_prompt(start), stay(start))",
                "kept = (clamp_prompt(start),)",
            ),
        ],
    ),
    (
        "unit/test_planning.py",
        "methods/planning.py",
        [
            (
                "plans that see their answers",
                "gap_length=torch.full_like(slots.gap_length, UNKNOWN_LENGTH),",
                "gap_length=slots.gap_length,",
            ),
            (
                "plans that see the missing tokens",
                "torch.where(slots.kind == RESPONSE, model.vocabulary.mask, slots.x_0)",
                "slots.x_0",
            ),
            (
                "plans of closed gaps",
                "(slots.hint == AFTER) | (slots.hint == BOTH) | (slots.hint == UNKNOWN)",
                "slots.hint > 0",
            ),
            ("plans read at other times", "still_slots(np.ones_like(t), keys)", "still_slots(t, keys)"),
        ],
    ),
    (
        "unit/test_baselines.py",
        "methods/left_context.py",
        [
            ("left context that moves", "kept = (clamp_prompt(start), stay(start))", "kept = (clamp_prompt(start),)"),
            (
                "left context weighed by λ",
                "denoising_losses(model, slots, position_factor=0.0)",
                "denoising_losses(model, slots, position_factor=position_factor)",
            ),
        ],
    ),
    (
        "unit/test_baselines.py",
        "methods/layout.py",
        [
            (
                "a text read past its end",
                "text = text[np.cumsum(text == vocabulary.pad) == 0]",
                "text = text[text != vocabulary.pad]",
            ),
            (
                "a prompt without separator in training",
                "return joined(prompt_and_separator(example, L, vocabulary), text, most=2 * L)",
                "return joined(only_prompt(example), text, most=2 * L)",
            ),
        ],
    ),
    (
        "unit/test_baselines.py",
        "methods/position_prediction.py",
        [
            ("tokens that pull at positions", "z = (slots.z_T + velocity).detach()", "z = slots.z_T + velocity"),
            ("tokens at the true positions", "replace(slots, z_0=z, z_T=z)", "slots"),
            (
                "a first look that sees the answer",
                "x, t = torch.where(slots.kind == PROMPT, slots.x_0, model.vocabulary.mask), torch",
                "x, t = slots.x_0, torch",
            ),
            ("positions that are not used", "z=start.z + model.read(start)[1]", "z=start.z"),
            (
                "a first look weighed at its time",
                "weight = self.position_weight(t, slots.u.shape[1])",
                "weight = self.position_weight(slots.t, slots.u.shape[1])",
            ),
        ],
    ),
    (
        "unit/test_autoregressive.py",
        "methods/autoregressive.py",
        [
            (
                "a text that goes on after its end",
                "allowed(model.logits(h[:, -1]), v, may_write & ~done, (used < count) & ~done)",
                "allowed(model.logits(h[:, -1]), v, may_write, (used < count) & ~done)",
            ),
            ("words where the prompt needs the place", "& (L - place > count - used)", ""),
            ("words in closed gaps", "may_write = is_open.gather(1, used[:, None])[:, 0] &", "may_write ="),
            (
                "an end before all is given",
                "((column == vocabulary.pad) & ~given[:, None])",
                "(column == vocabulary.pad)[None].expand_as(fits)",
            ),
            (
                "a sentence told what comes later",
                "hint=torch.where(sentence, NOT_PROMPT, slots.hint)",
                "hint=slots.hint",
            ),
            ("training at noisy times", "t=torch.zeros_like(slots.t),  # the input is never noisy", "t=slots.t,"),
            ("sampling at noisy times", "x=x, t=torch.zeros_like(start.t)), cache, part)", "x=x), cache, part)"),
            ("every place drawn with the same number", "uniform(fold(keys, place), 1)", "uniform(fold(keys, 0), 1)"),
            (
                "answers that name the given word",
                "return predicts, torch.where(kind == PROMPT, vocabulary.sep, following)",
                "return predicts, following",
            ),
            ("pads that are asked", "& (slots.kind != PAD)", ""),
        ],
    ),
    (
        "unit/test_autoregressive.py",
        "methods/layout.py",
        [
            (
                "the left part told nothing",
                "return joined(prompt, separator(vocabulary))",
                "return joined(Example(prompt.tokens, prompt.is_prompt), separator(vocabulary))",
            ),
        ],
    ),
    (
        "unit/test_rivals.py",
        "methods/flexible.py",
        [
            (
                "counts of the gap before",
                "after = (present.cumsum(-1) - 1).clamp(min=0)",
                "after = present.cumsum(-1).clamp(max=present.shape[1] - 1)",
            ),
            ("prompts that are thinned", "missing = real & (slots.kind != PROMPT)", "missing = real"),
            ("one chance of [mask]s for all rows", "(1 - t) * slots.u[:, :1])", "(1 - t) * 0.9)"),
            (
                "masks that stay",
                "count = -(-masked.sum(-1, keepdim=True) // passes)",
                "count = masked.sum(-1, keepdim=True) // (passes + 1)",
            ),
            ("closed gaps that grow", "inserts = torch.where(may_grow(state.hint), inserts, 0)", "pass"),
            (
                "more than fits",
                "(space - inserts.cumsum(-1) + inserts).clamp(min=0)",
                "(space + 0 * inserts).clamp(min=0)",
            ),
        ],
    ),
    (
        "unit/test_rivals.py",
        "methods/expand_delete.py",
        [
            (
                "expand and delete swapped",
                "[vocabulary.pad, example.tokens], vocabulary.sep)",
                "[vocabulary.sep, example.tokens], vocabulary.pad)",
            ),
            ("masks in closed gaps", "too_many & _may_grow(example, borders)", "too_many"),
            ("never fewer masks than tokens", "np.where(rng.random(len(missing)) < 0.5, missing, fewer)", "missing"),
            ("expansion beyond L", "deleted.sum(-1, keepdim=True) - surplus)", "L)"),
            ("expansion in the last pass", "[v.mask, v.sep] if passes == 1 else [v.mask]", "[v.mask]"),
            ("no forced deletion", "| (rank(delete, masked) < surplus)", "| (delete < 0)"),
        ],
    ),
    (
        "unit/test_insertion.py",
        "methods/insertion.py",
        [
            (
                "training told how much is missing",
                "slots.state(**moved, t=torch.zeros_like(slots.t))",
                "slots.state(**moved, t=slots.t)",
            ),
            (
                "sampling told how much is missing",
                "model.read(replace(state, t=torch.zeros_like(state.t)))",
                "model.read(state)",
            ),
            (
                "training with hints that sampling does not give",
                '"hint": (slots.hint, NOT_PROMPT)',
                '"hint": (slots.hint.clamp(min=UNKNOWN), NOT_PROMPT)',
            ),
            (
                "lengths left behind by moving tokens",
                "gap_length=moved(state.gap_length, torch.full_like(blank, UNKNOWN_LENGTH))",
                "gap_length=state.gap_length",
            ),
            (
                "copies of the token itself",
                "vocabulary.mask, vocabulary.pad)\n\n    def moved",
                "0, vocabulary.pad)\n\n    def moved",
            ),
            (
                "training told lengths of other slots",
                "(slots.gap_length, UNKNOWN_LENGTH)}",
                "(slots.gap_length.roll(1, 1), UNKNOWN_LENGTH)}",
            ),
            ("words in gaps that are closed", "return ~closes_after(hint) & ~", "return ~closes_after(hint) | ~"),
            (
                "a middle that is off by one",
                "away = (index - (before + after) / 2).abs()",
                "away = (index - (before + after - 1) / 2).abs()",
            ),
            ("a spread that spreads the wrong way", "noise - away / spread", "noise - away * spread"),
            ("doubt that is not heard", "(none <= self.doubt)", "(none <= 0.5)"),
            (
                "more tokens than fit",
                "predicts & (none <= self.doubt) & (rank(-none, predicts) < left)",
                "predicts & (none <= self.doubt)",
            ),
            (
                "the surest left out",
                "(rank(-none, predicts) < left)",
                "(rank(none, predicts) < left)",
            ),
            (
                "a separator that may be written",
                "torch.tensor([v.mask, v.sep], device=state.x.device)",
                "torch.tensor([v.mask], device=state.x.device)",
            ),
        ],
    ),
    (
        "unit/test_mask_laws.py unit/test_masks.py",
        "data/masks.py",
        [
            (
                "one keyword too few",
                "rng.integers(self.low, self.high + 1))\n        given[",
                "rng.integers(self.low, self.high))\n        given[",
            ),
            ("keywords that ignore weights", "/ np.maximum(units.weight, 1e-12)", "/ 1.0"),
            (
                "blocks never as long as allowed",
                "rng.integers(0, min(n, self.longest) + 1)",
                "rng.integers(0, max(1, min(n, self.longest)))",
            ),
            (
                "blocks never at the end",
                "start = int(rng.integers(0, n - missing + 1))",
                "start = int(rng.integers(0, max(1, n - missing)))",
            ),
            (
                "blocks that miss more than their share",
                "rng.integers(0, int(self.share * n) + 1)",
                "rng.integers(0, n + 1)",
            ),
            (
                "words of the weight of their lightest token",
                "np.maximum.reduceat(self.weight, first)",
                "np.minimum.reduceat(self.weight, first)",
            ),
            ("gaps told of texts that are not located", "if located >= self.located:", "if located < self.located:"),
            (
                "no decoys",
                "is_open |= rng.random(len(is_open)) < self.decoys",
                "is_open |= rng.random(len(is_open)) < 0",
            ),
            ("lengths always told in part", "share = 1.0 if lengths < self.gap_lengths else 0.5", "share = 0.5"),
            (
                "lengths told by the number that locates",
                "located, lengths = rng.random(2)",
                "located, lengths = rng.random(1).repeat(2)",
            ),
        ],
    ),
    (
        "unit/test_shards.py",
        "data/shards.py",
        [
            ("a document that runs on into the next", "lengths[0] |= _FIRST", "lengths[0] |= 0"),
            (
                "sentences without their space",
                '[" " + sentence for document in group for sentence in document]',
                "[sentence for document in group for sentence in document]",
            ),
            ("sentences one too long", "if 0 < len(tokens) <= LONGEST]", "if 0 < len(tokens) < LONGEST]"),
            ("passages one token too long", "min(starts[j], begin + longest)", "min(starts[j], begin + longest + 1)"),
            ("ends beyond the passage", "return tokens, ends[ends <= len(tokens)]", "return tokens, ends"),
            (
                "shards larger than allowed",
                "if tokens.nbytes + lengths.nbytes > self.free or not self.files:",
                "if tokens.nbytes > self.free or not self.files:",
            ),
            (
                "rarity that grows with the count",
                "(5e-4 / np.maximum(share, 1e-12)) ** 1.5",
                "(np.maximum(share, 1e-12) / 5e-4) ** 1.5",
            ),
            (
                "ids cut to 16 bits",
                "if tokenizer.vocabulary.size <= 1 << 16 else",
                "if tokenizer.vocabulary.size <= 1 << 17 else",
            ),
        ],
    ),
    (
        "unit/test_tokenizer.py unit/test_window.py",
        "data/tokenizer.py",
        [
            (
                "markers that can be typed",
                "self.encoder.encode_special_tokens = True",
                "self.encoder.encode_special_tokens = False",
            ),
            (
                "special rows that are decoded",
                "if token < self.vocabulary.base]",
                "if token < self.vocabulary.size]",
                "the library's decoder leaves out ids it does not know",
            ),
            (
                "words counted from 1",
                "starts = self.starts_word[tokens].copy()\n        starts[:1] = False",
                "starts = self.starts_word[tokens].copy()",
            ),
            (
                "ends that run back",
                "list(accumulate((end for _, end in offsets), max))",
                "[start for start, _ in offsets]",
            ),
        ],
    ),
    (
        "unit/test_engine.py",
        "infill/planned_lengths.py",
        [
            (
                "a length for each blank of a gap",
                "part = -(-int(whole[after]) // int(shares[after]))",
                "part = int(whole[after])",
            ),
            ("no taste for short blanks", "likely = chances * torch.exp(", "likely = chances + 0 * torch.exp("),
            ("a taste for short texts where nothing is located", "if not view.prompt.free:", "if True:"),
            ("lengths always drawn", "choose = drawn_length if draw else mean_length", "choose = drawn_length"),
            ("lengths never drawn", "choose = drawn_length if draw else mean_length", "choose = mean_length"),
            ("blanks drawn in one order", "(draw ^ (8 * swap).astype(np.int64))", "draw"),
            ("draws that are not spread", "* _GOLDEN) % 1)", "* 0.0) % 1)"),
            ("fewer tokens than words", "max(length, blank.least)", "length"),
            (
                "more tokens than words",
                "most = SLOTS if blank.most is None else planner.most_tokens(blank.most)",
                "most = SLOTS",
            ),
            ("more tokens than slots", "if extra.sum() > left:", "if False:"),
        ],
    ),
    (
        "unit/test_engine.py",
        "infill/engine.py",
        [
            (
                "slots meant for the gap before",
                "gap[row, span.start : span.stop] = after + 1",
                "gap[row, span.start : span.stop] = after",
            ),
            (
                "bounds that free slots may break",
                "if samples[i].lengths is None and not self._within_bounds(w, sampled[i].tokens)",
                "if False",
            ),
            ("prompt tokens found in gaps", "word = ~is_prompt & (x != vocabulary.pad)", "word = x != vocabulary.pad"),
            (
                "attempts that share a key",
                "return fold(self.window.key, self.window.draw) if self.window.draw else self.window.key",
                "return self.window.key",
            ),
            (
                "filling that is told no lengths",
                "return lay_out(self.window.view, self.window.blanks, self.lengths",
                "return self.window.view.prompt.example or lay_out(self.window.view, self.window.blanks, self.lengths",
            ),
            (
                "moving slots in the order of slots",
                "order = state.z.argsort(dim=-1, stable=True)\n    x, is_prompt",
                "order = torch.arange(state.z.shape[1]).expand_as(state.z)\n    x, is_prompt",
            ),
            (
                "results in the order of batches",
                "return [results[index] for index in range(len(items))]",
                "return list(results.values())",
            ),
        ],
    ),
    (
        f"{_INFILL} unit/test_engine.py",
        "infill/request.py",
        [("as many attempts as answers", "return 2 * n if n > 1", "return n if n > 1")],
    ),
    (
        f"{_INFILL} unit/test_engine.py",
        "infill/answers.py",
        [
            (
                "the first answer left out",
                "[first, *others[: request.settings.n - 1]]",
                "[*others, first][: request.settings.n]",
            ),
            (
                "answers in the order they came",
                "kept.sort(key=lambda answer: -answer.infill.score)",
                "kept.sort(key=lambda answer: 0)",
            ),
            (
                "empty blanks preferred",
                '("" in answer.infill.fills, -answer.infill.score)',
                '("" not in answer.infill.fills, -answer.infill.score)',
            ),
            (
                "attempts that never warm up",
                "_TEMPERATURES[number // request.n_attempts]",
                "_TEMPERATURES[0]",
                "only a network shows the temperature; the attempts are counted",
            ),
            ("every text from seed 0", "row_keys(request.settings.seed, 1)", "row_keys(0, 1)"),
            (
                "locked fills that are filled anew",
                "next(new) if fill is None else fill for fill in request.locked",
                "next(new, fill) for fill in request.locked",
            ),
        ],
    ),
    (
        "unit/test_lengths.py",
        "infill/planned_lengths.py",
        [
            (
                "a mean over classes instead of lengths",
                "return chances @ gap_lengths.class_lengths(chances.device)",
                "return chances @ torch.arange(chances.shape[-1], dtype=chances.dtype)",
            ),
            (
                "a draw one class too far",
                "(chances.cumsum(-1) <= u[:, None]).sum(-1)",
                "(chances.cumsum(-1) <= u[:, None]).sum(-1).add(1)",
            ),
            (
                "text in closed gaps",
                ".double().numpy() * prompt.is_open[1:]",
                ".double().numpy() * prompt.is_open[1:].any()",
            ),
            ("gaps gathered though they are told", "if prompt.free:", "if not prompt.free:"),
            ("more text than there are slots", "length * min(1.0, at_most / max(1e-9, length.sum()))", "length"),
            ("a total that is lost in gathering", "return chosen * (total / chosen.sum())", "return chosen"),
            (
                "gaps opened from the least likely on",
                'np.argsort(-length, kind="stable")',
                'np.argsort(length, kind="stable")',
            ),
            ("a total that is lost in rounding", "round(float(length.sum())) - int(whole.sum())", "0"),
            (
                "the smallest remainders rounded up",
                'np.argsort(whole - length, kind="stable")[:short]',
                'np.argsort(length - whole, kind="stable")[:short]',
            ),
        ],
    ),
    (
        "unit/test_word_rules.py unit/test_view.py",
        "infill/word_rules.py",
        [
            (
                "a blank that may take one word too many",
                "words + proposed > blank.most",
                "words + proposed > blank.most + 1",
            ),
            (
                "a blank that may take one word too few",
                "words + proposed + masked - 1 < blank.least",
                "words + proposed + masked < blank.least",
            ),
            ("bounds of the last step alone", "if begins == proposed or best is not None:", "if best is not None:"),
            (
                "the unsure judged first",
                "sorted(new, key=lambda i: -new[i].score)",
                "sorted(new, key=lambda i: new[i].score)",
            ),
            (
                "words of earlier steps not counted",
                "words = 1 + sum(bool(self.begins[token]) for token in before[row][here] if token != vocabulary.mask)",
                "words = 1",
            ),
            (
                "the first token under the rule of later ones",
                "rule[row, span.start : min(span.start + 1, span.stop)] = _first_rule(span, counted)",
                "pass",
            ),
            ("marks that count as words", "counted = (8 if tokenised else 4) * span.blank.counted", "counted = 0"),
            (
                "words that do not tire",
                "log_score=prediction.log_score - penalty[row, :columns]",
                "log_score=prediction.log_score",
            ),
            (
                "words of other rows that tire",
                "scatter_(1, state.x, self.cost[state.x])",
                "scatter_(1, state.x.flip(0), self.cost[state.x.flip(0)])",
            ),
            ("the best token of the other kind", "for kind in (False, True)]", "for kind in (True, False)]"),
        ],
    ),
    (
        "unit/test_template.py",
        "infill/template.py",
        [
            ("a bound that is not kept", "(self.most is None or words <= self.most)", "True"),
            ("an escape that is forgotten", "if slashes % 2:", "if False:"),
            ("half the backslashes lost", '"\\\\" * (slashes // 2)]', '"\\\\" * slashes]'),
            ("a lock that forgets the text after it", "literals[-1] += fill + literal", "literals[-1] += fill"),
            ("blanks of two underscores", "_{3,}|<mask>", "_{2,}|<mask>"),
            (
                "free words without the last gap",
                '("", words[0], *rest, "")',
                '("", words[0], *rest[:-1], *rest[-1:], "")[:]',
                "the same tuple written otherwise",
            ),
        ],
    ),
    (
        "unit/test_view.py",
        "infill/spacing.py",
        [
            ("no space after a closing quote", "return len(before) == 1 or before[-2].isspace() or", "return True or"),
            (
                "a space before a mark the model glued",
                'touches = words[0] in (MARKS if apart else CLOSERS) and raw[0] != " "',
                "touches = False",
            ),
            (
                "a space at the beginning of a text",
                "at_border = not before or before[-1].isspace() or",
                "at_border = before[-1:].isspace() or",
            ),
            ("fills that touch the text after", '("" if not after or after[0].isspace() or glued else " ")', '""'),
            ("a fill that looks one character back", "_LOOK_BACK = 2", "_LOOK_BACK = 1"),
            ("empty blanks that are borders", "or raw[later].strip():", "or True:"),
        ],
    ),
    (
        "unit/test_view.py unit/test_window.py",
        "infill/view.py",
        [
            ("blanks one token too early", "after.append(len(tokens) - 1)", "after.append(max(0, len(tokens) - 2))"),
            (
                "told where blanks are when they must be found",
                "if located else np.full(len(tokens), UNKNOWN)",
                "if True else np.full(len(tokens), UNKNOWN)",
            ),
            ("a part that looks whole", "tokenizer.edge if whole else tokenizer.vocabulary.sep", "tokenizer.edge"),
            ("slots of the blank before", "start = after + 1 + int(gap_length.sum())", "start = after + 1"),
            (
                "lengths that are not told",
                "return view.prompt.with_gap_lengths(gap_length), spans",
                "return view.prompt, spans",
            ),
            (
                "a window wider than the network",
                "if used + more > slots - _CONTEXT:",
                "if used + more > SLOTS + _CONTEXT:",
            ),
            ("a part that says it begins the text", "begins=start == whole", "begins=True"),
            ("words cut in two", "return words[0] if len(words) > 1 else shorter", "return shorter"),
        ],
    ),
    (
        "unit/test_scoring.py",
        "infill/scoring.py",
        [
            (
                "tokens judged at every look",
                "revealed = self.last.at & (state.x != self.mask)",
                "revealed = self.last.at",
                "what is still masked is judged again when it is revealed",
            ),
            (
                "chances of another look",
                "self.settle(state)\n        self.last = prediction",
                "self.last = prediction\n        self.settle(state)",
            ),
            (
                "a gap judged by its first blank alone",
                "lengths[after] += len(fill)",
                "lengths[after] = lengths[after] or len(fill)",
            ),
            ("scores that grow with the number of tokens", "np.mean(tokens)", "np.sum(tokens)"),
            ("scores that ignore the length", "+ _LENGTH * length", ""),
        ],
    ),
    (
        "unit/test_fim.py",
        "serve/fim.py",
        [
            ("a bound beyond the slots", "max_tokens >= SLOTS else max_tokens", "max_tokens > SLOTS else max_tokens"),
            (
                "text beyond its bound",
                "text = middle.text[: ends[limit - 1]] if ends else middle.text",
                "text = middle.text",
            ),
            ("a bound that is reached in silence", "middle.tokens >= limit:", "middle.tokens > limit:"),
            ("the last stop string", "start, word = min(matches)", "start, word = max(matches)"),
            ("stop strings that stay", "text = middle.text[:start]", "text = middle.text[: start + len(word)]"),
            ("a part that is called whole", "part.begins and part.ends", "part.begins"),
            ("reading that is counted twice", "answers.seconds - answers.prefill_seconds", "answers.seconds"),
            ("one completion given several times", "self.middles[number % len(self.middles)]", "self.middles[0]"),
        ],
    ),
    (
        "unit/test_fim.py",
        "serve/llama_cpp.py",
        [
            (
                "other files after the prefix",
                'prefix = extra + (body.input_prefix or "")',
                'prefix = (body.input_prefix or "") + extra',
            ),
            ("milliseconds taken for seconds", "limit / 1000 / body.settings.n if", "limit / body.settings.n if"),
            ("a time limit of 0 that is kept", "limit is not None and limit > 0", "limit is not None"),
        ],
    ),
    (
        "unit/test_fim.py",
        "serve/requests.py",
        [("one answer for an editor", "n=settings.n if self.n_cmpl is None else self.n_cmpl", "n=settings.n")],
    ),
    (
        "unit/test_fim.py",
        "serve/openai.py",
        [
            ("fewer choices than asked for", "result.best(n)", "result.middles"),
            ("prompts that are billed once", "tokens_read += result.tokens_read", "tokens_read = result.tokens_read"),
            ("a model asked for nothing", "if body.max_tokens == 0 else", "if False else"),
            ("an echo of the suffix", "prompt + middle.text if body.echo", "middle.text + prompt if body.echo"),
            ("an end that is called a stop", '"length" if middle.stop_type == "limit" else "stop"', '"stop"'),
            (
                "more answers than allowed",
                "if not 1 <= len(prompts) * settings.n <= MAX_N:",
                "if not 1 <= len(prompts) <= MAX_N:",
            ),
        ],
    ),
    (
        "unit/test_writing.py",
        "infill/answers.py",
        [
            ("an answer of one that several do not have", " and not by_number[number].trailing]", "]"),
            ("alternatives that repeat each other", "_SAMENESS = 5.0", "_SAMENESS = 0.0"),
            ("alternatives unlike the last chosen alone", "max(most, *(", "max(0.0, *("),
            (
                "later blanks that repeat each other",
                "_best(by_number, part, engine, written[i])",
                "_best(by_number, part, engine)",
            ),
            ("later blanks unlike the last answer alone", "unlike = [*before, ", "unlike = [*before[-1:], "),
            (
                "sampled answers that draw alike",
                "other.key = fold(self.key, number)",
                "pass",
            ),
            (
                "a later blank that is the likeliest whatever came before",
                "chosen = [] if before else first",
                "chosen = first",
            ),
        ],
    ),
    (
        "unit/test_int8.py",
        "network/denoiser.py",
        [("few rows that are rounded in another way", "_FEWEST = 16", "_FEWEST = 0")],
    ),
    (
        "integration/test_shared.py",
        "serve/shared.py",
        [("requests closed in silence", "return _cancel(running)", "return")],
    ),
    (
        "integration/test_shared.py",
        "serve/processes.py",
        [("a batch still computed at exit", "self.model.close()", "pass")],
    ),
    (
        "integration/test_processes.py",
        "serve/processes.py",
        [
            ("processes with unequal work", "key=lambda candidate: idle[candidate.process]", "key=lambda candidate: 0"),
            (
                "a dead process that is asked",
                "if worker.is_alive:\n                    return",
                "if True:\n                    return",
            ),
            ("work of processes that goes on unwanted", "self._cancel()", "pass"),
            ("processes that hear Ctrl-C", "(signal.SIG_BLOCK, {signal.SIGINT})", "(signal.SIG_BLOCK, ())"),
            ("a whole batch in every process", "rows=-(-GPU.rows // count)", "rows=GPU.rows"),
            ("processes that outlive the server", "_shut_down(self.workers, _SHUTDOWN_TIMEOUT)", "pass"),
        ],
    ),
    (
        "unit/test_jobs.py",
        "serve/jobs.py",
        [
            (
                "one job too many",
                "if len(self.jobs) >= self.threads + self.max_waiting:",
                "if len(self.jobs) > self.threads + self.max_waiting:",
            ),
            ("a job that cannot be stopped", "self.cancelled.is_set() or self.queue.stopping", "self.queue.stopping"),
            ("a server that does not close", "is_set() or self.queue.stopping", "is_set()"),
            (
                "work begun while closing",
                "if self.draining or self.stopping:\n            raise JobCancelled",
                "if self.draining:\n            raise JobCancelled",
            ),
            (
                "work begun while draining",
                "if self.draining or self.stopping:\n            raise JobCancelled",
                "if self.stopping:\n            raise JobCancelled",
            ),
            ("a job that is late in silence", 'self.messages.put_nowait(("error", reason))', "pass"),
            ("a queue that is left by nobody", "if self.future.cancel():", "if False:"),
            ("steps nobody reads", "or self.messages.qsize() > _MAX_UNREAD)", ")"),
            ("generators that are left open", "self.steps.close()", "pass"),
            ("mistakes that are swallowed", 'outcome = ("error", error)', 'outcome = ("result", None)'),
            ("a job that stays in the queue for ever", "self.queue.jobs.pop(self, None)", "pass"),
        ],
    ),
]

if __name__ == "__main__":
    sys.exit(main())
