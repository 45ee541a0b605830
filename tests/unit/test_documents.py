"""Documents name commands, options, files, modules and links that exist; no tracked file names a machine's folders."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import typer

from ddot.cli import app

ROOT = Path(__file__).parents[2]
ROOMS = sorted(path.parent.name for path in (ROOT / "ddot").glob("*/__init__.py"))
# docs/log.md tells what was: commands and modules of that day.
DOCUMENTS = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if path.name not in ("log.md", "NOTICE.md")
)


@cache
def tracked() -> tuple[Path, ...]:
    found = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode or not found.stdout:
        pytest.skip("not a git checkout")
    return tuple(ROOT / name for name in found.stdout.split("\0") if name and (ROOT / name).is_file())


def code_of(text: str) -> list[str]:
    """Lines of code blocks (fenced or indented), and spans between backticks."""
    fenced = re.findall(r"^\s*```.*?\n(.*?)^\s*```", text, re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^(?: {4}|\t)(.*)$", text, re.MULTILINE)
    return [*"".join(fenced).splitlines(), *indented, *re.findall(r"`([^`\n]+)`", text)]


def commands() -> dict[str, set[str]]:
    """The options of every command, by its words: "infill", "plot trajectories"."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        for more, each in getattr(command, "commands", {"": command}).items():
            found[f"{name} {more}".strip()] = {option for parameter in each.params for option in parameter.opts}
    return found


# `ddot` by itself, by its path, or as a module of whatever runs it; then up to two words of a command.
_COMMAND = r"(?:\$ )?(?:\S*/|(?:\S+ )+-m )?ddot ([a-z][\w-]*)(?: ([a-z]\w*))?(?=\s|$)(.*)"


def named_commands(line: str) -> list[tuple[str, str]]:
    """(words after `ddot`, the rest of the command) for each command in a line of code."""
    found = []
    for part in re.split(r"[|;#()]|&&", line):
        if match := re.match(_COMMAND, part.strip()):
            words = " ".join(filter(None, match.groups()[:2]))
            found.append((words, match[3]))
    return found


def wrong_commands(text: str) -> list[str]:
    known, wrong = commands(), []
    groups = {name.split()[0] for name in known if " " in name}
    for line in code_of(text):
        for words, rest in named_commands(line):
            name = words if words.split()[0] in groups and " " in words else words.split()[0]
            if name in groups:
                continue
            if name not in known:
                wrong.append(f"ddot {name}")
                continue
            options = re.findall(r"(?<!\S)--[a-z][\w-]*", rest)
            wrong += [f"ddot {name} {option}" for option in options if option not in known[name] | {"--help"}]
    return wrong


def wrong_files(text: str, where: Path) -> list[str]:
    folders = {path.relative_to(ROOT).parts[0] for path in tracked() if path.parent != ROOT}
    wrong = []
    for code in code_of(text):
        for path in re.findall(r"(?<![\w./<*{-])([\w.-]+(?:/[\w.-]+)+/?)", code):
            if path.split("/")[0] in folders and not (ROOT / path).exists():
                wrong.append(path)
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if not link.startswith(("http:", "https:", "mailto:")) and not (where / link).exists():
            wrong.append(link)
    return wrong


def wrong_modules(text: str) -> list[str]:
    wrong = []
    settings = (ROOT / "ddot" / "training" / "config.py").read_text()  # training.steps is one, no name of a module
    for code in code_of(text):
        for name in re.findall(rf"(?<![\w./-])((?:ddot\.)?(?:{'|'.join(ROOMS)})(?:\.\w+)+)(?![\w/])", code):
            place, rest = ROOT / "ddot", name.removeprefix("ddot.").split(".")
            while rest and (place / rest[0]).is_dir():
                place /= rest.pop(0)
            module = (
                place / f"{rest.pop(0)}.py" if rest and (place / f"{rest[0]}.py").is_file() else place / "__init__.py"
            )
            source = module.read_text()
            if rest and not any(re.search(rf"\b{rest[0]}\b", each) for each in (source, settings)):
                wrong.append(name)
    return wrong


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_what_exists(path):
    text = path.read_text()
    assert [*wrong_commands(text), *wrong_files(text, path.parent), *wrong_modules(text)] == []


def test_what_does_not_exist_is_noticed():
    text = """Type `ddot infil "a ___"` or `ddot infill --stepz 3`, see `ddot/core/nothing.py`, [here](docs/no.md) and
`core.rng.no_such_name`; `ddot plot nothing x`, `core.nowhere`.

    $ .venv/bin/ddot serv --port 1   # no such command
    python -m ddot infill "a ___" --json --n 3
"""
    assert wrong_commands(text) == ["ddot serv", "ddot infil", "ddot infill --stepz", "ddot plot nothing"]
    assert wrong_files(text, ROOT) == ["ddot/core/nothing.py", "docs/no.md"]
    assert wrong_modules(text) == ["core.rng.no_such_name", "core.nowhere"]


# Folders of one machine or person; /tmp and /dev are everybody's, and /home/somebody is nobody's.
MACHINE = re.compile(
    r"(?<![\w.~$}/-])(?:/(?:home|root|Users|work|mnt|scratch|workspace|private)/(?!somebody/)\w|[A-Z]:\\Users\\)"
)


def test_no_tracked_file_names_a_folder_of_one_machine():
    assert MACHINE.search("see /home/" + "ann/x and /ro" + "ot/y")
    assert not MACHINE.search("https://example.org/home/x and results/work/y and ~/work/z")
    wrong = []
    for path in tracked():
        content = path.read_bytes()
        if path == Path(__file__) or path.is_relative_to(ROOT / "ddot" / "model") or b"\0" in content[:8192]:
            continue
        if match := MACHINE.search(content.decode(errors="replace")):
            wrong.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert wrong == []
