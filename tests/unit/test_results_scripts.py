"""The scripts of results/: exact answers of the language against every sentence, found one word at a time; intervals
against SciPy's; what is refused before anything is trained."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from ddot.data.masks import Units

RESULTS = Path(__file__).parents[2] / "results"
sys.path.insert(0, str(RESULTS))
import intervals  # noqa: E402
import language  # noqa: E402
import longer  # noqa: E402


@pytest.fixture(scope="module")
def whole():
    return language.Language()


def sentences(whole, given, longest):
    """{sentence: probability} of all that have the given words in order."""
    found = Counter()
    todo = [(1.0, (), whole.start)]
    after = {state: i for i, state in enumerate(whole.states)}
    while todo:
        p, words, at = todo.pop()
        state = whole.states[at]
        moves = whole._from_start() if at == whole.start else [*language.moves(state)]
        total = sum(weight for weight, *_ in moves)
        for weight, word, then in moves:
            if then == language.END and not word:
                if language.contains(words, given):
                    found[words] += p * weight / total
                continue
            longer = (*words, word)
            met = next(n for n in range(len(given), -1, -1) if language.contains(longer, given[:n]))
            if len(longer) + len(given) - met <= longest:
                if then == language.END:
                    if met == len(given):
                        found[longer] += p * weight / total
                else:
                    todo.append((p * weight / total, longer, after[then]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "given", "draws"),
    [
        ("block", "two dogs", 3_000), ("block", "a girl tomorrow", 3_000),
        ("keywords", "crows jumped", 500),
    ],
)  # fmt: skip
def test_exact_answers_are_drawn_from_the_posterior(whole, monkeypatch, kind, given, draws):
    monkeypatch.setattr(language, "LONGEST", 5)
    monkeypatch.setattr(language, "BLOCK", 2)
    given, rng = given.split(), np.random.default_rng(0)
    masks = {
        n: Counter(tuple(np.flatnonzero(language.MASKS[kind](Units.alike(n), rng))) for _ in range(4_000))
        for n in (3, 4, 5)
    }
    posterior = Counter()
    for words, p in sentences(whole, given, 5).items():
        for keep, count in masks[len(words)].items():
            if [words[i] for i in keep] == given:
                posterior[words] += p * count
    fill = whole.fill_block if kind == "block" else whole.fill_keywords
    drawn = Counter(tuple(fill(given, rng)) for _ in range(draws))
    assert drawn.keys() <= posterior.keys()
    # Pearson's statistic over sentences that are expected often enough, the others together; and each length.
    expected = {words: draws * p / posterior.total() for words, p in posterior.items()}
    cells = [(drawn[words], n) for words, n in expected.items() if n >= 5]
    cells.append((draws - sum(n for n, _ in cells), draws - sum(n for _, n in cells)))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells if wanted > 1)
    assert statistic < 2.5 * len(cells) + 15
    for length in (4, 5):
        seen, wanted = (sum(n for words, n in each.items() if len(words) == length) for each in (drawn, expected))
        assert abs(seen - wanted) <= 3.5 * (wanted * max(0, 1 - wanted / draws)) ** 0.5 + 1e-6
    assert all(whole.accepts(words) for words in posterior)


@pytest.mark.slow
def test_lengths_of_exact_answers_are_those_of_the_items(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "TEXTS", 1)
    monkeypatch.setattr(language, "ITEMS", 200)
    language.write(tmp_path, whole)
    rng = np.random.default_rng(3)
    for kind, fill in (("block", whole.fill_block), ("keywords", whole.fill_keywords)):
        items = language.read_set(tmp_path, kind, "test")
        errors = np.array([len(fill(item.given, rng)) - len(item.words) for item in items])
        assert abs(errors.mean()) < 3 * errors.std() / len(errors) ** 0.5


SCORES = st.lists(st.integers(0, 1000).map(lambda x: x / 10), min_size=2, max_size=5)


@given(SCORES, SCORES)
@settings(deadline=None)
def test_intervals_over_trainings_are_welchs(first, second):
    assume(np.ptp(first) > 0 and np.ptp(second) > 0)  # SciPy divides by them
    theirs = ttest_ind(first, second, equal_var=False).confidence_interval()
    assert np.allclose(intervals.interval_of_means(first, second, 0.0), theirs)


def test_items_widen_an_interval_over_trainings():
    alike = [80.0, 80.0, 80.0], [70.0, 70.0]
    assert np.allclose(intervals.interval_of_means(*alike, 4.0), (10 - 1.96 * 2, 10 + 1.96 * 2), atol=1e-3)
    assert intervals.interval_of_means(*alike, 0.0) == (10, 10)
    apart = [79.0, 80.0, 81.0], [69.0, 71.0]
    widths = [np.ptp(intervals.interval_of_means(*apart, over_items)) for over_items in (1.0, 4.0, 100.0)]
    assert widths == sorted(widths)
    assert np.isclose(widths[-1], 2 * 1.96 * 101.333**0.5, rtol=1e-2)  # few trainings matter little among noisy items


def test_a_training_is_found_by_its_folder():
    every = [
        language.Trained(name, steps, seed, width, blocks, rate)
        for name in language.METHODS for steps in (9, 3_500) for seed in (0, 2) for width in (96, 192)
        for blocks in (3, 6) for rate in (1.0, 0.3, 1e-5)
    ]  # fmt: skip
    assert len({trained.folder for trained in every}) == len(every)
    assert [language.Trained.in_folder(trained.folder) for trained in every] == every


@pytest.mark.parametrize("wrong", ["--width 100", "--width 0", "--blocks 0", "--rate 0", "nobody"])
def test_a_training_on_the_language_that_cannot_be_is_refused_at_once(tmp_path, wrong):
    command = [sys.executable, RESULTS / "language.py", "train", tmp_path / "made", *wrong.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert wrong.split()[-1] in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_rows_of_other_trainings_stay(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [
        {"method": name, "dataset": "block", **about, "items": 5, "steps": 2, "bleu4": i}
        for i, about in enumerate(language.Trained("", 9, seed, wide).about() for seed in (0, 1) for wide in (96, 192))
        for name in ("lc", "ddot-u")
    ]  # fmt: skip
    rows.append({"method": "unfilled", "dataset": "block", "items": 5, "bleu4": 3})
    rows.append({"first": "ddot-u", "second": "lc", "dataset": "block", "seed": 0, "metric": "bleu4", "difference": 1})
    language.join(file, rows)
    written = file.read_bytes()
    assert len(written.splitlines()) == 10
    language.join(file, rows[1:3])
    assert file.read_bytes() == written
    language.join(file, [rows[0] | {"bleu4": 7}, rows[0] | {"seed": 2}])
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        rows[0] | {"bleu4": 7}, *rows[1:], rows[0] | {"seed": 2},
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"rows of \{5\} items, these have \{6\}"):
        language.join(file, [rows[0] | {"items": 6}])
    with pytest.raises(ValueError, match="other items"):
        language.join(file, [rows[0], rows[-2] | {"bleu4": 4}])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("lc", "'lc' is not RECIPE:STEPS:METHODS"),
        ("lc:5x:lc", "'lc:5x:lc' is not RECIPE:STEPS:METHODS"),
        ("lc:5:lc lc:6:pop", "lc:6:pop"),
        ("ddot_u:5:ddot-u ddot_ut:5:ddot-u", "ddot-u is asked for twice"),
        ("lc:5:lcc", "no method 'lcc'"),
        ("lc:5:ddot-u", "lc is not trained to fill as ddot-u does; it can fill as lc"),
        ("ddot_ut:5:infill-told", "ddot_ut is not trained to fill as infill-told does"),
        ("lcc:5:lc", "smollm2_lcc"),
    ],
)
def test_what_would_fail_after_hours_is_refused_at_once(arguments, named):
    with pytest.raises(ValueError, match=named):
        longer.asked(arguments.split())


def test_the_runs_of_a_comparison():
    asked = longer.asked(["ddot_ut:850:ddot-t,ddot-u", "lc:500:lc"])
    assert asked == {"ddot_ut": (850, ["ddot-t", "ddot-u"]), "lc": (500, ["lc"])}


@pytest.mark.parametrize("lost", [None, "pop"])
def test_methods_are_compared_at_like_checkpoints(tmp_path, monkeypatch, lost):
    """With trained models and filled texts made up: who is asked to fill what, and which pairs of rows are compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALUATE", "--datasets keyed")
    for name in ("1bw-block", "keyed"):
        Path(f"{name}.test.jsonl").write_text(
            '{"id": "0", "words": ["a", "boat", "leaves", "at", "dawn"], "keep": [1]}\n'
        )
    steps = {"ddot_ut": [4, 8, 9], "lc": [2, 5], "pop": [3, 6]}
    for recipe, counts in steps.items():
        for count in counts:
            (tmp_path / "runs" / "mine" / recipe / f"step-{count:08}").mkdir(parents=True)
    monkeypatch.setattr(longer, "train", lambda folder, seconds, runs: list(runs))
    asked = []

    def evaluate(command, **_):
        option = {
            name: command[i + 1] for i, name in enumerate(command) if name.startswith("--")
        }  # the last one counts
        model, rows = Path(command[4]), Path(option["--output"])
        asked.append((model.parent.name, int(model.name[5:]), option["--datasets"]))
        if model.parent.name != lost:
            task = {"dataset": "keyed", "split": "test", "task": "free", "steps": 16, "seed": 0, "items": 1}
            for method in option["--methods"].split(","):
                row = {"model": str(model), "method": method, **task}
                text = row | {"id": "0", "text": "a boat leaves" if method == "lc" else "a boat leaves at dawn"}
                for file, line in ((rows, row), (rows.with_name("mine.texts.jsonl"), text)):
                    with file.open("a") as lines:
                        lines.write(json.dumps(line) + "\n")
        return subprocess.CompletedProcess(command, model.parent.name == lost)

    monkeypatch.setattr(subprocess, "run", evaluate)
    runs = longer.asked(["ddot_ut:4:ddot-t,ddot-u", "lc:3:lc", "pop:3:pop"])
    assert longer.main(Path(), "mine", "9", runs) == (lost is None)
    assert asked == [(recipe, count, "keyed") for recipe, counts in steps.items() for count in counts]
    rows = [json.loads(line) for line in Path("rows/mine-rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 3 + 2 + 2 * (lost is None)
    assert {row["gpu_share"] for row in rows} == {0.333333}
    differences = [json.loads(line) for line in Path("rows/mine-differences.jsonl").read_text().splitlines()]
    found = {
        tuple(f"{row[side]} {int(row[model][-8:])}" for side, model in (("first", "model"), ("second", "other")))
        for row in differences
    }
    wanted = {(f"ddot-t {n}", f"ddot-u {n}") for n in (4, 8, 9)}
    wanted |= {(f"{name} {mine}", f"lc {its}") for name in ("ddot-t", "ddot-u") for mine, its in ((4, 2), (9, 5))}
    if lost is None:
        wanted |= {(f"{name} {mine}", f"pop {its}") for name in ("ddot-t", "ddot-u") for mine, its in ((4, 3), (9, 6))}
        wanted |= {("lc 2", "pop 3"), ("lc 5", "pop 6")}
    assert found == wanted
    assert {row["metric"] for row in differences} == set(longer.COMPARED)
    longest = [row for row in differences if row["metric"] == "success" and row["second"] == "lc"]
    assert all(row["difference"] == 0 for row in longest)


def test_a_comparison_without_test_sets_writes_nothing(tmp_path):
    command = [sys.executable, RESULTS / "longer.py", "bench", "longer", "9", "lc:5:lc"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bench has no 1bw-block.test.jsonl" in done.stderr
    assert not list(tmp_path.iterdir())
