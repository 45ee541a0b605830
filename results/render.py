"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Written
from ddot.evaluation.rows import HEADS
from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render
from ddot.evaluation.tables.comparisons import BLOCKS
from ddot.evaluation.tables.lines import SETS, Measure, number_format, signed
from ddot.evaluation.tables.page import EMPTY, Column, Table, bold, markdown
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

    def both(rows: Iterable[dict[str, Any]], metric: str, digits: int = 0) -> str:
        return " and ".join(f"{row[metric]:.{digits}f}" for row in rows)

    def over(first: str, second: str, kind: str = "block") -> str:
        return with_interval(between_trainings(first, second, STEPS, kind, "bleu4"))

    moved, counted = ([snapshots(name, dataset)[MEETING] for dataset in BLOCKS] for name in ("ddot-t", "flexible"))
    of_stories = sorted((row for row in embedded if row["dataset"] == "rocstories"), key=lambda row: row["items"])
    stories, told = ({row["method"]: row for row in of_stories}[name] for name in ("infill", "infill-told"))
    people = {row["method"]: row["nats"] for row in every if row.get("dataset") == "people" and "nats" in row}
    read = [row for row in blind if row["reading"].startswith("product")]
    natural, bad = (sum(row[kind] for row in read) / sum(row["texts"] for row in read) for kind in ("natural", "bad"))
    pop = [between(after_300("ddot-u", dataset), after_300("pop", dataset), "bleu4") for dataset in BLOCKS]
    sides = zip(*(pair for *_, methods in starts() for pair in methods["ddot-u"]), strict=True)
    kept = (sorted(row["success"] for row in rows) for rows in sides)
    moving, rewriting = (f"{rows[0]:.0f} to {rows[-1]:.0f}%" for rows in kept)
    texts = (
        f"""**Which method should I use?** `ddot infill`: it needs no length and keeps your text by construction. To
        find *where* words are missing as well, after [equal minutes](#five-methods-from-one-start): DDOT-T finds most
        gaps ({both(moved, "gaps_found")}% on news and reviews; insertion with learned counts
        {both(counted, "gaps_found")}%), learned counts write into fewest wrong ones ({both(counted, "gaps_extra")}% of
        the texts; DDOT-T {both(moved, "gaps_extra")}%), and in BLEU-4 each leads once ({both(moved, "bleu4", 1)};
        {both(counted, "bleu4", 1)}).""",
        f"""**How good is the product?** A sentence cut out of {stories["items"]:,} stories: ROUGE-1
        {stories["rouge1"]:.1f} without being told its length, {told["rouge1"]:.1f} told;
        [published models](#stories-beside-published-models), told: DiffuGPT small 13.7, medium 18.7. Words that people
        wrote cost it {people["nats"]:.2f} nats per token; its base, which sees only the text before the blank,
        {people["base"]:.2f}. Blind readers (language models) call {natural:.0%} of its answers natural and {bad:.0%}
        bad.""",
        f"""**Does the paper's claim hold here?** *DDOT beats PoP*: yes, by {both(pop, "difference", 1)} BLEU-4 after
        five minutes. *DDOT beats LC* where a block is missing: in words kept, yes (all of them in {moving} of the
        texts; LC {rewriting}); in BLEU-4, our start DDOT-T does in all four trainings below, the paper's DDOT-U in one.
        With keywords alone, no. This is after minutes of one GPU, not days. On
        [an artificial language](#a-language-whose-answers-are-known), trained until LC hardly gains, DDOT-U beats LC
        on blocks by {over("ddot-u", "lc")} BLEU-4, not with keywords ({over("ddot-u", "lc", "keywords")}), and not PoP
        ({over("ddot-u", "pop")}). Insertion with learned counts (after FlexMDM), which the paper did not have, does at
        least as well as DDOT-U throughout.""",
    )
    return "\n".join([*(f"- {' '.join(text.split())}" for text in texts), "", *claims()])


Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


def after_300(method: str, dataset: str) -> dict[str, Any]:
    """The row of the model that was trained for 300 s for this method."""
    asked = {"method": method, "dataset": dataset, "items": 1000, "steps": 16}
    return next(row for row in own if asked.items() <= row.items()) | {"own_seconds": 300, "gpu_share": 1}


def starts() -> list[tuple[str, str, dict[str, Pairs]]]:
    """(start, section that tells of it, {DDOT-U and DDOT-T: rows, each with LC's after as many minutes})."""

    def at(method: str, dataset: str, rows: list[dict[str, Any]] | None, snapshot: int) -> dict[str, Any]:
        return after_300(method, dataset) if rows is None else snapshots(method, dataset, rows)[snapshot]

    def pairs(rows: list[dict[str, Any]] | None, t: int = -1) -> dict[str, Pairs]:
        snapshot = {"ddot-u": -1, "ddot-t": t}
        return {m: [(at(m, d, rows, n), at("lc", d, rows, n)) for d in BLOCKS] for m, n in snapshot.items()}

    return [
        ("trunk of 1,071 s", "methods-at-an-equal-budget", pairs(None)),
        ("trunk of 150 s", "five-methods-from-one-start", pairs(longer, MEETING)),
        ("language model", "three-methods-from-the-language-model", pairs(unstarted)),
        ("language model, another seed", "trained-once-more", pairs(again)),
    ]


def claims() -> Iterator[str]:
    """The differences that decide the paper's claim, a line for each training."""
    yield "| BLEU-4 on blocks [95%] | GPU minutes | DDOT-U − LC: news | reviews | DDOT-T − LC: news | reviews |"
    yield "|---|---|---|---|---|---|"
    for name, section, methods in starts():
        u, t = (f"{minutes(pairs[0][0]):.1f}" for pairs in methods.values())
        cells = [with_interval(between(*pair, "bleu4")) for pairs in methods.values() for pair in pairs]
        yield f"| [{name}](#{section}) | {u if u == t else f'U {u}, T {t}'} | {' | '.join(cells)} |"


def readings() -> str:
    """Blind readings of everyday texts: a column for each reading that compared methods."""
    by_line: dict[str, dict[str, str]] = defaultdict(dict)
    names = {"written": "the writers' own words"}
    compared = [row for row in blind if row["reading"].startswith("methods")]
    for row in sorted(compared, key=lambda row: -row["natural"]):
        name = names.get(row["method"]) or f"{CONTENDERS[row['method']].label}, {row['model']}"
        by_line[name][row["reading"]] = " / ".join(str(row[kind]) for kind in ("natural", "odd", "bad"))
    columns = sorted({row["reading"] for row in compared})
    body = [(name, *(cells.get(column, EMPTY) for column in columns)) for name, cells in by_line.items()]
    notes = (
        f"Natural / odd / bad, of the first {compared[0]['texts']} texts of people.dev, fills mixed.",
        "Three readers each time, other ones the second time; they are language models.",
    )
    heads = (Column(""), *(Column(f"{column.removeprefix('methods, ')} reading") for column in columns))
    return markdown(Table("readings", "Everyday texts read blind", heads, body, notes))


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


def trained_on_language(method: str, steps: int, kind: str) -> list[dict[str, Any]]:
    """The rows of a method on the language, one per training; a single one if it is not trained."""
    asked = {"method": method, "dataset": kind} | ({"training_steps": steps} if steps else {})
    return [row for row in toys if asked.items() <= row.items()]


def measure(rows: Sequence[dict[str, Any]], metric: str) -> Measure:
    """The mean over trainings, and the deviation between them."""
    values = [row[metric] for row in rows]
    return Measure(fmean(values), stdev(values) if len(values) > 1 else None)


def language(name: str, title: str, lines: Sequence[tuple[str, int]]) -> str:
    """Rows of results/language.py, (method, training steps) a line, blocks and keywords side by side."""
    metrics = ("bleu4", "success", "gaps_found", "length_error", "right")
    columns = [Column(""), Column("minutes"), *(Column(HEADS.get(m, m), k) for k in KINDS.values() for m in metrics)]
    names = {"exact": "draw from the exact posterior", "unfilled": "prompt, unfilled"}
    body, widest, counts = [], dict.fromkeys(("bleu4", "success", "gaps_found", "right"), 0.0), Counter[int]()
    for method, steps in lines:
        found = [trained_on_language(method, steps, kind) for kind in KINDS]
        cells = [measure(rows, metric).text(metric) for rows in found for metric in metrics]
        minutes = f"{fmean(row['training_seconds'] for row in found[0]) / 60:.0f}" if steps else EMPTY
        counts[len(found[0])] += bool(steps)
        body.append([f"{names.get(method) or CONTENDERS[method].label}{longer_than(steps)}", minutes, *cells])
        for row, metric in product(chain(*found), widest):
            low, high = row["intervals"][metric]
            widest[metric] = max(widest[metric], high - row[metric], row[metric] - low)
    usual = counts.most_common(1)[0][0]
    for line, (method, steps) in zip(body, lines, strict=True):
        trainings = len(trained_on_language(method, steps, "block"))
        line[0] += f" ({plural(trainings, 'training')})" * (bool(steps) and trainings != usual)
    ends = ", ".join(f"{HEADS.get(metric, metric)} ± {half:.1f}" for metric, half in widest.items())
    notes = (
        f"{found[0][0]['items']} items each, 16 steps; {plural(usual, 'training')} of {STEPS:,} steps each unless "
        f"stated{': mean ± standard deviation' if usual > 1 else ''}.",
        "Minutes: of one training, on one busy core. right: % that are sentences with the given words in order.",
        f"95% intervals of one training (bootstrap over items) are at most {ends}.",
    )
    return markdown(Table(name, title, columns, body, notes))


def plural(number: int, noun: str) -> str:
    words = ("no", "one", "two", "three", "four", "five")
    return f"{words[number] if number < len(words) else number} {noun}{'s' * (number != 1)}"


def longer_than(steps: int) -> str:
    return "" if steps in (0, STEPS) else f", {steps:,} steps"


def between_trainings(first: str, second: str, steps: int, kind: str, metric: str) -> dict[str, float]:
    """The difference of two methods on the language, with a 95% interval that counts items and trainings.

    The variance is that of the paired bootstrap over items, plus that of each mean over trainings where there are
    several; the degrees of freedom are Welch and Satterthwaite's.
    """
    sides = [measure(trained_on_language(name, steps, kind), metric) for name in (first, second)]
    asked = {"first": first, "second": second, "training_steps": steps, "dataset": kind, "metric": metric}
    pairs = [row for row in toys if asked.items() <= row.items()]
    variances = [(fmean(((row["high"] - row["low"]) / 3.92) ** 2 for row in pairs), math.inf)]
    for name, side in zip((first, second), sides, strict=True):
        trainings = len(trained_on_language(name, steps, kind))
        if side.deviation:
            variances.append((side.deviation**2 / trainings, trainings - 1.0))
    total = sum(variance for variance, _ in variances)
    shares = sum(variance**2 / freedom for variance, freedom in variances)
    half = float(student.ppf(0.975, total**2 / shares if shares else math.inf)) * math.sqrt(total)
    difference = sides[0].mean - sides[1].mean
    return {"difference": difference, "low": difference - half, "high": difference + half}


def language_differences() -> str:
    """Differences between methods trained alike on the language."""
    metrics = ("bleu4", "success", "gaps_found", "right")
    order = [method for method, _ in LANGUAGE]
    pairs = {(row["training_steps"], row["second"], row["first"]) for row in toys if "first" in row}
    columns = [Column(""), *(Column(HEADS.get(m, m), group) for group in KINDS.values() for m in metrics)]
    body = []
    for steps, second, first in sorted(pairs, key=lambda pair: (pair[0], *map(order.index, pair[1:]))):
        cells = []
        for kind, metric in product(KINDS, metrics):
            found = between_trainings(first, second, steps, kind, metric)
            value, brackets = with_interval(found).split(maxsplit=1)
            cells.append(f"{bold(value) if found['low'] > 0 or found['high'] < 0 else value} {brackets}")
        body.append((f"{CONTENDERS[first].label} − {CONTENDERS[second].label}{longer_than(steps)}", *cells))
    notes = (
        "Of means over trainings; in brackets: 95% intervals over items (paired bootstrap) and trainings (Welch) "
        "together, over items alone where there is one training each.",
        "Bold: the interval excludes 0.",
    )
    return markdown(Table("language-differences", "Differences on the same items", columns, body, notes))


FILES = ("rows", "differences", "nats", "bench-coupling", "bench-infill", "bench-train", "bench-cost", "bench-methods")
every = read_rows(*(RESULTS / f"{name}.jsonl" for name in FILES))
# Trained for longer from one start; the third snapshot is the last of the latter three.
FIVE, MEETING = ("lc", "ddot-u", "ddot-t", "flexible", "expand"), 2
longer = [row for row in read_rows(RESULTS / "longer-rows.jsonl") if row["method"] in FIVE]
compared = read_rows(*(RESULTS / f"{name}-differences.jsonl" for name in ("longer", "from-base", "second")))
compared += [row for row in every if "first" in row]
# On the language of results/language.py: (method, training steps), 0 for what is not trained.
toys, STEPS = read_rows(RESULTS / "language.jsonl"), 3_500
KINDS = {"block": "blocks", "keywords": "keywords"}
LANGUAGE = [("exact", 0), ("unfilled", 0)]
LANGUAGE += [
    (name, STEPS) for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t", "flexible", "autoregressive")
]
VARIANTS = [(f"{name}-drawn", STEPS) for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t")]
VARIANTS += [("ddot-r-leap", STEPS), ("ddot-u-leap", STEPS), ("lc", 2 * STEPS), ("ddot-u", 2 * STEPS)]
unstarted = read_rows(RESULTS / "from-base-rows.jsonl")  # trained from the language model itself
again = read_rows(RESULTS / "second-rows.jsonl")  # with another seed
blind = read_rows(RESULTS / "readings.jsonl")
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
    | {
        "answers": answers(),
        "readings": readings(),
        "longer": for_longer(),
        "longer-differences": differences(FIVE, MEETING),
    }
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
