"""Tables: what a small set of rows must say, read back by a Markdown parser and by a plain reading of LaTeX."""

import json
import re
import stat
from decimal import Decimal
from pathlib import Path
from statistics import stdev

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from ddot.cli import app, run
from ddot.cli.app import show
from ddot.evaluation.contenders import CONTENDERS
from ddot.evaluation.metrics.scoring import METRICS
from ddot.evaluation.rescore import contrast, rescore
from ddot.evaluation.rows import HEADS, Row, measured, parse
from ddot.evaluation.tables import MOST, NAMES, insert, read_rows, render
from ddot.evaluation.tables.lines import BOLD, gather
from ddot.evaluation.tables.paper import paper_lines, paper_tables
from ddot.evaluation.tables.settings import settings_table
from ddot.network.places import EMBEDDED, training_of
from ddot.training import recipes

RESULTS = Path(__file__).parents[2] / "results"
SPEEDS = [
    {"contender": "ddot", "L": 64, "million_slots_per_second": 101.234, "ddot_is_faster": 1.0},
    {"contender": "dp", "L": 64, "million_slots_per_second": 40.0, "ddot_is_faster": 2.531},
    {"way": "as shipped", "ms": 61.26, "sentences_a_second": 16.32, "times_plain": 9.5},
    {"network": "toy", "L": 64, "couplings": False, "slots_per_second": 283_951.7, "of_matrix_peak": None},
]


def row(method="planned", dataset="1bw-block", **about):
    """A row as `ddot evaluate` writes it."""
    usual = {
        "model": "embedded", "method": method, "dataset": dataset, "split": "test", "task": "free", "steps": 16,
        "seed": 0, "items": 1000, "bleu2": 50.0, "bleu4": 40.0, "success": 100.0, "length_error": -1.0,
        "length_error_abs": 2.0, "seconds": 0.05, "batch": 1, "device": "cpu", "commit": "abc",
    }  # fmt: skip
    return usual | about


def in_markdown(text):
    """[{cells of a line}] for each table, as a Markdown parser sees them; bold runs between ⟨⟩, slanted ones plain."""
    tables, marks = [], {"strong_open": "⟨", "strong_close": "⟩"}
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and tables and token.level > 2:
            tables[-1][-1].append("".join(marks.get(part.type, part.content) for part in token.children))
    return tables


def in_latex(text):
    """[(columns, rows of (cell, columns it spans))] for each table."""
    found = []
    for spec, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.S):
        lines = [line for line in body.split("\n") if line and not re.fullmatch(r"\\\w+rule", line)]
        assert all(line.endswith(r" \\") for line in lines)
        rows = []
        for line in lines:
            cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
            spans = [re.match(r"\s*\\multicolumn\{(\d+)\}", one) for one in cells]
            rows.append([(one.strip(), int(s[1]) if s else 1) for one, s in zip(cells, spans, strict=True)])
        found.append((len(spec), rows))
    return found


def assert_balanced(text):
    depth = 0
    for brace in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        assert depth >= 0
    assert depth == 0


def table(rows, name, every=False):
    """{name of a line: its cells} of one table."""
    (lines,) = in_markdown(render(rows, name, every=every))
    found = {first: cells for first, *cells in lines[1:]}
    assert len(found) == len(lines) - 1
    return found


def ours(rows, name, every=False):
    """Our lines of it."""
    said = table(rows, name, every).items()
    return {key: cells for key, cells in said if not key.startswith(("paper", "published"))}


# The paper's numbers.


def numbers_of(name):
    for line in paper_tables()[name]["rows"]:
        for key, values in line.items():
            if isinstance(values, list):
                for value in values:
                    yield from value if isinstance(value, list) else [value]
            else:
                assert key in ("section", "model")


@pytest.mark.parametrize(
    ("name", "count", "total"),
    # Counted and added up from the paper's source, with the digits it prints; ≤100 and <100 are no numbers.
    [
        ("random", 151, "3156.39"),
        ("block", 48, "2006.04"),
        ("code", 32, "916.53"),
        ("ot", 20, "167.84"),
        ("sizes", 40, "369.59"),
        ("diversity", 20, "1109.18"),
        ("lambda", 35, "1260.55"),
        ("steps", 54, "1984.51"),
        ("outside", 27, "248.6"),
    ],
)
def test_the_papers_numbers_are_all_there(name, count, total):
    numbers = [value for value in numbers_of(name) if not isinstance(value, str)]
    assert len(numbers) == count
    assert sum(numbers, Decimal(0)) == Decimal(total)


@pytest.mark.parametrize("name", ["random", "block", "code", "ot", "sizes", "diversity", "outside", "lambda", "steps"])
def test_every_line_of_the_paper_has_a_value_for_each_set_and_metric(name):
    numbers = paper_tables()[name]
    assert set(numbers["metrics"]) <= {*METRICS, "seconds"}
    for line in numbers["rows"]:
        assert [len(values) for values in line["values"]] == [len(numbers["metrics"])] * len(numbers["columns"])


def test_some_of_the_papers_cells():
    assert [str(v) for v in paper_lines("block")["DDOT-U"]["1bw-block"].values()] == [
        "63.7", "58.4", "8.40", "8.79", "42.1", "100",
    ]  # fmt: skip
    assert str(paper_lines("random")["PoP"]["yelp-random"]["nist4"]) == "3.40"
    assert paper_lines("random")["SeqBF"]["yelp-random"]["success"] == "<100"
    assert paper_lines("code")["LC"]["code-random"]["success"] == 0
    assert str(paper_lines("diversity")["DDOT-U"]["1bw-random"]["d2"]) == "34.03"
    assert "CBART" not in paper_lines("code")
    assert [str(v) for v in paper_lines("lambda")[""][1000].values()] == ["63.53", "58.46", "7.74", "8.51", "42.50"]
    assert str(paper_lines("steps")["PoP"][4]["seconds"]) == "0.90"
    assert table([], "lambda")["paper"][4] == "63.25 / 58.24 / –"
    assert table([], "random")["paper, LC"][4:] == ["20.55 / 9.66", "2.76 / 2.87", "17.58", "99.75"]
    assert table([], "outside")["published, DiffuLLaMA 7B"][:3] == ["23.3", "5.5", "21.2"]


# Our rows.


def test_names_agree_with_the_evaluator():
    assert set(HEADS) == {*METRICS, "nats"}


def test_a_small_table_in_full():
    rows = [
        row("fixed-oracle", bleu2=61.04, bleu4=55.0, length_error=0.04, length_error_abs=0.04),
        row("planned", bleu2=52.46, bleu4=45.0, length_error=-2.25, length_error_abs=4.44, seconds=0.123456),
        row("fixed-guessed", bleu2=48.0, bleu4=46.0, length_error=3.0, length_error_abs=4.5, success=99.9),
        row("unfilled", bleu2=40.7, bleu4=38.5, length_error=-11.4, length_error_abs=11.4, seconds=0.0),
    ]
    assert render(rows, "overview") == (
        "**BLEU-2 / BLEU-4 on rebuilt test sets (free task).**\n\n"
        "|  | One-Billion-Word, block B2/B4 | Yelp, block B2/B4 | One-Billion-Word, random B2/B4 "
        "| Yelp, random B2/B4 |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| paper, DDOT-U (another test sample) | 63.7 / 58.4 | 64.9 / 59.5 | 16.3 / 5.2 | 21.2 / 7.9 |\n"
        "| prompt, unfilled | 40.7 / 38.5 | – | – | – |\n"
        "| planned lengths, still slots | **52.5** / 45.0 | – | – | – |\n"
        "| fixed length, guessed | 48.0 / **46.0** | – | – | – |\n"
        "| fixed length, oracle | 61.0 / 55.0 | – | – | – |\n\n"
        f"16 steps. n = 1,000 items per set unless stated. {BOLD}\n"
    )
    found = table(rows, "main")
    assert found["One-Billion-Word, block, free: planned lengths, still slots"] == [
        "⟨52.5⟩ / 45.0", "⟨100.0⟩", "−2.2 / ⟨4.4⟩", "0.123",
    ]  # fmt: skip
    assert "Seconds on cpu (batches of 1)." in render(rows, "main")


def test_a_cell_without_a_row_is_empty_and_so_is_a_table():
    found = ours([row("ddot-u", "yelp-random", nist2=3.456)], "random")
    assert found["DDOT-U"] == ["–", "–", "–", "–", "50.0 / 40.0", "3.46 / –", "–", "100.0"]
    for name in set(NAMES) - {"models", "hyperparameters", "speed", "differences"}:
        assert list(ours([], name)) == ["ours: no rows"]
        assert set(ours([], name)["ours: no rows"]) == {"–"}


@given(values=st.lists(st.floats(0, 100), min_size=2, max_size=5))
@settings(max_examples=8)
def test_seeds_become_mean_and_deviation(values):
    rows = [row(bleu2=value, seed=seed) for seed, value in enumerate(values)]
    (line,) = gather(measured(rows), ["1bw-block"])
    found = line.measure("1bw-block", "bleu2")
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.deviation == pytest.approx(stdev(values), abs=1e-9)
    cells = ours(rows, "block")["planned lengths, still slots"]
    assert cells[0].startswith(f"{sum(values) / len(values):.1f} ± {stdev(values):.1f} / 40.0 ± 0.0")
    assert "standard deviation" in render(rows, "block")
    assert "standard deviation" not in render(rows[:1], "block")


def first_numbers(rows, name="block", every=False):
    return {key: cells[0].split(" / ")[0] for key, cells in ours(rows, name, every).items()}


def test_fewer_items_and_other_splits_are_named_and_not_compared():
    rows = [row("planned", bleu2=50.0), row("ddot-r", bleu2=45.0), row("ddot-u", items=100, bleu2=70.0)]
    assert first_numbers([*rows, row("pop", split="dev", bleu2=90.0)]) == {
        "PoP, dev split": "90.0",
        "DDOT-R": "45.0",
        "DDOT-U (n = 100)": "70.0",
        "planned lengths, still slots": "⟨50.0⟩",
    }


def bold_models(scores):
    """The models in bold of (model, seconds of training, BLEU-2)."""
    rows = [row("lc", model=name, bleu2=score, training_seconds=time) for name, time, score in scores]
    return {key.rpartition(", ")[2] for key, cells in ours(rows, "block", every=True).items() if "⟨" in cells[0]}


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([("a", 1372, 50), ("b", 1373, 51), ("long", 2169, 60)], {"b"}),  # nothing of the budget of `long`
        ([("a", 1372, 50), ("b", 1300, 51), ("long", 2169, 60), ("longer", 2200, 59)], {"b", "long"}),
        ([("short", 301, 49), ("long", 2169, 60)], set()),
        ([("a", None, 50), ("b", None, 51), ("c", 300, 60), ("d", 310, 59)], {"b", "c"}),
        ([("a", 100, 50), ("b", 100, 50)], set()),  # nothing to choose
    ],
)
def test_bold_compares_equal_budgets(scores, wanted):
    assert bold_models(scores) == wanted


def test_bold_compares_equal_steps_and_tasks_and_ties_as_shown():
    rows = [row("ddot-u", bleu2=20.04), row("planned", bleu2=20.0), row("ddot-r", bleu2=10.0)]
    rows += [row("insertion", bleu2=90.0, steps=8)]
    assert first_numbers(rows) == {
        "insertion, 8 steps": "90.0",
        "DDOT-R, 16 steps": "10.0",
        "DDOT-U, 16 steps": "⟨20.0⟩",
        "planned lengths, still slots, 16 steps": "⟨20.0⟩",
    }
    rows = [row("ddot-u", bleu2=20.0), row("ddot-r", bleu2=10.0), row("ddot-t", task="located", bleu2=90.0)]
    assert first_numbers(rows, every=True) == {
        "DDOT-R, free": "10.0", "DDOT-U, free": "⟨20.0⟩", "DDOT-T, located": "90.0",
    }  # fmt: skip


def test_what_has_no_merit_by_itself_is_never_bold():
    rows = [row(name, gaps_found=found, gaps_extra=3.0) for name, found in (("lc", 40.0), ("autoregressive", 90.0))]
    assert ours(rows, "methods")["autoregressive"][2] == "90.0 / 3.0"
    few = [row(name, "1bw-random", d2=d2, perplexity=d2) for name, d2 in (("lc", 10.0), ("pop", 90.0))]
    assert ours(few, "diversity")["PoP"][:3] == ["90.0", "–", "90"]


def test_the_main_tables_leave_out_variants_sweeps_other_models_and_the_other_task():
    rows = [row("ddot-u", model="runs/smollm2_ddot_u"), row("ddot-u", model="runs/lambda-5"), row("ddot-u")]
    rows += [row("ddot-u", model="runs/smollm2_ddot_u", steps=steps) for steps in (2, 4)]
    rows += [row("ddot-u-leap", model="runs/smollm2_ddot_u"), row("lc-drawn"), row("planned"), row("unfilled")]
    rows += [row("planned", task="located")]
    assert list(ours(rows, "block")) == ["prompt, unfilled", "DDOT-U", "planned lengths, still slots, embedded"]
    assert list(ours(rows, "located")) == ["prompt, unfilled", "planned lengths, still slots"]
    assert list(ours(rows, "leaps")) == ["DDOT-U", "DDOT-U, τ-leaps"]
    assert list(ours(rows, "drawn")) == ["DDOT-U", "LC, pads drawn, embedded"]
    # Without a model of its own, all are shown, and named.
    others = [row("ddot-u", model="a"), row("ddot-u", model="/home/somebody/runs/b")]
    assert list(ours(others, "block")) == ["DDOT-U, b", "DDOT-U, a"]
    assert "somebody" not in render(others)


def test_the_unfilled_prompt_stands_once_where_as_many_items_are_filled():
    rows = [row("unfilled", task=task, steps=K, seed=K) for task in ("free", "located") for K in (2, 4)]
    assert list(ours(rows, "block")) == ["prompt, unfilled"]
    found = ours([*rows, row("unfilled", items=500), row("unfilled", items=7), row(), row("lc", items=500)], "block")
    assert [key for key in found if "unfilled" in key] == ["prompt, unfilled", "prompt, unfilled (n = 500)"]


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_ten_lines_and_all_of_them_only_where_they_are_wanted(name):
    for short, long in zip(
        in_markdown(render(many_rows(), name)), in_markdown(render(many_rows(), name, every=True)), strict=True
    ):
        assert len(short) <= 1 + MOST
        assert len(long) >= len(short)
        names = [line[0] for line in long]
        if name in ("block", "methods"):
            assert {"LC, free", "DDOT-U, free", "DDOT-T, free"} <= {*names}
            assert {"LC", "DDOT-U", "DDOT-T", "ddot infill"} <= {line[0] for line in short}


def test_sweeps_have_a_column_for_each_value():
    rows = [row("planned", steps=K, bleu2=float(K), seconds=K / 1000) for K in (2, 3, 64)] + [row("lc")]
    (lines,) = in_markdown(render(rows, "steps"))
    assert lines[0][1:] == [f"steps {K}" for K in (2, 3, 4, 8, 16, 32, 64)]
    found = table(rows, "steps")
    assert found["paper, LC"][2] == "44.3 / 33.9 / 1.43"
    (line,) = ours(rows, "steps").values()  # LC was not varied
    assert [one.split(" / ")[0] for one in line] == ["2.0", "3.0", *"––––", "64.0"]
    assert line[-1].endswith(" / 0.064")
    made = {"recipe": "r", "training_seconds": 45.0}
    rows = [row("ddot-u", model=f"m{x}", position_factor=x, bleu2=50 + x, **made) for x in (3, 0.05)]
    rows += [row("ddot-u", model="long", position_factor=7, recipe="r", training_seconds=140.0)]
    rows += [row("lc", model="lc", position_factor=0.05, **made)]
    ((name, line),) = ours(rows, "lambda").items()  # models that differ in nothing else
    assert name == "One-Billion-Word, block: DDOT-U"
    assert [one for one in line if one != "–"] == ["50.0 / 40.0 / 100.0", "⟨53.0⟩ / 40.0 / 100.0"]


def test_models_and_budgets_have_a_table():
    rows = [row("lc", model="left", training_steps=6928, training_seconds=1372.4, recipe="r", position_factor=0.05)]
    found = table([*rows, row("pop", model="untold"), row("unfilled", model="none")], "models")
    assert found == {"left": ["r", "6,928", "1,372", "0.05"], "untold": ["–"] * 4}


def test_fills_stand_beside_published_figures_and_with_their_nats():
    scores = dict(zip((n for n in METRICS if n.startswith(("rouge", "fill_"))), (20, 4, 18, -1, 2, 60, 1), strict=True))
    wanted = ["20.0", "4.0", "18.0", "−1.0 / 2.0", "60.0", "1.0"]
    about = {"split": "dev", "task": "located"}
    rows = [row(name, "people", items=120, **about, **scores) for name in ("infill", "infill-told")]
    rows += [row("infill", "rocstories", task="located", **scores)]
    bare = {
        key: value for key, value in row("nats", "people", items=70, steps=1, **about).items() if key not in METRICS
    }
    rows += [bare | {"nats": 2.5, "tokens": 400}, bare | {"method": "base", "nats": 3.25, "tokens": 400}]
    found = table(rows, "people")
    assert found["ddot infill, dev split"] == ["2.50", *wanted]
    assert found["base language model, text before the blank, dev split (n = 70)"] == ["3.25", *["–"] * 6]
    assert len(found) == 3
    rows += [row("base", "people", items=120, **about, **scores)]
    found = table(rows, "people")
    assert found["base language model, text before the blank, dev split"] == ["3.25", *wanted]
    assert len(found) == 3
    assert table(rows, "outside")["ddot infill"] == wanted
    assert table(rows, "outside", every=True)["published, Plaid 1B"][:3] == ["12.1", "1.1", "11.2"]


def test_notes_say_how_sure_scores_are():
    sure = [row("lc", intervals={"bleu4": [39.0, 41.5]}), row("pop", intervals={"bleu2": [1, 2], "bleu4": None})]
    assert "at most B2 ± 0.5, B4 ± 1.2." in render(sure, "block")
    assert "95%" not in render([row("ddot-u")], "block")
    measured = [row("lc", "1bw-random", d2=1.0, perplexity=90.4, language_model="base")]
    assert "PPL under base." in render(measured, "diversity")
    assert "PPL under" not in render([row("lc", "1bw-random", d2=1.0)], "diversity")


def test_a_later_row_of_the_same_measurement_adds_to_it():
    rows = [row(bleu2=1.0), row(bleu2=2.0, nist2=7.0)]
    assert ours(rows, "block")["planned lengths, still slots"][:2] == ["2.0 / 40.0", "7.00 / –"]
    broken = [row(bleu2=float("nan"), bleu4=None, success=float("inf"), nist2=1.0)]
    assert ours(broken, "block")["planned lengths, still slots"][0] == "–"


def test_rows_come_back_from_their_lines():
    line = row(intervals={"bleu2": [1.0, 2.0]}, kept={"3": [1, 2]}, recipe="r", samples=10)
    again = parse(Row, line)
    assert again.json() == line
    assert again.metrics["bleu4"] == 40.0


def difference(second, dataset="1bw-block", metric="bleu4", low=0.5, high=1.5, **more):
    apart = {"difference": 1.0, "low": low, "high": high, "wins": 0.9}
    about = {"first": "ddot-u", "second": second, "model": "a", "other": "b", "dataset": dataset, "split": "test"}
    return {**about, "task": "free", "steps": 16, "seed": 0, "items": 1000, "metric": metric, **apart, **more}


def test_differences_stand_beside_rows_of_the_other_commands():
    rows = [difference("lc"), difference("pop", low=-0.5), difference("lc", "yelp-block", "success", -2.0, -0.1)]
    found = table([row(), *rows], "differences")
    assert found["DDOT-U − LC"] == ["⟨+1.0⟩ [+0.5, +1.5]", "⟨+1.0⟩ [−2.0, −0.1]"]
    assert found["DDOT-U − PoP"] == ["+1.0 [−0.5, +1.5]", "–"]
    assert table([row(), *rows], "block") == table([row()], "block")
    with pytest.raises(ValueError, match="no rows of `ddot compare` among 1; give a file"):
        render([row()], "differences")
    with pytest.raises(ValueError, match="a row: 'low' is null; expected a number"):
        render([difference("lc") | {"low": None}])
    with pytest.raises(ValueError, match="a row has no 'dataset'"):
        render([{key: value for key, value in difference("lc").items() if key != "dataset"}])


def test_differences_of_several_models_seeds_and_numbers_of_items_have_lines_of_their_own():
    more = ({}, {"other": "c"}, {"model": "/runs/lambda-5"}, {"seed": 1}, {"items": 9})
    assert list(table([difference("lc", **each) for each in more], "differences")) == [
        f"DDOT-U − LC, {models}, n = {items}, seed {seed}"
        for models, items, seed in (
            ("a, b", 1000, 0), ("a, c", 1000, 0), ("lambda-5, b", 1000, 0), ("a, b", 1000, 1), ("a, b", 9, 0)
        )
    ]  # fmt: skip


def test_differences_are_shown_as_their_metric_is():
    rows = [
        difference("lc", metric="nist4", difference=0.031, low=0.01, high=0.04),
        difference("lc", metric="perplexity"),
    ]
    page = render(rows, "differences")
    assert "**+0.03** \\[+0.01, +0.04\\]" in page
    assert "PPL ↓" in page
    assert "↓: lower is better." in page


def test_hyperparameters_are_the_recipes_own():
    (lines,) = in_markdown(render([], "hyperparameters", every=True))
    found = {name: cells for name, *cells in lines}
    assert found["λ"][:3] == ["300 (with scaling)", "10", "10"]
    assert found["learning rate"][:3] == ["3e-4", "3e-5", "3e-5"]
    paper, ours = recipes.recipe("sedd_medium_1bw").training, recipes.recipe("smollm2").training
    assert lines[0][3:6] == ["recipe sedd_medium_1bw", "recipe smollm2", "recipe smollm2_ddot"]
    assert found["β₂"][:4] == ["0.999", "–", f"{paper.betas[1]}", f"{ours.betas[1]}"]
    assert found["λ"][3].startswith(f"{ours.position_factor:g} ")
    assert found["batch size"][2] == f"{paper.slots // 64} × 64 slots"


def test_hyperparameters_have_what_the_embedded_model_was_trained_with():
    (lines,) = in_markdown(render([], "hyperparameters", every=True))
    found = {name: cells[-1] for name, *cells in lines}
    assert found[""] == "embedded, as trained"
    meta = json.loads((EMBEDDED / "meta.json").read_text())
    training = meta["training"]
    rates = [float(rate) for rate in re.findall(r"\d+(?:\.\d+)?e-\d+", found["learning rate"])]
    assert rates == [training[name] for name in ("rate", "matrix_rate", "added_rate")]
    assert float(found["share of training with falling rate"]) == training["decay"]
    assert float(found["λ"].partition(" ")[0]) == training["position_factor"]
    # All runs are told, and they are those that rows of this model count.
    steps = sum(int(count.replace(",", "")) for count in re.findall(r"([\d,]+) steps", found["length of training"]))
    assert steps == training_of(None)["training_steps"]
    assert "–" not in found.values()


def test_hyperparameters_that_a_model_does_not_tell_are_left_empty(tmp_path):
    meta = tmp_path / "meta.json"
    for said, wanted in (({}, {"–"}), ({"training": {"clip": 0.5, "matrix_rate": None}}, {"–", "0.5", "AdamW"})):
        meta.write_text(json.dumps(said))
        made = settings_table(meta)
        assert {line[-1] for line in made.lines} == wanted
    meta.unlink()
    assert [column.name for column in settings_table(meta).columns][-1] == "smollm2_ddot"


def test_speeds_are_shown_as_given_and_rounded():
    coupling, training, infilling = in_markdown(render(SPEEDS, "speed"))
    assert coupling == [["contender", "L 64"], ["ddot", "101 / 1"], ["dp", "40 / 2.53"]]
    assert training[1] == ["toy", "64", "no", "284,000", "–"]
    assert infilling[1] == ["as shipped", "61.3", "16.3", "9.5"]
    # 10 billion tokens, 16 minutes 11 seconds, 64 cores.
    assert f"{10e9 / (16 * 60 + 11) / 64 / 1e6:.2f} million tokens a second a core" in render(SPEEDS, "speed")


@pytest.mark.parametrize("file", sorted(RESULTS.glob("bench-*.jsonl")), ids=lambda file: file.name)
def test_every_bench_has_a_table(file):
    rows = read_rows(file)
    (table,) = in_markdown(render(rows, "speed", every=True))
    assert str(next(iter(rows[0].values()))) in [line[0] for line in table[1:]]


# The page.


def many_rows():
    sets = ("1bw-block", "yelp-block", "1bw-random", "yelp-random", "code-block", "tiny")
    rows = [row(m, d, task=t) for m in CONTENDERS for d in sets for t in ("free", "located")]
    rows += [row(dataset="yelp-block", steps=K, seed=K, d2=30.0, meteor_nltk=1.0) for K in (5, 7)]
    return (
        rows
        + [row("other", model=f"x_{x}", position_factor=x) for x in (1, 2)]
        + SPEEDS
        + [difference("lc", metric="perplexity")]
    )


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("rows", [[], many_rows()], ids=["no rows", "many rows"])
def test_every_line_has_every_column(rows, every):
    tables, pages = in_markdown(render(rows, every=every)), render(rows, latex=True, every=every)
    assert len(tables) == len(in_latex(pages)) == len(NAMES) - 2 + (4 if rows else 0)
    for lines, (width, cells) in zip(tables, in_latex(pages), strict=True):
        assert {len(line) for line in lines} == {width}
        assert {sum(span for _, span in line) for line in cells} == {width}
    assert_balanced(pages)
    for environment in ("table", r"table\*", "tabular"):
        begun = len(re.findall(rf"\\begin\{{{environment}\}}", pages))
        assert begun == len(re.findall(rf"\\end\{{{environment}\}}", pages)) > 0
    labels = re.findall(r"\\label\{(.*?)\}", pages)
    assert len(set(labels)) == len(labels) == len(tables)
    # What is asked for by name is what stands among all.
    shown = [name for name in NAMES if rows or name not in ("speed", "differences")]
    assert render(rows, every=every) == "\n".join(render(rows, name, every=every) for name in shown)
    assert pages.isascii()


def test_methods_stand_in_one_order_whatever_the_rows_have():
    rows = many_rows()
    assert render(rows[: len(rows) - len(SPEEDS)], "block") == render(rows[: len(rows) - len(SPEEDS)][::-1], "block")


PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=12)


@given(name=PRINTABLE.map(str.strip).filter(bool))
@example(name="&amp; a|b *c* _d_ `e` <br> [f](g) \\| ~~h~~")
@settings(max_examples=100)
def test_names_come_through_markdown_as_they_are(name):
    (lines,) = in_markdown(render([{"way": name, "ms": 1.0}], "speed"))
    assert lines[1] == [name, "1"]


@given(name=st.text(st.sampled_from("\\{}&%$#_^~<>|[]ab"), max_size=12))
@settings(max_examples=100)
def test_names_come_through_latex_as_they_are(name):
    page = render([{"way": name, "ms": 1.0}], "speed", latex=True)
    assert_balanced(page)
    ((width, lines),) = in_latex(page)
    assert width == len(lines[1]) == 2
    spelt = {"textbackslash{}": "\\", "textasciitilde{}": "~", "textasciicircum{}": "^"}
    read = re.sub(
        r"\\(text\w+\{\}|[{}&%$#_])|\$([<>|])\$|\{([\[\]])\}", lambda m: spelt.get(m[1], m[m.lastindex]), lines[1][0][0]
    )
    assert read == name


# Mistakes.


@pytest.mark.parametrize(
    ("rows", "name", "sentence"),
    [
        ([], "tables", "table 'tables'; available: overview, main"),
        ([row()], "speed", "no rows of `ddot bench` among 1"),
        ([{"method": "planned", "dataset": "1bw-block"}], None, "a row has no 'split'"),
        ([row(), {"loss": 3.0}], "main", "a row begins with 'loss'; expected rows of `ddot evaluate`"),
        ([{}], "main", "a row begins with ''"),
        ([row(), row(steps="16")], "steps", "a row: 'steps' is \"16\"; expected a whole number"),
        ([row(method=["lc"])], "main", "a row: 'method' is [\"lc\"]; expected a string"),
        ([row(model=None)], "main", "a row: 'model' is null; expected a string"),
        ([row(intervals="wide")], "block", "a row: 'intervals' is \"wide\"; expected an object"),
        ([row(training_seconds=[])], "block", "a row: 'training_seconds' is []; expected a number"),
        ([row(id="1", text="the boat")], "main", "a row is a text; give the file of rows"),
    ],
)
def test_mistakes_are_sentences(rows, name, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        render(rows, name)


WRONG = [
    *((name, 3, "a string") for name in ("model", "method", "dataset", "split", "task", "recipe", "device")),
    *((name, value, "a whole number") for name in ("steps", "items", "seed") for value in (1.5, True)),
    *((name, value, "a whole number") for name in ("samples", "training_steps", "batch") for value in ("many", 1.5)),
    *((name, "41.3", "a number") for name in (*METRICS, "seconds", "training_seconds", "position_factor")),
    *(("bleu4", value, "a number") for value in ([41.3], {}, True)),
    ("intervals", [40, 42], "an object"),
]


@pytest.mark.parametrize(("field", "value", "wanted"), WRONG)
def test_fields_that_hold_something_else_are_refused(field, value, wanted):
    sentence = f"a row: '{field}' is {json.dumps(value)[:40]}; expected {wanted}"
    with pytest.raises(ValueError, match=re.escape(sentence) + "$"):
        measured([row(), row(**{field: value})])


def test_what_was_not_measured_is_no_mistake():
    nothing = dict.fromkeys((*METRICS, "seconds", "recipe", "samples", "training_steps", "intervals", "batch"))
    bare = row(**nothing, seed=-1)
    uncertain = row(bleu4=float("nan"), bleu2=41, intervals={"d2": None, "bleu2": [40, 42.5]}, samples=1000)
    one, other = measured([bare]), measured([uncertain])
    assert one[0].metrics == {}
    assert other[0].measure("bleu4") is None
    assert other[0].metrics["bleu2"] == 41


@pytest.mark.parametrize(
    "do", [lambda *a: list(rescore(*a, 9)), lambda file, *a: contrast([file], a[0], ["lc", "pop"], a[1])]
)
def test_texts_are_not_scored_for_rows_that_are_wrong(tmp_path, do):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row("lc", samples="many")))
    with pytest.raises(ValueError, match=r"line 1: 'samples' is \"many\"; expected a whole number"):
        do(file, tmp_path, ["bleu2"])


def test_rows_are_read_from_files(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text(json.dumps(row()) + "\n\n" + json.dumps(SPEEDS[0]) + "\n")
    second.write_text(json.dumps(row("lc")))
    assert read_rows(first, second) == [row(), SPEEDS[0], row("lc")]
    with pytest.raises(FileNotFoundError, match=r"no rows at .*c.jsonl; make them with ddot evaluate"):
        read_rows(first, tmp_path / "c.jsonl")
    second.write_text(json.dumps({"loss": 3.0}))
    with pytest.raises(ValueError, match=r"b.jsonl, line 1 begins with 'loss'"):
        render(read_rows(first, second), "main")
    second.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"b.jsonl is not UTF-8"):
        read_rows(second)
    first.write_text("{}\n{half")
    with pytest.raises(ValueError, match=r"a.jsonl, line 2: expected JSON, got '\{half'"):
        read_rows(first)
    first.write_text("[1]")
    with pytest.raises(ValueError, match=r"a.jsonl, line 1: expected .* got '\[1\]'"):
        read_rows(first)


# Into a document.


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_insert_replaces_what_stands_between_the_markers_and_nothing_else(tmp_path, newline):
    document = tmp_path / "README.md"
    before, after = "# Wörds\n\nabove <!-- other --> ", "\n\nbelow <!-- /other -->  "
    whole = f"{before}<!-- tables -->\nold | table\n<!-- /tables -->{after}".replace("\n", newline)
    document.write_bytes(whole.encode())
    document.chmod(0o640)
    insert(document, {"tables": "| a |\n| --- |\n"})
    wanted = f"{before}<!-- tables -->\n\n| a |\n| --- |\n\n<!-- /tables -->{after}".replace("\n", newline)
    assert document.read_bytes() == wanted.encode()
    assert stat.S_IMODE(document.stat().st_mode) == 0o640
    written = document.stat()
    insert(document, {"tables": "| a |\n| --- |\n"})
    assert document.read_bytes() == wanted.encode()
    assert document.stat().st_ino == written.st_ino  # the same already: not written again
    insert(document, {"tables": ""})
    insert(document, {"tables": "| a |\n| --- |"})
    assert document.read_bytes() == wanted.encode()
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


def test_insert_writes_through_a_link(tmp_path):
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("<!-- t --><!-- /t -->")
    link.symlink_to(real)
    insert(link, {"t": "new"})
    assert link.is_symlink()
    assert real.read_text() == "<!-- t -->\n\nnew\n\n<!-- /t -->"


@pytest.mark.parametrize(
    "document",
    ["nothing", "<!-- t -->", "<!-- /t -->", "<!-- /t --> <!-- t -->", "<!-- t --><!-- t --><!-- /t -->",
     "<!-- t --><!-- /t --><!-- /t -->", "<!--t--><!--/t-->"],
)  # fmt: skip
def test_insert_wants_its_markers(tmp_path, document):
    file = tmp_path / "a.md"
    file.write_text(document)
    with pytest.raises(ValueError, match=r"a.md needs <!-- t --> followed by <!-- /t -->, once each"):
        insert(file, {"t": "text"})
    assert file.read_text() == document


def test_insert_refuses_a_missing_file_and_its_own_markers(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*b.md"):
        insert(tmp_path / "b.md", {"t": "text"})
    file = tmp_path / "a.md"
    file.write_text("<!-- t --><!-- /t -->")
    with pytest.raises(ValueError, match="itself"):
        insert(file, {"t": "a <!-- /t --> b"})


def test_the_command_writes_all_tables_or_none(tmp_path, monkeypatch, capsys):
    rows, document = tmp_path / "rows.jsonl", tmp_path / "a.md"
    rows.write_text(json.dumps(row()) + "\n")
    blank = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in ("main", "speed"))
    document.write_text(blank)
    empty = tmp_path / "none.jsonl"
    empty.write_text("\n")
    for arguments, sentence in (
        ((rows, "--write", document), "no rows of `ddot bench`"),
        ((rows, "--table", "main", "--latex", "--write", document), "leave out --latex"),
        ((empty, "--table", "main"), "there are no rows in"),
    ):
        monkeypatch.setattr("sys.argv", ["ddot", "tables", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            run()
        said = capsys.readouterr()
        assert (end.value.code, said.out) == (2, "")
        assert sentence in said.err
        assert document.read_text() == blank
    done = CliRunner().invoke(app, ["tables", str(rows), "--table", "main", "--write", str(document)])
    assert done.exit_code == 0
    assert "50.0" in document.read_text().partition("<!-- /main -->")[0]


def test_what_is_shown_stands_under_its_name(capsys):
    show([{"method": "lc", "bleu4": 40.0, "seconds": 0.5}, {"method": "pop", "codebleu": 55.0, "seconds": 0.25}], False)
    shown = [line for line in capsys.readouterr().out.splitlines() if re.search("[a-z]", line)]
    head, *lines = [[part.strip() for part in re.split("[│┃]", line)][1:-1] for line in shown]
    assert head == ["method", "bleu4", "seconds", "codebleu"]
    assert lines == [["lc", "40", "0.5", ""], ["pop", "", "0.25", "55"]]
