"""Ten rooms: each imports only those above it, and training and infill do not know each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "ddot"
ROOMS = ("core", "data", "network", "methods", "training", "infill", "evaluation", "figures", "serve", "cli")
# Modules beside the rooms: any room may import these, and they import no room.
BESIDE = ("files", "interrupts", "version")
# The public API, and the way into the program: they open a room each.
DOORS = {"__init__": {"infill"}, "__main__": {"cli"}, "coupling": {"core"}}
MODULES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    """The room of a module; of one beside the rooms its own name."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def allowed(name: str) -> set[str]:
    """What a room, or a module beside the rooms, may import."""
    if name not in ROOMS:
        return DOORS.get(name, set())
    strangers = {"training": {"infill"}, "infill": {"training"}}.get(name, set())
    return {*ROOMS[: ROOMS.index(name) + 1], *BESIDE} - strangers


def imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """What every import statement, at whatever depth, names right below `ddot`. `package` is that of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            found = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for parts in found:
            if parts[0] == "ddot" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_rooms_above_it(path):
    package = ["ddot", *path.relative_to(ROOT).parent.parts]
    wrong = set(imported(ast.parse(path.read_text()), package)) - allowed(room_of(path))
    assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("core", "from ddot.data.tokenizer import Tokenizer", {"data"}),
        ("core", "def f():\n    import ddot.cli.app", {"cli"}),
        ("data", "from ddot import core, network", {"network"}),
        ("training", "from ddot.infill.model import Model", {"infill"}),
        ("infill", "if True:\n    from ddot.training import loop", {"training"}),
        ("files", "from ddot.core import rng", {"core"}),
        ("methods", "from ..training import loop", {"training"}),
        ("methods", "from .layout import Table", set()),
        ("network", "from ddot import __version__", set()),
        ("evaluation", "from ddot.training.recipes import RECIPES\nfrom ddot.files import seal", set()),
    ],
)
def test_a_wrong_import_is_noticed(room, source, wrong):
    assert set(imported(ast.parse(source), ["ddot", room])) - allowed(room) == wrong


def test_every_module_has_a_room():
    assert {room_of(path) for path in MODULES} == {*ROOMS, *BESIDE, *DOORS}


def test_no_module_is_a_drawer():
    for path in MODULES:
        assert path.stem not in ("utils", "common", "helpers", "misc")
