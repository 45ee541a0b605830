"""Curves: the data that is drawn is what the rows say, counted here by hand; the drawing holds that data."""

import json
import re
from statistics import stdev
from xml.etree import ElementTree

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from ddot.cli import app, run
from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.metrics.scoring import METRICS
from ddot.evaluation.rows import measured
from ddot.figures.canvas import canvas
from ddot.figures.charts import AXES, draw, draw_charts, looks_of, quality, success_by_given

LABELS = {name: one.label for name, one in CONTENDERS.items()}


def row(method="ddot-u", **about):
    """A row as `ddot evaluate` writes it."""
    usual = {
        "model": "run", "method": method, "dataset": "1bw-block", "split": "test", "task": "free",
        "steps": 16, "seed": 0, "items": 1000, "bleu2": 50.0, "bleu4": 40.0, "seconds": 0.05, "device": "cpu",
    }  # fmt: skip
    return usual | about


SWEEP = [row(steps=K, bleu4=30.0 + K, seconds=K / 100) for K in (16, 4, 64)]
OTHERS = [
    row("unfilled", bleu4=38.5, seconds=0.0),
    row("autoregressive", steps=4, bleu4=44.0, seconds=0.3),
    row("autoregressive", steps=16, bleu4=44.0, seconds=0.3),
    row("lc", bleu4=41.0, seconds=0.2),
]


def data(chart):
    return {curve.name: [(point.x, point.y) for point in curve.points] for curve in chart.curves}


def test_steps_by_hand():
    (chart,) = quality(SWEEP + OTHERS)
    assert (chart.title, chart.x, chart.y) == ("One-Billion-Word, block, free", "steps", "BLEU-4")
    assert data(chart) == {
        "prompt, unfilled": [(0, 38.5)],
        "autoregressive": [(16, 44.0)],
        "DDOT-U": [(4, 34.0), (16, 46.0), (64, 94.0)],
    }
    # LC has one number of steps: no curve. What steps mean nothing to runs across.
    assert {curve.name for curve in chart.curves if curve.level} == {"prompt, unfilled", "autoregressive"}


def test_seconds_by_hand():
    (chart,) = quality(SWEEP + OTHERS, "seconds", "bleu2")
    assert chart.y == "BLEU-2"
    assert data(chart)["DDOT-U"] == [(0.04, 50.0), (0.16, 50.0), (0.64, 50.0)]
    assert [point.note for curve in chart.curves for point in curve.points if curve.method == "ddot-u"] == [
        "4 steps", "16 steps", "64 steps",
    ]  # fmt: skip
    assert data(chart)["LC"] == [(0.2, 50.0)]
    assert [curve.name for curve in chart.curves if curve.level] == ["prompt, unfilled"]


def test_minutes_by_hand():
    def snapshot(method, recipe, minutes, **about):
        model = f"runs/{recipe}/step-{minutes:08d}"
        return row(method, model=model, recipe=recipe, own_seconds=60.0 * minutes, training_seconds=1e4, **about)

    rows = [
        snapshot("lc", "smollm2_lc", 9, bleu4=43.0, intervals={"bleu4": [41.0, 46.0]}),
        snapshot("lc", "smollm2_lc", 4, bleu4=41.0, intervals={"success": [90.0, 99.0]}),
        snapshot("lc", "smollm2_pop", 5, bleu4=20.0),
        row("ddot-u", bleu4=44.0),  # does not say how long it was trained
        row("unfilled", bleu4=38.5),
    ]
    (chart,) = quality(rows, "minutes")
    assert (chart.x, chart.logarithmic) == ("minutes of training", False)
    assert data(chart) == {
        "prompt, unfilled": [(0, 38.5)],
        "LC": [(4, 41.0), (9, 43.0)],  # snapshots of one training are one curve
        "LC, runs/smollm2_pop": [(5, 20.0)],
    }
    ends = {(point.x, point.low, point.high) for curve in chart.curves for point in curve.points}
    assert ends == {(0, None, None), (4, None, None), (9, 41.0, 46.0), (5, None, None)}
    shared = [snapshot("lc", "smollm2_lc", 12, gpu_share=0.5), snapshot("ddot-t", "smollm2_ddot_t", 12, gpu_share=0.25)]
    (chart,) = quality([*rows[:1], *shared], "minutes")
    assert chart.x == "whole-GPU minutes of training"
    assert data(chart) == {"LC": [(6, 40.0), (9, 43.0)], "DDOT-T": [(3, 40.0)]}
    seeds = [snapshot("lc", "smollm2_lc", 4, seed=seed, intervals={"bleu4": [0.0, 99.0]}) for seed in (0, 1)]
    (point,) = quality(seeds, "minutes")[0].curves[0].points
    assert (point.low, point.high) == (40.0, 40.0)  # over seeds
    with pytest.raises(ValueError, match="no contender has bleu4 and own_seconds on any set"):
        quality(SWEEP, "minutes")


def test_seeds_models_devices_tasks_and_sets():
    rows = [row(steps=K, seed=seed, bleu4=10.0 * K + seed) for K in (2, 4) for seed in (0, 1, 5)]
    (chart,) = quality(rows)
    (point, _) = chart.curves[0].points
    assert point.y == pytest.approx(22.0)
    assert (point.low, point.high) == pytest.approx((22 - stdev([0, 1, 5]), 22 + stdev([0, 1, 5])))
    two = [*SWEEP, *(row(model="runs/other", steps=K) for K in (4, 16))]
    assert set(data(quality(two)[0])) == {"DDOT-U, run", "DDOT-U, runs/other"}
    both = [*SWEEP, *(row(steps=K, task="located") for K in (4, 16)), *(row(dataset="mine", steps=K) for K in (1, 2))]
    titles = ["One-Billion-Word, block, free", "One-Billion-Word, block, located", "mine, free"]
    assert [chart.title for chart in quality(both)] == titles
    assert [chart.title for chart in quality(both, task="located")] == titles[1:2]
    assert [chart.title for chart in quality(both, dataset="mine")] == titles[2:]
    # A set without a sweep has seconds, and nothing over steps.
    assert [chart.title for chart in quality([*SWEEP, row(dataset="mine")])] == titles[:1]
    assert [chart.title for chart in quality([*SWEEP, row(dataset="mine")], "seconds")] == [titles[0], titles[2]]
    assert set(AXES) == {*METRICS, "nats"}


# Texts with 0 to 11 given words, three of each: one way keeps all, one but a third of those with more than four.
KEPT = [
    row("ddot-u", items=36, kept={str(n): [3, 3] for n in range(12)}),
    *(row("lc", items=36, seed=seed, kept={str(n): [(1, 2)[seed] if n > 4 else 3, 3] for n in some})
      for seed, some in enumerate([range(12), range(5)])),
    row("unfilled", items=36, kept={"0": [3, 3]}),
]  # fmt: skip


def test_success_by_hand():
    (chart,), left = success_by_given(KEPT)
    assert not left
    assert (chart.title, chart.x) == ("One-Billion-Word, block, free", "words given")
    assert [curve.name for curve in chart.curves] == ["LC", "DDOT-U"]  # what nobody filled is not there
    ranges = [(int(name.split("–")[0]), int(name.split("–")[-1])) for name in chart.names.values()]
    assert [n for low, high in ranges for n in range(low, high + 1)] == list(range(12))
    assert 2 < len(ranges) <= 8
    for curve in chart.curves:
        for point, (low, high) in zip(curve.points, ranges, strict=True):
            texts = {n: 6 if curve.name == "LC" and n <= 4 else 3 for n in range(low, high + 1)}  # of both seeds
            kept = sum(count if curve.name == "DDOT-U" or n <= 4 else 1 for n, count in texts.items())
            count = sum(texts.values())
            assert point.y == pytest.approx(100 * kept / count)
            exact = binomtest(kept, count).proportion_ci(method="wilson")
            assert (point.low, point.high) == pytest.approx((100 * exact.low, 100 * exact.high), abs=1e-4)
    others = [row("pop"), row("pop", kept=None, task="located"), row("pop", dataset="mine")]
    assert success_by_given([*KEPT, *others]) == ([chart], measured(others))
    assert success_by_given([*KEPT, *others], "1bw-block", "free") == ([chart], measured(others[:1]))
    (both,), _ = success_by_given([*KEPT, row("lc", items=3, kept={"7": [3, 3]})])
    assert [curve.name for curve in both.curves] == ["LC (n = 3)", "LC", "DDOT-U"]


def test_the_drawing_holds_the_data(tmp_path):
    rows = SWEEP + OTHERS + [row("ddot-u-leap", steps=K) for K in (4, 16)]
    charts = [*quality(rows), *quality(rows, "seconds")]
    with canvas(tmp_path / "a.svg", 5.0, 4.0) as figure:
        for number, chart in enumerate(charts):
            axes = figure.add_subplot(1, 2, number + 1)
            draw(axes, chart, number, looks_of(charts))
            lines = {line.get_gid(): line for line in axes.lines if line.get_gid()}
            for place, curve in enumerate(chart.curves):
                line = lines.pop(f"panel-{number}-curve-{place}")
                assert line.get_label() == curve.name
                colour, mark, dashes = looks_of(charts)[curve.name]
                assert line.get_color() == colour
                assert line.is_dashed() == (curve.level or dashes != "-")
                assert curve.level or line.get_marker() == mark
                drawn = [tuple(pair) for pair in line.get_xydata().tolist()]
                if curve.level:
                    assert {y for _, y in drawn} == {curve.points[0].y}
                else:
                    assert drawn == [(point.x, point.y) for point in curve.points]
            assert not lines


def test_snapshots_of_the_same_minute_are_drawn_beside_each_other(tmp_path):
    snapshots = [(name, minutes) for minutes in (1, 3) for name in ("lc", "ddot-u", "ddot-t")]
    about = {"intervals": {"bleu4": [30.0, 50.0]}}
    rows = [row(name, model=f"{name}-{at}", recipe=name, own_seconds=60.0 * at, **about) for name, at in snapshots]
    (chart,) = quality(rows, "minutes")
    with canvas(tmp_path / "a.svg", 5.0, 4.0) as figure:
        axes = figure.add_subplot()
        draw(axes, chart, 0, looks_of([chart]))
        lines = [line for line in axes.lines if line.get_gid()]
        places = [line.get_transform().transform(line.get_xydata())[0, 0] for line in lines]
        assert [line.get_xdata()[0] for line in lines] == [1, 1, 1]  # the data stay as they are
        assert len(set(places)) == 3
        assert places == sorted(places)
        intervals = [line for line in axes.lines if not line.get_gid()]
        drawn = {round(float(line.get_transform().transform(line.get_xydata())[0, 0]), 6) for line in intervals}
        assert {round(float(place), 6) for place in places} < drawn


def test_a_method_has_its_colour_and_no_two_curves_look_alike():
    rows = [row(method, steps=K, bleu4=float(K)) for method in [*LABELS, "another"] for K in (4, 16)]
    looks = looks_of(quality(rows))
    assert len(set(looks.values())) == len(looks) == len(LABELS) + 1
    for some in (["lc", "ddot-u-leap", "ddot-t"], ["ddot-t", "ddot-u-leap"]):  # whatever is drawn beside it
        few = looks_of(quality([each for each in rows if each["method"] in some]))
        assert all(few[LABELS[name]][:2] == looks[LABELS[name]][:2] for name in some)
    models = [row(model=str(number), steps=K, bleu4=float(K)) for number in range(8) for K in (4, 16)]
    assert len(set(looks_of(quality(models)).values())) == 8
    assert looks[LABELS["ddot-u-leap"]][:2] == looks[LABELS["ddot-u"]][:2] != looks[LABELS["ddot-t"]][:2]


def test_files_name_every_curve(tmp_path):
    rows = [row(method, steps=K, bleu4=float(K)) for method in LABELS for K in (4, 16)]
    draw_charts([*quality(rows), *quality(rows, "seconds")], tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]
    assert all(texts.count(label) == 1 for label in LABELS.values())
    named = [e.get("id") for e in root.iter() if re.fullmatch(r"panel-\d-curve-\d+", e.get("id") or "")]
    assert len(named) == 2 * len(LABELS)
    draw_charts(quality(rows), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_sentences(tmp_path):
    for wrong, sentence in [
        (lambda: quality([row()]), "no contender has bleu4 at several numbers of steps on any set, any task"),
        (lambda: quality([row(seconds=None)], "seconds"), "no contender has bleu4 and seconds on any set"),
        (lambda: quality([{"contender": "ddot"}]), "no rows of `ddot evaluate`"),
        (lambda: quality(SWEEP, task="both"), "no row has the task 'both'; available: free"),
        (lambda: quality(SWEEP, metric="beauty"), "metric 'beauty'; available: bleu2"),
        (lambda: quality(SWEEP, "money"), "axis 'money'; available: steps, seconds"),
        (lambda: quality(SWEEP, dataset="mine"), "no row has the set 'mine'; available: 1bw-block"),
        (lambda: quality([*SWEEP, row(task="located")], task="located"), "on any set, located"),
        (lambda: draw_charts(quality(SWEEP), tmp_path / "a.pdf"), "ends in neither .png nor .svg"),
        (lambda: success_by_given(KEPT, task="located"), "no row has the task 'located'; available: free"),
        (lambda: success_by_given(KEPT, "mine"), "no row has the set 'mine'; available: 1bw-block"),
        (
            lambda: success_by_given([*KEPT, row(dataset="mine")], "mine"),
            "none of 1 rows on mine, any task says how many",
        ),
        (lambda: success_by_given(SWEEP), "ddot rescore rows.jsonl --bench DIR --metrics success adds it"),
        (lambda: success_by_given([row("unfilled")]), "no filled rows of `ddot evaluate`"),
        (lambda: success_by_given([row(kept=[3, 3])]), "'kept' is [3, 3]; expected an object"),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            wrong()


def test_commands(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "sweep.jsonl"
    rows.write_text("".join(json.dumps(each) + "\n" for each in [*SWEEP, *KEPT]))
    for arguments in (
        ["quality", str(rows), "--against", "seconds"],
        ["success", str(rows)],
        ["success", str(rows), "--methods", "lc,ddot-u", "--models", "run"],
    ):
        file = tmp_path / "figure.svg"
        done = CliRunner().invoke(app, ["plot", *arguments, "-o", str(file)])
        assert (done.exit_code, done.stdout.strip()) == (0, str(file))
        file.unlink()
        monkeypatch.setattr("sys.argv", ["ddot", "plot", *arguments, "-o", str(tmp_path / "a.gif")])
        with pytest.raises(SystemExit) as end:
            run()
        assert end.value.code == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "ends in neither .png nor .svg" in said
    for option in ("--methods", "--models"):
        monkeypatch.setattr("sys.argv", ["ddot", "plot", "success", str(rows), option, "magic"])
        with pytest.raises(SystemExit) as end:
            run()
        assert end.value.code == 2
        assert f"no row has the {option[2:-1]} 'magic'; available: " in capsys.readouterr().err
