"""Speed is not tested; what is measured is."""

import re

import pytest

from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.speed import infill
from ddot.evaluation.tables import render
from ddot.figures.charts import costs, draw_charts
from ddot.infill.model import Model
from ddot.infill.template import parse
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig


@pytest.fixture(scope="module")
def model():
    tokenizer = learn_bpe(infill.SENTENCES, 400)
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, tokenizer.vocabulary.rows), tokenizer.vocabulary)
    return Model(Denoiser(config), tokenizer)


def test_methods_are_measured_on_the_same_texts_and_left_context_reads_as_many_slots_again(monkeypatch, model):
    looked = []
    model.denoiser.register_forward_pre_hook(lambda _, given: looked.append(tuple(given[0].x.shape)))
    monkeypatch.setattr(infill, "load", lambda *_: model)
    rows = infill.measure_methods(steps=(1, 3), texts=2, rounds=1)
    assert [(row["steps"], row["sampler"]) for row in rows] == [(K, name) for K in (1, 3) for name in infill.METHODS]
    assert {row["times_lc"] for row in rows if row["sampler"] == "lc"} == {1.0}
    assert set(looked) == {(2, 64), (2, 128)}
    assert "| ddot-u | cpu | 2 |" in render(rows, "speed")
    with pytest.raises(ValueError, match=r"steps is 0; .*at least 1"):
        infill.measure_methods(steps=(0,))


@pytest.mark.parametrize(("words", "blanks"), [(2, 1), (9, 1), (64, 8), (64, 32), (512, 1)])
def test_texts_have_as_many_words_and_blanks_and_lack_words_of_the_passage(words, blanks):
    again = " ".join(infill.PASSAGE.split() * 5)
    for middle in infill.PLACES:
        text = infill.text_of(middle, words, blanks)
        template = parse(text)
        assert len(template.blanks) == blanks
        assert sum(len(literal.split()) for literal in template.literals) == words
        missing = rf" (?:\S+ ){{{infill.MISSING}}}"
        assert re.search(missing.join(re.escape(literal.strip()) for literal in template.literals), again)
        if blanks == 1:  # the same blank, with less around it
            left, right = (literal.strip() for literal in parse(infill.text_of(middle, words + 6, 1)).literals)
            assert left.endswith(template.literals[0].strip())
            assert right.startswith(template.literals[1].strip())


def test_cost_is_measured_and_drawn(monkeypatch, model, tmp_path):
    monkeypatch.setattr(infill, "load", lambda *_: model)
    monkeypatch.setattr(infill, "PLACES", (60,))
    rows = infill.measure_cost(words=(16, 4), blanks=(1, 2), rounds=2)
    assert [(row["against"], row["words"], row["blanks"]) for row in rows] == [
        ("words", 16, 1), ("words", 4, 1), ("blanks", 64, 1), ("blanks", 64, 2),
    ]  # fmt: skip
    assert all(0 < row[f"{ms}_least"] <= row[ms] <= row[f"{ms}_most"] for row in rows for ms in ("ms", "cpu_ms"))
    charts = costs(rows)
    assert [[[point.x for point in curve.points] for curve in chart.curves] for chart in charts] == [
        [[4, 16]] * 2,
        [[1, 2]] * 2,
    ]
    assert [[point.y for point in curve.points] for curve in charts[1].curves] == [
        [row[ms] for row in rows[2:]] for ms in ("ms", "cpu_ms")
    ]
    draw_charts(charts, tmp_path / "infill.svg")
    assert re.findall(r'id="(panel-\d-curve-\d)"', (tmp_path / "infill.svg").read_text()) == [
        f"panel-{panel}-curve-{curve}" for panel in (0, 1) for curve in (0, 1)
    ]
    assert "| blanks | 64 | 2 |" in render(rows, "speed")
    assert len(costs(rows[:1])) == 1
    for name, counts in (("words", (1,)), ("blanks", (33,))):
        with pytest.raises(ValueError, match=rf"{name} is {counts[0]}; .*between"):
            infill.measure_cost(**{name: counts})
    for wrong in ({}, {**rows[0], "ms": None}, {**rows[0], "against": "age"}, {**rows[0], "cpu_ms_least": 0}):
        with pytest.raises(ValueError, match="not a row of `ddot bench cost --json`"):
            costs([wrong])
    with pytest.raises(ValueError, match="no rows in these files"):
        costs([])
