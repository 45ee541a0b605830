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
    """(value, ends) of every `value [low, high]`, without signs: "behind by 0.9 [0.3, 1.4]" is −0.9 [−1.4, −0.3]."""
    return {
        (abs(value), *sorted(map(abs, ends)))
        for value, *ends in ([float(x.replace("−", "-")) for x in match] for match in INTERVAL.findall(text))
    }


def measured():
    """Those of rows, and of generated tables."""
    found = set()
    for file in (ROOT / "results").glob("*.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            ends = {"": [row["difference"], row["low"], row["high"]]} if "low" in row else {}
            ends |= {name: [row[name], *each] for name, each in (row.get("intervals") or {}).items() if each}
            for value, *pair in ends.values():
                found.add((round(abs(value), 1), *sorted(round(abs(end), 1) for end in pair)))
    blocks = re.findall(r"<!-- ([\w-]+) -->(.*?)<!-- /\1 -->", (ROOT / "docs" / "results.md").read_text(), re.DOTALL)
    return found.union(*(intervals(block) for _, block in blocks))


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/paper.md", "docs/model.md"])
def test_intervals_in_sentences_are_those_of_rows(name):
    assert intervals((ROOT / name).read_text()) - measured() == set()


def test_an_interval_that_was_not_measured_is_noticed():
    assert intervals("ahead by 1.3 \\[0.4, 2.9\\] and **−5.5** [−7.9, −3.3]") == {(1.3, 0.4, 2.9), (5.5, 3.3, 7.9)}
    assert (1.3, 0.4, 2.9) in measured()
    assert (1.3, 0.4, 2.8) not in measured()
