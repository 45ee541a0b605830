"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Written
from ddot.evaluation.rows import HEADS
from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render
from ddot.evaluation.tables.comparisons import BLOCKS
from ddot.evaluation.tables.lines import SETS, number_format, signed
from ddot.evaluation.tables.page import Column, Table, bold, markdown
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
        name: read_rows(RESULTS / f"bench-{name}.jsonl") for name in ("infill", "serve-cuda", "train", "coupling")
    }
    alone = next(row for row in speeds["infill"] if row["way"] == "ddot infill, as shipped")
    served = next(row for row in speeds["serve-cuda"] if row["clients"] == 64 and row.get("processes") == 2)
    trained = next(row for row in speeds["train"] if row["network"] == "smollm2" and row["couplings"])
    coupled = next(row for row in speeds["coupling"] if row["contender"] == "ddot" and row["L"] == 64)
    faster = {row["L"]: row["ddot_is_faster"] for row in speeds["coupling"] if row["contender"] == "dp"}
    return "\n".join(
        [
            f"- **{alone['ms'] / 1000:.2f} s** for a 20-word sentence on one CPU core (int8), "
            f"{alone['times_plain']:.1f} times as fast as plain float32 with 64 slots.",
            f"- **{served['per_second']:.0f} requests per second** for {served['clients']} clients on one H200.",
            f"- **{round(trained['slots_per_second'], -3):,.0f} slots per second** in training SmolLM2-135M on one "
            f"H200, {trained['of_matrix_peak']:.0%} of the measured bf16 matrix peak, couplings included.",
            f"- **{coupled['million_slots_per_second']:.0f} million slots per second** coupled on one core at L = 64, "
            f"{faster[64]:.1f} times as many as the paper's dynamic program ({faster[1024]:.0f} times at L = 1024).",
        ]
    )


def answers() -> str:
    """The three questions of a reader, answered with the rows."""

    def shares(method: str, metric: str) -> str:
        return " and ".join(f"{snapshots(method, dataset)[MEETING][metric]:.0f}" for dataset in BLOCKS) + "%"

    def best(dataset: str) -> str:
        ends = [snapshots(name, dataset)[MEETING] for name in FIVE]
        top = max(ends, key=lambda row: row["bleu4"])
        return f"{CONTENDERS[top['method']].label} ({top['bleu4']:.1f})"

    def toy(method: str, metric: str) -> float:
        asked = {"method": method, "dataset": "block", "training_steps": 2 * STEPS, "seed": 0}
        return float(next(row for row in toys if asked.items() <= row.items())[metric])

    of_stories = sorted((row for row in embedded if row["dataset"] == "rocstories"), key=lambda row: row["items"])
    stories, told = ({row["method"]: row for row in of_stories}[name] for name in ("infill", "infill-told"))
    people = {row["method"]: row["nats"] for row in every if row.get("dataset") == "people" and "nats" in row}
    met = f"{minutes(snapshots('lc', BLOCKS[0])[MEETING]):.1f}"
    return "\n".join(
        [
            "- **Which method should I use?** `ddot infill`: it needs no length and keeps your text by construction. "
            "Of the methods that must also find where words are missing, trained alike for "
            f"[{met} whole-GPU minutes](#five-methods-from-one-start), {best('1bw-block')} has most BLEU-4 on news and "
            f"{best('yelp-block')} on reviews. DDOT-T finds more of the gaps ({shares('ddot-t', 'gaps_found')}; "
            f"learned counts {shares('flexible', 'gaps_found')}) and writes into more wrong ones "
            f"({shares('ddot-t', 'gaps_extra')} of the texts; {shares('flexible', 'gaps_extra')}).",
            f"- **How good is the product?** ROUGE-1 {stories['rouge1']:.1f} on {stories['items']:,} ROCStories "
            f"without being told the length ({told['rouge1']:.1f} told), where the published DiffuGPT small has 13.7 "
            f"and medium 18.7, told. It needs {people['nats']:.2f} nats per token of people's own words, the length "
            f"not told; its base, which sees only the text before the blank, {people['base']:.2f}.",
            "- **Does the paper's claim hold here?** Against PoP, after minutes, yes. Against LC, on blocks of missing "
            "words, DDOT-T (our start) leads in all four trainings, from three starts; the paper's DDOT-U keeps more "
            "of the given words than LC, but leads in BLEU-4 from one start only. With keywords alone LC leads both in "
            "BLEU-4. Insertion with learned counts (after FlexMDM), which the paper did not have, is ahead of DDOT-T "
            "on news and behind it on reviews. All this after minutes of training, not days. Trained for longer on "
            "[an artificial language](#a-language-whose-answers-are-known), DDOT-U keeps the given words in "
            f"{toy('ddot-u', 'success'):.0f}% of the texts with a block missing, LC in {toy('lc', 'success'):.0f}%; "
            f"BLEU-4 {toy('ddot-u', 'bleu4'):.1f} and {toy('lc', 'bleu4'):.1f}. There "
            "PoP is level with DDOT-U in BLEU-4. On blocks of news and reviews:",
            "",
            *claims(),
        ]
    )


def claims() -> Iterator[str]:
    """A table of the differences that decide the paper's claim."""

    def labels(*names: str) -> str:
        return " − ".join(CONTENDERS[name].label for name in names)

    def five_minutes(first: str, second: str) -> list[dict[str, Any]]:
        model = f"runs/{CONTENDERS[first].recipe}"
        sides = {"first": first, "model": model, "second": second, "metric": "bleu4"}
        found = [row for row in every if "first" in row and sides.items() <= row.items()]
        return [row for dataset in BLOCKS for row in found if row["dataset"] == dataset]

    yield "| BLEU-4, difference [95% interval] | start | minutes since | news | reviews |"
    yield "|---|---|---|---|---|"
    for first, second in (("ddot-u", "pop"), ("ddot-u", "lc"), ("ddot-t", "lc")):
        cells = " | ".join(map(with_interval, five_minutes(first, second)))
        yield f"| {labels(first, second)} | trunk of 1,071 s | 5.0 | {cells} |"
    for first, second, start, rows, snapshot in (
        ("ddot-u", "lc", "trunk of 150 s", None, -1),
        ("ddot-u", "lc", "language model", unstarted, -1),
        ("ddot-u", "lc", "language model, another seed", again, -1),
        ("ddot-t", "lc", "trunk of 150 s", None, MEETING),
        ("ddot-t", "lc", "language model", unstarted, -1),
        ("ddot-t", "lc", "language model, another seed", again, -1),
        ("ddot-t", "flexible", "trunk of 150 s", None, MEETING),
    ):
        pairs = [[snapshots(name, dataset, rows)[snapshot] for name in (first, second)] for dataset in BLOCKS]
        cells = " | ".join(with_interval(between(*pair, "bleu4")) for pair in pairs)
        yield f"| {labels(first, second)} | {start} | {minutes(pairs[0][0]):.1f} | {cells} |"


def minutes(row: dict[str, Any]) -> float:
    """Of a whole GPU, in the last training."""
    return row["own_seconds"] * row["gpu_share"] / 60


def snapshots(method: str, dataset: str, rows: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The rows of a method on a set while it trained; without `rows`, for longer from one start."""
    found = [row for row in rows or longer if (row["method"], row["dataset"]) == (method, dataset)]
    return sorted(found, key=minutes)


def between(first: dict[str, Any], second: dict[str, Any], metric: str) -> dict[str, Any]:
    """The line of `ddot compare` for two rows."""
    asked = {"first": first["method"], "second": second["method"], "model": first["model"], "other": second["model"]}
    asked |= {"dataset": first["dataset"], "metric": metric}
    return next(row for row in compared if asked.items() <= row.items())


def with_interval(row: dict[str, Any]) -> str:
    difference, low, high = (signed(row[name], "+.1f") for name in ("difference", "low", "high"))
    return f"{difference} [{low}, {high}]"


def for_longer() -> str:
    """The methods that were trained for longer, at the last snapshot that all of them have."""
    rows = [snapshots(name, dataset)[MEETING] for dataset in BLOCKS for name in FIVE]
    return snapshot_table("longer", "Five methods from one start", rows)


def from_base() -> str:
    """LC, DDOT-U and DDOT-T without a common start, at their last snapshots."""
    rows = [snapshots(name, dataset, unstarted)[-1] for dataset in BLOCKS for name in FIVE[:3]]
    return snapshot_table("from-base", "Three methods from the language model", rows)


def second() -> str:
    """The same three, trained with another seed, LC beside one network for both starts of DDOT."""
    rows = [snapshots(name, dataset, again)[-1] for dataset in BLOCKS for name in FIVE[:3]]
    return snapshot_table("second", "The same three, trained once more", rows)


def snapshot_table(name: str, title: str, rows: list[dict[str, Any]]) -> str:
    metrics = ("bleu4", "success", "gaps_found", "gaps_extra", "length_error")
    columns = [Column(head) for head in ("", "minutes", "steps", *(HEADS[metric] for metric in metrics))]
    body = []
    for row in rows:
        cells = [f"{minutes(row):.1f}", f"{row['own_steps']:,}"]
        for metric in metrics:
            value, *ends = (signed(each, number_format(metric)) for each in (row[metric], *row["intervals"][metric]))
            cells.append(f"{value} [{', '.join(ends)}]")
        body.append((f"{SETS[row['dataset']]}: {CONTENDERS[row['method']].label}", *cells))
    notes = (
        f"16 steps. The first {rows[0]['items']:,} items of each set.",
        "Minutes: of a whole GPU; they and steps without those of the start.",
        "In brackets: 95% intervals of the bootstrap over items.",
    )
    return markdown(Table(name, f"{title} (free task)", columns, body, notes))


def differences(names: Sequence[str], snapshot: int, rows: list[dict[str, Any]] | None = None) -> str:
    """Differences on the same items between methods, each at the same snapshot."""
    models = {name: snapshots(name, BLOCKS[0], rows)[snapshot]["model"] for name in names}
    sides = ((first, second) for second, first in product(names, names) if first != second)
    lines = []
    for (first, second), dataset in product(sides, BLOCKS):
        asked = {"first": first, "second": second, "model": models[first], "other": models[second], "dataset": dataset}
        there = {side: f"runs/{CONTENDERS[name].recipe}" for side, name in (("model", first), ("other", second))}
        lines += [row | there for row in compared if asked.items() <= row.items()]
    return render(lines, "differences")


def language(name: str, title: str, lines: Sequence[tuple[str, int]]) -> str:
    """Rows of results/language.py, (method, training steps) a line, blocks and keywords side by side."""
    metrics = ("bleu4", "success", "gaps_found", "length_error", "right")
    kinds = {"block": "blocks", "keywords": "keywords"}
    columns = [Column(""), Column("minutes"), *(Column(HEADS.get(m, m), k) for k in kinds.values() for m in metrics)]
    names = {"exact": "draw from the exact posterior", "unfilled": "prompt, unfilled"}
    body, widest = [], dict.fromkeys(("bleu4", "success", "gaps_found", "right"), 0.0)
    for method, steps in lines:
        asked = {"method": method, "seed": 0, "training_steps": steps} if steps else {"method": method}
        found = [next(row for row in toys if (asked | {"dataset": kind}).items() <= row.items()) for kind in kinds]
        cells = [signed(row[metric], number_format(metric)) for row in found for metric in metrics]
        minutes = f"{found[0]['training_seconds'] / 60:.0f}" if steps else "–"
        body.append((f"{names.get(method) or CONTENDERS[method].label}{longer_than(steps)}", minutes, *cells))
        for row, metric in product(found, widest):
            low, high = row["intervals"][metric]
            widest[metric] = max(widest[metric], high - row[metric], row[metric] - low)
    ends = ", ".join(f"{HEADS.get(metric, metric)} ± {half:.1f}" for metric, half in widest.items())
    notes = (
        f"{found[0]['items']} items each, 16 steps; one training of {STEPS:,} steps each unless stated.",
        "Minutes: on one busy core. right: % of texts that are sentences with the given words in order.",
        f"95% intervals (bootstrap over items) are at most {ends}.",
    )
    return markdown(Table(name, title, columns, body, notes))


def longer_than(steps: int) -> str:
    return "" if steps in (0, STEPS) else f", {steps:,} steps"


def language_differences() -> str:
    """Differences between methods trained alike on the language."""
    metrics = ("bleu4", "success", "gaps_found", "right")
    kinds = {"block": "blocks", "keywords": "keywords"}
    by_pair: dict[tuple[int, str, str], dict[tuple[str, str], str]] = defaultdict(dict)
    for row in toys:
        if "first" in row and row["seed"] == 0:
            value, brackets = with_interval(row).split(maxsplit=1)
            value = bold(value) if row["low"] > 0 or row["high"] < 0 else value
            by_pair[row["training_steps"], row["second"], row["first"]][row["dataset"], row["metric"]] = (
                f"{value} {brackets}"
            )
    order = [method for method, _ in LANGUAGE]
    pairs = sorted(by_pair, key=lambda pair: (pair[0], *map(order.index, pair[1:])))
    columns = [Column(""), *(Column(HEADS.get(m, m), group) for group in kinds.values() for m in metrics)]
    body = [
        (
            f"{CONTENDERS[first].label} − {CONTENDERS[second].label}{longer_than(steps)}",
            *(by_pair[steps, second, first][key] for key in product(kinds, metrics)),
        )
        for steps, second, first in pairs
    ]
    notes = ("In brackets: 95% intervals of the paired bootstrap over items. Bold: the interval excludes 0.",)
    return markdown(Table("language-differences", "Differences on the same items", columns, body, notes))


FILES = ("rows", "differences", "nats", "bench-coupling", "bench-infill", "bench-train", "bench-cost", "bench-methods")
every = read_rows(*(RESULTS / f"{name}.jsonl" for name in FILES))
# Trained for longer from one start; the third snapshot is the last of the latter three.
FIVE, MEETING = ("lc", "ddot-u", "ddot-t", "flexible", "expand"), 2
longer = [row for row in read_rows(RESULTS / "longer-rows.jsonl") if row["method"] in FIVE]
compared = read_rows(*(RESULTS / f"{name}-differences.jsonl" for name in ("longer", "from-base", "second")))
# On the language of results/language.py: (method, training steps), 0 for what is not trained.
toys, STEPS = read_rows(RESULTS / "language.jsonl"), 3_500
LANGUAGE = [("exact", 0), ("unfilled", 0)]
LANGUAGE += [
    (name, STEPS) for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t", "flexible", "autoregressive")
]
VARIANTS = [(f"{name}-drawn", STEPS) for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t")]
VARIANTS += [("ddot-r-leap", STEPS), ("ddot-u-leap", STEPS), ("lc", 2 * STEPS), ("ddot-u", 2 * STEPS)]
unstarted = read_rows(RESULTS / "from-base-rows.jsonl")  # trained from the language model itself
again = read_rows(RESULTS / "second-rows.jsonl")  # with another seed
rows = [row for row in every if "bleu4" in row or "rouge1" in row]
embedded = [row for row in every if row.get("model") == "embedded"]
# Models trained for one contender, not the trials of λ; and the unfilled prompt.
alike = [row for row in rows if row["method"] == "unfilled" or row["model"] == f"runs/{row.get('recipe')}"]
plain = [row for row in alike if not CONTENDERS[row["method"]].variant]
# What writes the whole text, each with its own model.
own = [row for row in plain if isinstance(CONTENDERS[row["method"]].filling, Written)]
own = [row for row in own if row["recipe"] == CONTENDERS[row["method"]].recipe and row["task"] == "free"]
# The README's table: these, and the embedded model.
SHORT = ("unfilled", "lc", "ddot-u", "ddot-t", "autoregressive")
chosen = [row for row in alike if row["method"] in SHORT and row["model"] != "runs/smollm2_ddot"]
chosen += [row for row in embedded if row["method"] == "infill"]
insert(ROOT / "README.md", {"quality": render(chosen, "overview"), "speed": four_speeds()})
insert(ROOT / "docs" / "model.md", {"main": render(embedded, "main"), "forty": forty()})
results = ROOT / "docs" / "results.md"
insert(
    results,
    {name: render(every, name) for name in marked(results, NAMES)}
    | {"answers": answers(), "longer": for_longer(), "longer-differences": differences(FIVE, MEETING)}
    | {"from-base": from_base(), "from-base-differences": differences(FIVE[:3], -1, unstarted)}
    | {"second": second(), "second-differences": differences(FIVE[:3], -1, again)}
    | {
        "language": language("language", "A language whose answers are known (free task)", LANGUAGE),
        "language-variants": language("language-variants", "Variants on the language", VARIANTS),
        "language-differences": language_differences(),
    },
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
