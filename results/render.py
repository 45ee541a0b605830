"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from pathlib import Path

from ddot.charts import draw_charts
from ddot.curves import quality
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


rows, differences = read_rows(RESULTS / "rows.jsonl"), read_rows(RESULTS / "differences.jsonl")
speeds = read_rows(*(RESULTS / f"bench-{name}.jsonl" for name in ("coupling", "infill", "train")))
embedded = [row for row in rows if row["model"] == "embedded"]
# The methods that were trained alike. τ-leaps and words kept whole are in results/tables.md alone.
alike = [
    row for row in rows
    if row["method"] == "unfilled" or (row["model"] != "embedded" and not row["method"].endswith(("-leap", "-kept")))
]  # fmt: skip
swept = {row["method"] for row in alike if row["method"] != "unfilled" and row["steps"] != 16}
curves = [row for row in alike if row["dataset"] == "1bw-block" and row["method"] in (*swept, "unfilled")]
insert(ROOT / "README.md", "overview", render(embedded, "overview"))
insert(ROOT / "README.md", "alike", render(alike, "block"))
insert(ROOT / "README.md", "differences", render(differences, "differences"))
insert(ROOT / "docs" / "model.md", "main", render(embedded, "main"))
insert(ROOT / "README.md", "speed", render(speeds, "speed"))
insert(ROOT / "docs" / "model.md", "forty", forty())
every = [*rows, *differences, *speeds]
(RESULTS / "tables.md").write_text(f"# Every table\n\n{render(every)}")
(RESULTS / "tables.tex").write_text(render(every, latex=True))
draw_charts(
    [
        chart
        for metric in ("bleu4", "success")
        for against in ("steps", "seconds")
        for chart in quality(curves, against, metric, task="free")
    ],
    ROOT / "docs" / "quality.png",
)
