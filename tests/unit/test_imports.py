"""Imports point one way, nothing is a drawer, and modules stay readable."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "ddot"
# A module may import from its own tier and from those before it.
TIERS = [
    "kernels chance portions records tokens noise rooms signals checkout devices files rows ahead drawing",
    "positions coupling absorbing annealing choice masking corpora packing template",
    "backbones",
    "denoiser",
    "losses sampling gaps",
    "methods",
    "quantise compiling prepare checkpoint"
    " distributed optimisers loader run samples progress start train convert package",
    "filling typist rules windows likelihood tasks blanks together stepwise frames infill batch"
    " benchmarks metrics ways ledger evaluate",
    "recipes tables labels tracks trace watch plots rescore curves charts serve cli bench",
]
TIER = {name: i for i, names in enumerate(TIERS) for name in names.split()}
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def first_part(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    mine = TIER[first_part(path)]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ddot"):
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            for name in names:
                if name in TIER:
                    assert TIER[name] <= mine, f"{path.name} imports {name}, which stands above it"


def test_no_drawers_and_no_overlong_modules():
    for path in MODULES:
        assert path.stem not in ("utils", "common", "helpers", "misc")
        assert len(path.read_text().splitlines()) <= 350, f"{path} wants splitting or deleting"
