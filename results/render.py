"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Written
from ddot.evaluation.speed.infill import METHODS
from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render
from ddot.evaluation.tables.comparisons import BLOCKS
from ddot.evaluation.tables.lines import SETS, signed
from ddot.evaluation.tables.page import Column, Table, markdown
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

    def later(metric: str) -> str:
        """DDOT-U minus LC on both sets when the longer training ended."""
        found = [between(*moments(name)[-1], metric) for name in BLOCKS]
        return " and ".join(map(with_interval if metric == "bleu4" else difference, found))

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
            f"- **Does the paper's claim hold here?** Against PoP yes: {apart('pop', 'bleu4')} BLEU-4 for DDOT-U on "
            "news and reviews, after 300 s each. Against LC in success yes; in BLEU-4 not after 300 s each, but "
            "after 948 s each, from [another start](#lc-against-ddot-u-for-longer), yes on news and level on reviews. "
            f"DDOT-U minus LC after 300 s: {apart('lc', 'bleu4')} BLEU-4, {apart('lc', 'success')} points of success; "
            f"after 948 s: {later('bleu4')} BLEU-4, {later('success')} of success, {later('gaps_found')} of gaps "
            f"found. DDOT-T, our start, beats LC after 300 s ({news['DDOT-T']:.1f} against {news['LC']:.1f} on news); "
            "it was not trained for longer.",
        ]
    )


def moments(dataset: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows of LC and DDOT-U on a set at each snapshot of the longer training."""
    found = [row for row in longer if row["dataset"] == dataset]
    lc, ddot_u = (
        sorted((row for row in found if row["method"] == name), key=lambda row: row["own_seconds"])
        for name in ("lc", "ddot-u")
    )
    return list(zip(lc, ddot_u, strict=True))


def between(lc: dict[str, Any], ddot_u: dict[str, Any], metric: str) -> dict[str, Any]:
    """The line of `ddot compare` for two rows."""
    asked = {"model": ddot_u["model"], "other": lc["model"], "dataset": lc["dataset"], "metric": metric}
    return next(row for row in compared if row["first"] == "ddot-u" and asked.items() <= row.items())


def difference(row: dict[str, Any]) -> str:
    return signed(row["difference"], "+.1f")


def with_interval(row: dict[str, Any]) -> str:
    return f"{difference(row)} [{signed(row['low'], '+.1f')}, {signed(row['high'], '+.1f')}]"


def for_longer() -> str:
    """LC and DDOT-U at every snapshot, and their differences on the same items."""
    metrics = {"bleu4": "B4", "success": "SR", "gaps_found": "gaps"}
    heads = ["minutes", "steps", *metrics.values(), "extra"]
    columns = [Column(""), *(Column(head, "LC / DDOT-U" if head != "minutes" else "") for head in heads)]
    columns += [Column(head, "DDOT-U − LC") for head in metrics.values()]
    body = []
    for dataset in BLOCKS:
        for two in moments(dataset):
            cells = [f"{two[0]['own_seconds'] / 60:.1f}", " / ".join(f"{row['own_steps']:,}" for row in two)]
            cells += [" / ".join(f"{row[metric]:.1f}" for row in two) for metric in (*metrics, "gaps_extra")]
            body.append((SETS[dataset], *cells, *(with_interval(between(*two, metric)) for metric in metrics)))
    notes = (
        f"16 steps. The first {longer[0]['items']} items of each set.",
        "In brackets: 95% intervals of the paired bootstrap over items.",
    )
    return markdown(Table("longer", "LC against DDOT-U while they train (free task)", columns, body, notes))


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
# LC and DDOT-U side by side, four snapshots each.
longer = [row for row in read_rows(RESULTS / "longer-rows.jsonl") if row["method"] in ("lc", "ddot-u")]
compared = read_rows(RESULTS / "longer-differences.jsonl")
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
insert(
    results,
    {name: render(every, name) for name in marked(results, NAMES)} | {"answers": answers(), "longer": for_longer()},
)
(RESULTS / "tables.tex").write_text(render(every, latex=True))
swept = {"unfilled", "autoregressive", *(row["method"] for row in plain if row["steps"] == 32)}
charts = []
for metric, against in product(("bleu4", "success"), ("steps", "seconds")):
    charts += quality([row for row in alike if row["method"] in swept], against, metric, "1bw-block", "free")
draw_charts(charts, ROOT / "docs" / "quality.png")
draw_charts(success_by_given(row for row in own if row.get("kept"))[0], ROOT / "docs" / "success.png")
drawn = product(("bleu4", "success", "gaps_found"), BLOCKS)
charts = [chart for metric, dataset in drawn for chart in quality(longer, "minutes", metric, dataset, "free")]
draw_charts(charts, ROOT / "docs" / "minutes.png")
draw_charts(costs(read_rows(RESULTS / "bench-cost.jsonl")), ROOT / "docs" / "cost.png")
