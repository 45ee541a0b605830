"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Written
from ddot.evaluation.speed.infill import METHODS
from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render
from ddot.figures.charts import costs, draw_charts, quality, success_by_given
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


def four_speeds() -> str:
    """Four numbers for the README: one text on a core, many on a GPU, training, the coupling."""
    speeds = {
        name: read_rows(RESULTS / f"bench-{name}.jsonl") for name in ("infill", "infill-cuda", "train", "coupling")
    }
    alone = next(row for row in speeds["infill"] if row["way"] == "ddot infill, as shipped")
    listed = next(row for row in speeds["infill-cuda"] if row["way"].endswith("1024 sentences"))
    trained = next(row for row in speeds["train"] if row["network"] == "smollm2" and row["couplings"])
    coupled = next(row for row in speeds["coupling"] if row["contender"] == "ddot" and row["L"] == 64)
    faster = {row["L"]: row["ddot_is_faster"] for row in speeds["coupling"] if row["contender"] == "dp"}
    return "\n".join(
        [
            f"- **{alone['ms'] / 1000:.2f} s** for a 20-word sentence on one CPU core (int8), "
            f"{alone['times_plain']:.1f} times as fast as plain float32 with 64 slots.",
            f"- **{listed['sentences_a_second']:.0f} sentences per second** for a list of 1,024 on one H200.",
            f"- **{round(trained['slots_per_second'], -3):,.0f} slots per second** in training SmolLM2-135M on one "
            f"H200, {trained['of_matrix_peak']:.0%} of the measured bf16 matrix peak, couplings included.",
            f"- **{coupled['million_slots_per_second']:.0f} million slots per second** coupled on one core at L = 64, "
            f"{faster[64]:.1f} times as many as the paper's dynamic program ({faster[1024]:.0f} times at L = 1024).",
        ]
    )


def answers() -> str:
    """The three questions of a reader, answered with the rows."""

    def scores(dataset: str) -> dict[str, float]:
        some = [row for row in own if row["dataset"] == dataset and row["steps"] == 16]
        return {CONTENDERS[row["method"]].label: row["bleu4"] for row in some}

    def best(dataset: str) -> str:
        score, name = max((score, name) for name, score in scores(dataset).items())
        return f"{name} ({score:.1f})"

    def apart(second: str, metric: str) -> str:
        sides = {"first": "ddot-u", "model": "runs/smollm2_ddot_u", "second": second, "metric": metric}
        found = [row for row in every if "first" in row and sides.items() <= row.items()]
        return " and ".join(f"{row['difference']:+.1f}" for row in found).replace("-", "−")

    of_stories = sorted((row for row in embedded if row["dataset"] == "rocstories"), key=lambda row: row["items"])
    stories, told = ({row["method"]: row for row in of_stories}[name] for name in ("infill", "infill-told"))
    people = {row["method"]: row["nats"] for row in every if row.get("dataset") == "people" and "nats" in row}
    news = scores("1bw-block")
    return "\n".join(
        [
            "- **Which method should I use?** `ddot infill`: it needs no length and keeps your text by construction. "
            "Of the methods trained for 300 s each, which must also find where words are missing, the best in BLEU-4 "
            f"are {best('1bw-block')} on news and {best('yelp-block')} on reviews.",
            f"- **How good is the product?** ROUGE-1 {stories['rouge1']:.1f} on {stories['items']} ROCStories without "
            f"being told the length ({told['rouge1']:.1f} told), where the published DiffuGPT small has 13.7 and "
            f"medium 18.7, told. It needs {people['nats']:.2f} nats per token of people's own words, the length not "
            f"told; its base, which sees only the text before the blank, {people['base']:.2f}.",
            f"- **Does the paper's claim hold here?** Half of it, after 300 s of training each. DDOT-U minus PoP: "
            f"{apart('pop', 'bleu4')} BLEU-4 on news and reviews; minus LC: {apart('lc', 'bleu4')}, with "
            f"{apart('lc', 'success')} points of success. DDOT-T, our start, beats LC: "
            f"{news['DDOT-T']:.1f} against {news['LC']:.1f} on news.",
        ]
    )


def by_steps_on_a_gpu() -> list[dict[str, Any]]:
    """LC, PoP and DDOT-U as `ddot bench methods` writes them, from the seconds that `ddot evaluate` took."""
    timed = [row for row in own if row["method"] in METHODS and row["dataset"] == "1bw-block" and row.get("seconds")]
    lc = {row["steps"]: row["seconds"] for row in timed if row["method"] == "lc"}
    return [
        {
            "sampler": row["method"], "device": row["device"], "texts_at_once": row["batch"], "steps": row["steps"],
            "ms_a_text": 1000 * row["seconds"], "times_lc": lc[row["steps"]] / row["seconds"],
        }
        for row in sorted(timed, key=lambda row: (list(METHODS).index(row["method"]), row["steps"]))
    ]  # fmt: skip


FILES = ("rows", "differences", "nats", "bench-coupling", "bench-infill", "bench-train", "bench-cost", "bench-methods")
every = read_rows(*(RESULTS / f"{name}.jsonl" for name in FILES))
rows = [row for row in every if "bleu4" in row or "rouge1" in row]
embedded = [row for row in every if row.get("model") == "embedded"]
# Models trained for one contender, not the trials of λ; and the unfilled prompt.
alike = [row for row in rows if row["method"] == "unfilled" or row["model"] == f"runs/{row.get('recipe')}"]
plain = [row for row in alike if not CONTENDERS[row["method"]].variant]
# What writes the whole text, each with its own model.
own = [row for row in plain if isinstance(CONTENDERS[row["method"]].filling, Written)]
own = [row for row in own if row["recipe"] == CONTENDERS[row["method"]].recipe and row["task"] == "free"]
every += by_steps_on_a_gpu()
# The README's table: these, and the embedded model.
SHORT = ("unfilled", "lc", "ddot-u", "ddot-t", "autoregressive")
chosen = [row for row in alike if row["method"] in SHORT and row["model"] != "runs/smollm2_ddot"]
chosen += [row for row in embedded if row["method"] == "infill"]
insert(ROOT / "README.md", {"quality": render(chosen, "overview"), "speed": four_speeds()})
insert(ROOT / "docs" / "model.md", {"main": render(embedded, "main"), "forty": forty()})
results = ROOT / "docs" / "results.md"
insert(results, {name: render(every, name) for name in marked(results, NAMES)} | {"answers": answers()})
(RESULTS / "tables.tex").write_text(render(every, latex=True))
swept = {"unfilled", "autoregressive", *(row["method"] for row in plain if row["steps"] == 32)}
charts = []
for metric, against in product(("bleu4", "success"), ("steps", "seconds")):
    charts += quality([row for row in alike if row["method"] in swept], against, metric, "1bw-block", "free")
draw_charts(charts, ROOT / "docs" / "quality.png")
draw_charts(success_by_given(row for row in own if row.get("kept"))[0], ROOT / "docs" / "success.png")
draw_charts(costs(read_rows(RESULTS / "bench-cost.jsonl")), ROOT / "docs" / "cost.png")
