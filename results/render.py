"""Put what was measured into the documents: `python results/render.py`, from the root of the checkout."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from intervals import interval_of_means

from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.filling import Written
from ddot.evaluation.rows import BASE, HEADS
from ddot.evaluation.tables import NAMES, insert, marked, read_rows, render
from ddot.evaluation.tables.comparisons import BLOCKS
from ddot.evaluation.tables.lines import SETS, Measure, number_format, signed
from ddot.evaluation.tables.page import EMPTY, Column, Table, bold, markdown
from ddot.evaluation.tables.paper import paper_lines
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
            f"- **{served['per_second']:.0f} requests per second** for {served['clients']} clients on one H200, with "
            f"{served['processes']} processes.",
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

    def rouge(scores: Mapping[str, Any]) -> str:
        return "/".join(f"{float(scores[metric]):.1f}" for metric in ("rouge1", "rouge2", "rougeL"))

    def over(first: str, second: str, kind: str = "block") -> str:
        return with_interval(between_trainings(first, second, kind, "bleu4"))

    moved, counted = ([snapshots(name, d, longer)[MEETING] for d in BLOCKS] for name in ("ddot-t", "flexible"))
    of_stories = sorted((row for row in embedded if row["dataset"] == "rocstories"), key=lambda row: row["items"])
    stories, told = ({row["method"]: row for row in of_stories}[name] for name in ("infill", "infill-told"))
    small, medium = (rouge(paper_lines("outside")[f"DiffuGPT {size}"]["rocstories"]) for size in ("small", "medium"))
    before = {row["dataset"]: row for row in rows if row["method"] == BASE and row["split"] == "test"}
    people = {row["method"]: row["nats"] for row in every if row.get("dataset") == "people" and "nats" in row}
    read = [row for row in blind if row["reading"].startswith("product")]
    natural, bad = (sum(row[kind] for row in read) / sum(row["texts"] for row in read) for kind in ("natural", "bad"))

    trained = [pairs for *_, pairs in starts()]
    t, u = ([[between(*pair, "bleu4")["low"] > 0 for pair in pairs[name]] for pairs in trained] for name in MOVING)
    kept = [fmean(row["success"] for row in trainings("lc", at_best("lc"), kind)) for kind in KINDS]
    sparse = [after_300("ddot-u", dataset) for dataset in ("1bw-random", "yelp-random")]
    every_pair = [pair for pairs in trained for name in MOVING for pair in pairs[name]]
    ours, its = (sorted(row["success"] for row in side) for side in zip(*every_pair, strict=True))
    texts = (
        f"""**Which method should I use?** To fill blanks, `ddot infill`: it needs no length and keeps your text by
        construction. To study models that must also find *where* words are missing
        ([trained alike](#five-methods-from-one-start)): DDOT-T to find the most gaps ({both(moved, "gaps_found")}% on
        news and reviews; insertion with learned counts {both(counted, "gaps_found")}%), learned counts to write least
        often where nothing is missing ({both(counted, "gaps_extra")}% of the texts; DDOT-T
        {both(moved, "gaps_extra")}%). In BLEU-4 they are about level ({both(moved, "bleu4", 1)};
        {both(counted, "bleu4", 1)}).""",
        f"""**How good is the product?** On {stories["items"]:,} stories with one sentence removed from each,
        ROUGE-1/2/L is {rouge(stories)} without being told the length and {rouge(told)} told; told as well, its base
        language model, which sees only the text before the gap, has {rouge(before["rocstories"])}, and
        [published models](#stories-beside-published-models): DiffuGPT small {small}, medium {medium}. Everyday texts
        (a set it was tuned on): it assigns the missing words {people["nats"]:.2f} nats per token (lower is better), its
        base {people["base"]:.2f}; language models as blind judges call {natural:.0%} of its answers natural and
        {bad:.0%} bad.""",
        f"""**Does the paper's claim hold here?** Against LC so far for our start, DDOT-T, and not for the paper's
        DDOT-U, after minutes of one GPU instead of days. *A block missing*: in BLEU-4 DDOT-T, our start, beats LC in
        {sum(map(all, t))} of {len(trained)} trainings, the paper's DDOT-U in {sum(map(all, u))}; both keep the given
        words in {ours[0]:.0f} to {ours[-1]:.0f}% of the texts, LC in {its[0]:.0f} to {its[-1]:.0f}%. *Keywords
        alone*: LC leads in BLEU-4, as in the paper, but our DDOT-U hardly writes ({both(sparse, "bleu4", 1)} BLEU-4),
        which tests nothing. *PoP* was trained too briefly to judge. On [an artificial
        language](#a-language-whose-answers-are-known) that small networks can learn, with learning rates tried for
        LC, PoP and DDOT (on news and reviews they were not): DDOT-U − LC {over("ddot-u", "lc")} BLEU-4 on blocks and
        {over("ddot-u", "lc", "keywords")} with keywords, DDOT-U − PoP {over("ddot-u", "pop")}; DDOT keeps all given
        words, LC {kept[0]:.0f} and {kept[1]:.0f}%. Insertion with learned counts, which the paper did not have, is
        ahead of DDOT-U and about level with DDOT-T on news and reviews.""",
    )
    return "\n".join([*(f"- {' '.join(text.split())}" for text in texts), "", *claims()])


Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


def after_300(method: str, dataset: str) -> dict[str, Any]:
    """The row of the model that was trained for 300 s for this method."""
    asked = {"method": method, "dataset": dataset, "items": 1000, "steps": 16}
    return next(row for row in own if asked.items() <= row.items()) | {"own_seconds": 300, "gpu_share": 1}


def starts() -> list[tuple[str, str, dict[str, Pairs]]]:
    """(start, section that tells of it, {DDOT-T and DDOT-U: rows, each with LC's after as many minutes})."""

    def ends(rows: list[dict[str, Any]], n: int = -1) -> dict[str, Pairs]:
        return {m: [(snapshots(m, d, rows)[n], snapshots("lc", d, rows)[n]) for d in BLOCKS] for m in MOVING}

    first = {m: [(after_300(m, dataset), after_300("lc", dataset)) for dataset in BLOCKS] for m in MOVING}
    return [
        ("trunk of 1,071 s", "methods-at-an-equal-budget", first),
        ("trunk of 150 s", "five-methods-from-one-start", ends(longer, MEETING)),
        ("language model", "three-methods-from-the-language-model", ends(unstarted)),
        ("language model, U and T as one network", "one-network-for-both-starts", ends(again)),
    ]


def claims() -> Iterator[str]:
    """The differences that decide the paper's claim: a line for each training, and for drawn pads where measured."""

    def line(name: str, methods: dict[str, Pairs], how: str = "") -> str:
        pairs = [pair for m in MOVING for pair in methods.get(m, [None, None])]
        found = [EMPTY if pair is None else with_interval(between(*pair, "bleu4", how)) for pair in pairs]
        row, _ = next(filter(None, pairs))
        return f"| {name} | {row['items']:,} | {minutes(row):.1f} | {' | '.join(found)} |"

    yield "| BLEU-4 on blocks [95%] | items | GPU minutes | DDOT-T − LC: news | reviews | DDOT-U − LC: news | reviews |"
    yield "|---|---|---|---|---|---|---|"
    for name, section, methods in starts():
        yield line(f"[{name}](#{section})", methods)
        if any(row["first"] == "ddot-t-drawn" and row["model"] == methods["ddot-t"][0][0]["model"] for row in compared):
            yield line("the same, [pads drawn](#variants)", methods, "-drawn")
        if methods["ddot-t"][0][0] in longer:
            last = [tuple(snapshots(m, d, longer)[-1] for m in ("ddot-u", "lc")) for d in BLOCKS]
            yield line("the same, longer", {"ddot-u": last})
    yield ""
    yield "With the likeliest pads unless stated: which slots hold a word is chosen, not drawn."


def readings() -> str:
    """Blind readings of everyday texts: a column for each reading that compared methods."""

    def told(row: dict[str, Any]) -> str:
        return " / ".join(str(row[kind]) for kind in ("natural", "odd", "bad"))

    by_line: dict[str, dict[str, str]] = defaultdict(dict)
    names = {"written": "the writers' own words"}
    of_methods = [row for row in blind if row["reading"].startswith("methods")]
    for row in sorted(of_methods, key=lambda row: -row["natural"]):
        name = names.get(row["method"]) or f"{CONTENDERS[row['method']].label}, {row['model']}"
        by_line[name][row["reading"]] = told(row)
    columns = list(dict.fromkeys(row["reading"] for row in of_methods))
    body = [(name, *(cells.get(column, EMPTY) for column in columns)) for name, cells in by_line.items()]
    alone = ", ".join(told(row) for row in blind if row["reading"].startswith("product"))
    notes = (
        f"Natural / odd / bad, of the first {of_methods[0]['texts']} texts of people.dev, fills mixed.",
        "Three readers each time, never the same; they are language models.",
        "The base language model was told the number of tokens, so some of its fills are cut short.",
        f"Four more readings of all 120 texts, filled by the product alone: {alone}.",
    )
    heads = (Column(""), *(Column(f"{column.removeprefix('methods, ')} reading") for column in columns))
    return markdown(Table("readings", "Everyday texts read blind", heads, body, notes))


def minutes(row: dict[str, Any]) -> float:
    """Of a whole GPU, in the last training."""
    return row["own_seconds"] * row["gpu_share"] / 60


def snapshots(method: str, dataset: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a method on a set while it trained."""
    found = [row for row in rows if (row["method"], row["dataset"]) == (method, dataset)]
    return sorted(found, key=minutes)


def between(first: dict[str, Any], second: dict[str, Any], metric: str, how: str = "") -> dict[str, Any]:
    """The line of `ddot compare` for two rows, or for the same models with the variant `how`."""
    asked = {"first": first["method"] + how, "second": second["method"] + how}
    asked |= {"model": first["model"], "other": second["model"]}
    asked |= {"dataset": first["dataset"], "metric": metric}
    return next(row for row in compared if asked.items() <= row.items())


def with_interval(row: dict[str, Any]) -> str:
    difference, low, high = (signed(row[name], "+.1f") for name in ("difference", "low", "high"))
    return f"{difference} [{low}, {high}]"


def for_longer() -> str:
    """The methods that were trained for longer, at the last snapshot that all of them have."""
    rows = [snapshots(name, dataset, longer)[MEETING] for dataset in BLOCKS for name in FIVE]
    return snapshot_table("longer", "Five methods from one start", rows)


def from_base() -> str:
    """LC, DDOT-U and DDOT-T without a common start, at their last snapshots."""
    rows = [snapshots(name, dataset, unstarted)[-1] for dataset in BLOCKS for name in FIVE[:3]]
    return snapshot_table("from-base", "Three methods from the language model", rows)


def second() -> str:
    """LC, and one network that serves as DDOT-U and DDOT-T, with another seed."""
    rows = [snapshots(name, dataset, again)[-1] for dataset in BLOCKS for name in FIVE[:3]]
    return snapshot_table("second", "LC, and one network for both starts of DDOT", rows)


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


def differences(names: Sequence[str], snapshot: int, rows: list[dict[str, Any]]) -> str:
    """Differences on the same items between methods, each at the same snapshot."""
    models = {name: snapshots(name, BLOCKS[0], rows)[snapshot]["model"] for name in names}
    sides = ((first, second) for second, first in product(names, names) if first != second)
    lines = []
    for (first, second), dataset in product(sides, BLOCKS):
        asked = {"first": first, "second": second, "model": models[first], "other": models[second], "dataset": dataset}
        there = {side: f"runs/{CONTENDERS[name].recipe}" for side, name in (("model", first), ("other", second))}
        lines += [row | there for row in compared if asked.items() <= row.items()]
    return render(lines, "differences")


class Training(NamedTuple):
    """How models on the language were trained."""

    training_steps: int
    width: int = 96
    blocks: int = 3
    rate: float = 1.0  # as a multiple of the usual one

    def remark(self) -> str:
        parts = [
            f"{self.training_steps:,} steps",
            f"{self.width} wide",
            f"{self.blocks} blocks",
            f"rate × {self.rate:g}",
        ]
        return "".join(f", {part}" for part, mine, its in zip(parts, self, USUAL, strict=True) if mine != its)


UNTRAINED, USUAL = Training(0), Training(3_500)


def trainings(method: str, training: Training, kind: str) -> list[dict[str, Any]]:
    """The rows of a method on the language, one per training; a single one if it is not trained."""
    asked = {"method": method, "dataset": kind} | ({} if training == UNTRAINED else training._asdict())
    return [row for row in toys if asked.items() <= row.items()]


def language(name: str, title: str, lines: Sequence[tuple[str, Training]]) -> str:
    """Rows of results/language.py, a line for each method and training, blocks and keywords side by side."""
    metrics = ("bleu4", "success", "gaps_found", "length_error", "right")
    columns = [Column(""), Column("minutes"), *(Column(HEADS.get(m, m), k) for k in KINDS.values() for m in metrics)]
    names = {"exact": "draw from the exact posterior", "unfilled": "prompt, unfilled"}
    found = {line: [trainings(*line, kind) for kind in KINDS] for line in lines}
    usual = Counter(len(rows[0]) for (_, training), rows in found.items() if training != UNTRAINED).most_common(1)[0][0]
    body, widest = [], dict.fromkeys(("bleu4", "success", "gaps_found", "right"), 0.0)
    for (method, training), rows in found.items():
        label, taken = names.get(method) or CONTENDERS[method].label, EMPTY
        if training != UNTRAINED:
            label += training.remark() + f" ({plural(len(rows[0]), 'training')})" * (len(rows[0]) != usual)
            taken = f"{fmean(row['training_seconds'] for row in rows[0]) / 60:.0f}"
        cells = [Measure.of([row[m] for row in some]).text(m) for some in rows for m in metrics]
        body.append((label, taken, *cells))
        for row, metric in product(chain(*rows), widest):
            low, high = row["intervals"][metric]
            widest[metric] = max(widest[metric], high - row[metric], row[metric] - low)
    ends = ", ".join(f"{HEADS.get(metric, metric)} ± {half:.1f}" for metric, half in widest.items())
    notes = (
        f"{toys[0]['items']} items each, 16 steps; {plural(usual, 'training')} of {USUAL.training_steps:,} steps each "
        "unless stated.",
        "±: standard deviation over trainings. Minutes: of one training, on one busy core.",
        "right: % that are sentences with the given words in order.",
        f"95% intervals of one training (bootstrap over items) are at most {ends}.",
    )
    return markdown(Table(name, title, columns, body, notes))


def plural(number: int, noun: str) -> str:
    words = ("no", "one", "two", "three", "four", "five")
    return f"{words[number] if number < len(words) else number} {noun}{'s' * (number != 1)}"


def ways(method: str) -> set[Training]:
    """How models of a method were trained on the language."""
    return {Training(*map(row.get, Training._fields)) for row in toys if row.get("method") == method}


def at_best(method: str) -> Training:
    """The usual training of a method, with the learning rate that has most BLEU-4 on blocks and keywords together."""

    def bleu(way: Training) -> float:
        return sum(fmean(row["bleu4"] for row in trainings(method, way, kind)) for kind in KINDS)

    return max((way for way in ways(method) if way._replace(rate=USUAL.rate) == USUAL), key=bleu)


def between_trainings(first: str, second: str, kind: str, metric: str) -> dict[str, float]:
    """The difference of two methods on the language: of means over trainings, if both have several."""
    ours, its = at_best(first), at_best(second)
    sides = [[row[metric] for row in trainings(*side, kind)] for side in ((first, ours), (second, its))]
    asked = {"first": first, "second": second, **ours._asdict(), "second_rate": its.rate, "dataset": kind}
    asked["metric"] = metric
    pairs = [row for row in toys if asked.items() <= row.items()]  # trained with the same seed
    if min(map(len, sides)) == 1:
        return pairs[0]
    over_items = fmean(((row["high"] - row["low"]) / (2 * 1.96)) ** 2 for row in pairs)
    low, high = interval_of_means(*sides, over_items)
    return {"difference": fmean(sides[0]) - fmean(sides[1]), "low": low, "high": high}


def language_differences() -> str:
    """Differences between methods trained alike on the language."""
    metrics = ("bleu4", "success", "gaps_found", "right")
    order = [method for method, _ in LANGUAGE]
    pairs = {(row["second"], row["first"]) for row in toys if "first" in row}
    columns = [Column(""), *(Column(HEADS.get(m, m), group) for group in KINDS.values() for m in metrics)]
    body = []
    for second, first in sorted(pairs, key=lambda pair: [*map(order.index, pair)]):
        cells = []
        for kind, metric in product(KINDS, metrics):
            found = between_trainings(first, second, kind, metric)
            value, space, brackets = with_interval(found).partition(" ")
            clear = round(found["low"], 1) > 0 or round(found["high"], 1) < 0
            cells.append((bold(value) if clear else value) + space + brackets)
        several = min(len(trainings(method, at_best(method), "block")) for method in (first, second))
        name = f"{CONTENDERS[first].label} − {CONTENDERS[second].label}"
        body.append((name + f" ({plural(several, 'training')})" * (several == 1), *cells))
    notes = (
        "Each method at the better of its learning rates (BLEU-4 of both sets). Differences of means over trainings. "
        "In brackets: 95% intervals "
        "that count items (paired bootstrap) and trainings (Welch), rather too wide, since chance in sampling counts "
        "in both; of one training, items alone.",
        "Bold: the interval excludes 0.",
    )
    return markdown(Table("language-differences", "Differences on the same items", columns, body, notes))


FILES = ("rows", "differences", "nats", "bench-coupling", "bench-infill", "bench-train", "bench-cost", "bench-methods")
every = read_rows(*(RESULTS / f"{name}.jsonl" for name in FILES))
# Trained for longer from one start; the third snapshot is the last of the latter three.
MOVING = ("ddot-t", "ddot-u")
FIVE, MEETING = ("lc", "ddot-u", "ddot-t", "flexible", "expand"), 2
longer = [row for row in read_rows(RESULTS / "longer-rows.jsonl") if row["method"] in FIVE]
compared = read_rows(*(RESULTS / f"{name}-differences.jsonl" for name in ("longer", "from-base", "second")))
compared += [row for row in every if "first" in row]
# On the language of results/language.py.
toys = read_rows(RESULTS / "language.jsonl")
KINDS = {"block": "blocks", "keywords": "keywords"}
LANGUAGE = [("exact", UNTRAINED), ("unfilled", UNTRAINED)]
LANGUAGE += [
    (name, at_best(name)) for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t", "flexible", "autoregressive")
]
VARIED = [f"{name}-drawn" for name in ("lc", "pop", "no-ot", "ddot-r", "ddot-u", "ddot-t")] + [
    "ddot-r-leap",
    "ddot-u-leap",
]
VARIANTS = [(name, at_best(name)) for name in VARIED]
# Trained in other ways than in the main table.
MORE = [
    (name, way)
    for name in ("lc", "pop", "ddot-u", "ddot-t", "flexible")
    for way in sorted(ways(name) - {at_best(name)})
]
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
SHORT = ("unfilled", "lc", "ddot-u", "ddot-t", "insertion", "autoregressive")
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
        "longer-differences": differences(FIVE, MEETING, longer),
    }
    | {"from-base": from_base(), "from-base-differences": differences(FIVE[:3], -1, unstarted)}
    | {"second": second(), "second-differences": differences(FIVE[:3], -1, again)}
    | {
        "language": language("language", "A language whose answers are known (free task)", LANGUAGE),
        "language-variants": language("language-variants", "Variants on the language", VARIANTS),
        "language-more": language("language-more", "Trained in other ways", MORE),
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
