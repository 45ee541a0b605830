"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from pathlib import Path

from ddot.tables import insert, read_rows, render
from ddot.template import parse

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent


def forty() -> str:
    """The forty sentences of the model card as a list, what the model wrote in bold."""
    lines = []
    asked = map(json.loads, (ROOT / "examples" / "forty.jsonl").read_text().splitlines())
    filled = map(json.loads, (RESULTS / "forty.jsonl").read_text().splitlines())
    for question, answer in zip(asked, filled, strict=True):
        template = parse(question["text"])
        bold = [fill.replace(fill.strip(), f"**{fill.strip()}**") if fill.strip() else "" for fill in answer["fills"]]
        lines.append(f"{answer['id']}. {template.text(bold)}")
    return "\n".join(lines) + "\n"


rows = read_rows(RESULTS / "rows.jsonl")
speeds = read_rows(*(RESULTS / f"bench-{name}.jsonl" for name in ("coupling", "infill", "train")))
insert(ROOT / "README.md", "overview", render(rows, "overview"))
insert(ROOT / "docs" / "model.md", "main", render(rows, "main"))
insert(ROOT / "README.md", "speed", render(speeds, "speed"))
insert(ROOT / "docs" / "model.md", "forty", forty())
(RESULTS / "tables.md").write_text(f"# Every table\n\n{render([*rows, *speeds])}")
(RESULTS / "tables.tex").write_text(render([*rows, *speeds], latex=True))
