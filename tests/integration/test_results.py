"""The documents say what was measured: rendered anew from results/, they stay as they are."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_documents_are_what_render_makes_of_the_results(tmp_path):
    for folder in ("docs", "results", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "README.md", tmp_path)
    done = subprocess.run([sys.executable, "results/render.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("README.md", "docs/model.md", "docs/results.md", "results/tables.tex"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: run python results/render.py"
