"""A new method is one class and one registry entry (and the recipe it names): commands, tables and charts follow."""

import json
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tiny import tiny
from typer.testing import CliRunner

from ddot.cli import app
from ddot.evaluation import contenders
from ddot.evaluation.contenders import CONTENDERS, learnt
from ddot.evaluation.tables import read_rows, render
from ddot.figures.charts import looks_of, quality
from ddot.training import recipes
from ddot.training.loop import train

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
METHOD, ENTRY = map(dedent, re.findall("```python\n(.*?)```", CONTRIBUTING, re.DOTALL))


@pytest.fixture
def registered(monkeypatch):
    """The example of CONTRIBUTING.md."""
    scope: dict[str, Any] = dict(vars(contenders))
    exec(METHOD, scope)
    method = scope["Backwards"]()
    run = tiny()
    run = replace(run, name="backwards", plans=tuple(replace(plan, method=method) for plan in run.plans))
    monkeypatch.setitem(recipes.RECIPES, "backwards", lambda: run)
    monkeypatch.setitem(CONTENDERS, "backwards", eval(ENTRY, scope))
    return run


def test_every_contender_names_a_recipe_that_teaches_it():
    for name, one in CONTENDERS.items():
        assert one.recipe is None or learnt(name, one.recipe), name
    labels = [one.label for one in CONTENDERS.values()]
    assert len(set(labels)) == len(labels)


def test_a_new_method_is_trained_evaluated_tabulated_and_drawn(registered, tmp_path):
    assert learnt("backwards", "backwards")
    assert not learnt("backwards", "smollm2_lc")
    folder = tmp_path / "run"
    train(recipes.recipe("backwards"), folder)
    item = {"id": "0", "words": ["the", "small", "boat", "leaves", "the", "harbour"], "keep": [0, 1, 5]}
    (tmp_path / "1bw-block.test.jsonl").write_text(json.dumps(item) + "\n")
    output = tmp_path / "rows.jsonl"
    asked = ["evaluate", str(folder), "--bench", str(tmp_path), "--output", str(output), "--datasets", "1bw-block"]
    done = CliRunner().invoke(app, [*asked, "--methods", "unfilled,backwards", "--steps", "1,2", "--tasks", "free"])
    assert done.exit_code == 0, done.output
    assert "was not trained" not in done.output
    rows = read_rows(output)
    assert {row.get("recipe") for row in rows if row["method"] == "backwards"} == {"backwards"}
    for table in ("block", "overview", "main", "methods", "steps"):
        assert "BACKWARDS" in render(rows, table)
    (chart,) = quality(rows)
    (curve,) = [curve for curve in chart.curves if not curve.level]
    assert curve.name.startswith("BACKWARDS")
    assert looks_of([chart])[curve.name][:2] == ("#123456", "1")
    file = tmp_path / "quality.svg"
    assert CliRunner().invoke(app, ["plot", "quality", str(output), "-o", str(file)]).exit_code == 0
    assert "BACKWARDS" in file.read_text()


def test_rows_of_a_method_that_is_gone_are_shown_under_its_name():
    assert contenders.contender("gone").label == "gone"
