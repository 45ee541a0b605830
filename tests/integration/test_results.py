"""The documents say what was measured: rendered anew from results/, they stay as they are."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_documents_are_what_render_makes_of_the_results(tmp_path):
    for folder in ("docs", "results", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "README.md", tmp_path)
    done = subprocess.run([sys.executable, "results/render.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("README.md", "docs/model.md", "docs/results.md", "results/tables.tex"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: run python results/render.py"


INTERVAL = re.compile(r"([+−]?\d+\.\d+)\W* \\?\[([+−]?\d+\.\d+), ([+−]?\d+\.\d+)\\?\]")


def intervals(text):
    """Every `value [low, high]` as it stands, but with + where there is no sign in any of the three."""
    return {tuple(float(x.replace("−", "-")) for x in match) for match in INTERVAL.findall(text)}


def either_way(intervals):
    """These, and without signs as well: "behind by 0.9 [0.3, 1.4]" is −0.9 [−1.4, −0.3]."""
    return intervals | {(abs(value), *sorted(map(abs, ends))) for value, *ends in intervals}


def measured():
    """Those of rows, and of generated tables."""
    found = set()
    for file in (ROOT / "results").glob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            ends = {"": [row["difference"], row["low"], row["high"]]} if "low" in row else {}
            ends |= {name: [row[name], *each] for name, each in (row.get("intervals") or {}).items() if each}
            for value, *pair in ends.values():
                found.add(tuple(round(number, 1) for number in (value, *pair)))
    blocks = re.findall(r"<!-- ([\w-]+) -->(.*?)<!-- /\1 -->", (ROOT / "docs" / "results.md").read_text(), re.DOTALL)
    return either_way(found.union(*(intervals(block) for _, block in blocks)))


@pytest.mark.parametrize(
    ("name", "least"), [("docs/results.md", 100), ("docs/paper.md", 1), ("README.md", 0), ("docs/model.md", 0)]
)
def test_intervals_in_sentences_are_those_of_rows(name, least):
    found = intervals((ROOT / name).read_text())
    assert len(found) >= least
    assert found - measured() == set()


def test_an_interval_that_was_not_measured_is_noticed():
    assert intervals("ahead by 1.3 \\[0.4, 2.9\\] and **−5.5** [−7.9, −3.3]") == {(1.3, 0.4, 2.9), (-5.5, -7.9, -3.3)}
    known = measured()
    assert {(1.3, 0.4, 2.9), (-1.3, -2.9, -0.4), (-5.5, -7.9, -3.3), (5.5, 3.3, 7.9)} <= known
    assert not {(1.3, 0.4, 2.8), (5.5, -3.3, -7.9), (1.9, -2.5, -1.4), (-1.9, -2.5, -1.4)} & known
