"""Curves: the data that is drawn is what the rows say, counted here by hand; the drawing holds that data."""

import json
import re
from statistics import stdev
from xml.etree import ElementTree

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from ddot.charts import draw, draw_charts, looks_of
from ddot.cli import app, run
from ddot.curves import AXES, quality, success_by_given
from ddot.drawing import canvas
from ddot.metrics import METRICS
from ddot.tables.lines import LABELS


def row(method="ddot-u", **about):
    """A row as `ddot evaluate` writes it."""
    usual = {
        "model": f"runs/{method}", "method": method, "dataset": "1bw-block", "split": "test", "task": "free",
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


def test_seeds_models_devices_tasks_and_sets():
    rows = [row(steps=K, seed=seed, bleu4=10.0 * K + seed) for K in (2, 4) for seed in (0, 1, 5)]
    (chart,) = quality(rows)
    (point, _) = chart.curves[0].points
    assert point.y == pytest.approx(22.0)
    assert (point.low, point.high) == pytest.approx((22 - stdev([0, 1, 5]), 22 + stdev([0, 1, 5])))
    two = [*SWEEP, *(row(model="runs/other", steps=K) for K in (4, 16))]
    assert set(data(quality(two)[0])) == {"DDOT-U, runs/ddot-u", "DDOT-U, runs/other"}
    both = [*SWEEP, *(row(steps=K, task="located") for K in (4, 16)), *(row(dataset="mine", steps=K) for K in (1, 2))]
    titles = ["One-Billion-Word, block, free", "One-Billion-Word, block, located", "mine, free"]
    assert [chart.title for chart in quality(both)] == titles
    assert [chart.title for chart in quality(both, task="located")] == titles[1:2]
    assert [chart.title for chart in quality(both, dataset="mine")] == titles[2:]
    # A set without a sweep has seconds, and nothing over steps.
    assert [chart.title for chart in quality([*SWEEP, row(dataset="mine")])] == titles[:1]
    assert [chart.title for chart in quality([*SWEEP, row(dataset="mine")], "seconds")] == [titles[0], titles[2]]
    assert set(AXES) <= set(METRICS)


@pytest.fixture
def bench(tmp_path):
    """Items with 0 to 11 given words, and texts of two ways: one right, one that loses the order of more than four."""
    words = [f"w{i}" for i in range(12)]
    items = [{"id": f"{n}-{k}", "words": words, "keep": list(range(n))} for n in range(12) for k in range(3)]
    (tmp_path / "1bw-block.test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "some").mkdir()
    lines = []
    for method in ("ddot-u", "lc", "unfilled"):
        about = {key: value for key, value in row(method).items() if key not in ("bleu2", "bleu4", "seconds", "device")}
        for item in items:
            wrong = method == "lc" and len(item["keep"]) > 4 and not item["id"].endswith("-0")
            lines.append(about | {"id": item["id"], "text": " ".join(words[::-1] if wrong else words)})
    (tmp_path / "some" / "rows.texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_success_by_hand(bench):
    (chart,) = success_by_given([bench / "some" / "rows.jsonl"], bench)
    assert (chart.title, chart.x) == ("One-Billion-Word, block, free", "words given")
    assert [curve.name for curve in chart.curves] == ["LC", "DDOT-U"]  # what nobody filled is not there
    ranges = [(int(name.split("–")[0]), int(name.split("–")[-1])) for name in chart.names.values()]
    assert [n for low, high in ranges for n in range(low, high + 1)] == list(range(12))
    assert 2 < len(ranges) <= 8
    for curve in chart.curves:
        for point, (low, high) in zip(curve.points, ranges, strict=True):
            share = {n: 1.0 if curve.name == "DDOT-U" or n <= 4 else 1 / 3 for n in range(low, high + 1)}
            count = 3 * len(share)
            assert point.y == pytest.approx(100 * sum(share.values()) / len(share))
            exact = binomtest(round(point.y * count / 100), count).proportion_ci(method="wilson")
            assert (point.low, point.high) == pytest.approx((100 * exact.low, 100 * exact.high), abs=1e-4)
    few = success_by_given([bench / "some" / "rows.texts.jsonl"], bench, "1bw-block", "free")
    assert few == [chart]


def test_the_drawing_holds_the_data():
    rows = SWEEP + OTHERS + [row("ddot-u-leap", steps=K) for K in (4, 16)]
    charts = [*quality(rows), *quality(rows, "seconds")]
    with canvas(5.0, 4.0) as figure:
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


def test_a_method_has_its_colour_and_no_two_curves_look_alike():
    rows = [row(method, steps=K, bleu4=float(K)) for method in [*LABELS, "another"] for K in (4, 16)]
    looks = looks_of(quality(rows))
    assert len(set(looks.values())) == len(looks) == len(LABELS) + 1
    for some in (["lc", "ddot-u-leap", "ddot-t"], ["ddot-t", "ddot-u-leap"]):  # whatever is drawn beside it
        few = looks_of(quality([each for each in rows if each["method"] in some]))
        assert all(few[LABELS[name]][:2] == looks[LABELS[name]][:2] for name in some)
    models = [row(model=str(number), steps=K, bleu4=float(K)) for number in range(30) for K in (4, 16)]
    assert len(set(looks_of(quality(models)).values())) == 30
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


def test_mistakes_are_sentences(bench, tmp_path):
    texts = bench / "some" / "rows.texts.jsonl"
    for wrong, sentence in [
        (lambda: quality([row()]), "no way has bleu4 at several numbers of steps on any set, any task"),
        (lambda: quality([row(seconds=None)], "seconds"), "no way has bleu4 and seconds on any set"),
        (lambda: quality([{"contender": "ddot"}]), "no rows of `ddot evaluate`"),
        (lambda: quality(SWEEP, task="both"), "the rows have no task 'both'; they have free"),
        (lambda: quality(SWEEP, metric="beauty"), "there is no curve of 'beauty'; there are bleu2"),
        (lambda: quality(SWEEP, "money"), "there is no axis of 'money'; there are steps, seconds"),
        (lambda: quality(SWEEP, dataset="mine"), "the rows have no set 'mine'; they have 1bw-block"),
        (lambda: quality([*SWEEP, row(task="located")], task="located"), "on any set, located"),
        (lambda: draw_charts(quality(SWEEP), tmp_path / "a.pdf"), "ends in neither .png nor .svg"),
        (lambda: success_by_given([texts], bench, task="located"), "no texts of the task 'located'; there are free"),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            wrong()
    (bench / "1bw-block.test.jsonl").write_text(json.dumps({"id": "x", "words": ["a"], "keep": []}) + "\n")
    with pytest.raises(ValueError, match="has no item '0-0'; give the --bench"):
        success_by_given([texts], bench)
    (tmp_path / "rows.jsonl").write_text(json.dumps(row()) + "\n")
    with pytest.raises(FileNotFoundError, match=r"no texts at .*rows\.texts\.jsonl"):
        success_by_given([tmp_path / "rows.jsonl"], bench)
    (tmp_path / "rows.texts.jsonl").write_text(json.dumps(row()) + "\n")
    with pytest.raises(ValueError, match=r"rows.texts.jsonl, line 1 has no 'id'"):
        success_by_given([tmp_path / "rows.jsonl"], bench)


def test_commands(bench, tmp_path, monkeypatch, capsys):
    rows = tmp_path / "sweep.jsonl"
    rows.write_text("".join(json.dumps(each) + "\n" for each in SWEEP))
    for arguments in (
        ["quality", str(rows), "--against", "seconds"],
        ["success", str(bench / "some" / "rows.jsonl"), "--bench", str(bench)],
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
