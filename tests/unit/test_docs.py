"""The documents name what exists: modules, their members, files and links."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "data", "network", "methods", "training", "infill", "evaluation", "figures", "serve", "cli")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TODAY = [page for page in PAGES if page.name != "log.md"]  # the log's names are those of the day


def resolve(name: str) -> object:
    found: object = import_module("ddot")
    path = "ddot"
    for part in name.split("."):
        path += f".{part}"
        found = getattr(found, part) if hasattr(found, part) else import_module(path)
    return found


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_names_exist(page):
    for name in re.findall(rf"`((?:{'|'.join(ROOMS)})\.\w+(?:\.\w+)*)(?:\(\))?`", page.read_text()):
        if not re.search(r"\.(py|json|jsonl|md|html|txt)$", name):
            resolve(name)


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_files_exist(page):
    for name in re.findall(r"`((?:ddot|tests|results|examples)/[\w./-]+)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text()):
        target = link[0] or link[1]
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
