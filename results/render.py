"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from itertools import product
from pathlib import Path

from ddot.evaluation.tables import insert, read_rows, render
from ddot.figures.charts import draw_charts
from ddot.figures.curves import quality, success_by_given
from ddot.infill.template import parse

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
# The methods that were trained alike, not the trials of λ; and the prompt as it was given.
alike = [row for row in rows if row["method"] == "unfilled" or row["model"] == f"runs/{row.get('recipe')}"]
PLAIN = ("unfilled", "lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t", "ddot-t-kept", "fixed-guessed", "fixed-oracle")
PLAIN += ("autoregressive", "insertion", "lc-drawn", "pop-drawn", "ddot-u-drawn", "ddot-t-drawn")
methods = render([row for row in alike if row["method"] in PLAIN], "methods")
tables = {"overview": render(embedded, "overview"), "methods": methods, "speed": render(speeds, "speed")}
insert(ROOT / "README.md", tables)
insert(ROOT / "docs" / "model.md", {"main": render(embedded, "main"), "forty": forty()})
every = [*rows, *differences, *speeds, *read_rows(RESULTS / "bench-methods.jsonl")]
(RESULTS / "tables.md").write_text(f"# Every table\n\n{render(every)}")
(RESULTS / "tables.tex").write_text(render(every, latex=True))
likeliest = [row for row in alike if not row["method"].endswith("-drawn")]
swept = {"unfilled", "autoregressive", *(row["method"] for row in likeliest if row["steps"] == 32)}
charts = []
for metric, against in product(("bleu4", "success"), ("steps", "seconds")):
    charts += quality([row for row in alike if row["method"] in swept], against, metric, "1bw-block", "free")
draw_charts(charts, ROOT / "docs" / "quality.png")
# One model a method.
DRAWN = ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t", "autoregressive", "insertion")
once = [row for row in alike if row["method"] in DRAWN and row.get("kept") and row["task"] == "free"]
charts, _ = success_by_given(row for row in once if row["recipe"] != "smollm2_ddot_u")
draw_charts(charts, ROOT / "docs" / "success.png")
