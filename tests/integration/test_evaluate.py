"""Rows of an evaluation: made once, gone on with, never mistaken for somebody else's file."""

import json
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ddot.core.rng import row_keys
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation import rescore as scoring
from ddot.evaluation import rows as records
from ddot.evaluation import run
from ddot.evaluation.contenders import CONTENDERS, learnt
from ddot.evaluation.filling import Loaded, Written
from ddot.evaluation.items import Program, Sentence, read_items
from ddot.evaluation.metrics.scoring import Fluency
from ddot.evaluation.rescore import contrast, read_texts
from ddot.evaluation.run import generate
from ddot.evaluation.store import Store, append, mend
from ddot.evaluation.tables import read_rows, render
from ddot.infill.model import Model
from ddot.infill.planned_lengths import default_slots
from ddot.methods.insertion import Insertion
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import save_model
from ddot.network.llama import LlamaConfig
from ddot.network.places import training_of

SENTENCES = ["the small boat leaves the harbour at dawn", "my sister sings while she waters the garden", "it rains"]
# Ways that keep given words whole and in order by construction, whatever the network says.
KEPT = {name for name, one in CONTENDERS.items() if not isinstance(one.filling, Written)}
FILLED = [name for name, one in CONTENDERS.items() if one.filling]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    tokenizer = learn_bpe(SENTENCES, 320)
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, tokenizer.vocabulary.rows), tokenizer.vocabulary)
    return Loaded(Model(Denoiser(config).eval(), tokenizer), "tiny", batch=2)


@pytest.fixture
def bench(tmp_path):
    words = [sentence.split() for sentence in SENTENCES]
    keep = [[0, 1, 2, 6, 7], list(range(8)), [1]]  # the second has nothing missing
    lines = [{"id": str(i), "words": w, "keep": k} for i, (w, k) in enumerate(zip(words, keep, strict=True))]
    (tmp_path / "own.test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def evaluate(*asked, **more):
    """The rows as lines of a file, and why metrics are missing."""
    for row in run.evaluate(*asked, **more):
        yield {**row.json(), **({"missing": dict(row.missing)} if row.missing else {})}


def rescore(*asked, **more):
    for row in scoring.rescore(*asked, **more):
        yield {**row.json(), **({"missing": dict(row.missing)} if row.missing else {})}


def measured(lines):
    return [row.json() for row in records.measured(lines)]


def rows_of(model, bench, output, methods=("unfilled", "planned"), **more):
    return list(evaluate(model, bench, output, ["own"], methods=methods, steps=(2,), **more))


def test_every_way_gives_a_row_for_every_item(model, bench, tmp_path):
    rows = rows_of(model, bench, tmp_path / "rows.jsonl", methods=tuple(CONTENDERS))
    alone = {name: CONTENDERS[name].tasks for name in FILLED if len(CONTENDERS[name].tasks) == 1}
    one_task = {"free": ["lc", "lc-leap", "lc-drawn"], "located": ["infill-told", "base"]}
    assert alone == {name: (task,) for task, names in one_task.items() for name in names}
    assert len(rows) == 2 * len(CONTENDERS) - len(alone)
    for row in rows:
        assert row["items"] == 3
        if row["method"] in KEPT:
            assert row["success"] == 100.0
    texts = (tmp_path / "rows.texts.jsonl").read_text().splitlines()
    assert len(texts) == 3 * len(rows)


def test_unfilled_located_and_full_items_by_hand(model, bench):
    items = read_items(bench / "own.test.jsonl")
    texts, _ = generate(model, items, CONTENDERS["fixed-oracle"].filling, located=True, steps=2)
    assert texts[1] == items[1].text  # nothing was missing, nothing is added
    assert texts[0].split()[:3] == ["the", "small", "boat"]


def test_longer_texts_are_filled_fewer_at_once(model, bench):
    seen = []

    class Counting(Insertion):
        def sample(self, model, prompts, L, steps, keys):
            seen.append(len(prompts))
            return super().sample(model, prompts, L, steps, keys)

    words = read_items(bench / "own.test.jsonl") * 4
    programs = [Program(str(i), ("x = 1\n", "z = 3\n"), ("y = 2\n",)) for i in range(5)]
    for items, expected in ((words, [8, 4]), (programs, [2, 2, 1])):  # 64 slots are usual, programs ask for 256
        seen.clear()
        generate(replace(model, batch=8), items, Written(Counting()), located=False, steps=2)
        assert seen == expected


@pytest.mark.parametrize("name", [name for name in FILLED if name != "infill-told"])
def test_a_text_does_not_depend_on_those_it_is_filled_with(model, name):
    """Alone, and among others of which one is too long for the usual number of slots, and so gets more."""
    words = ("the", "small", "boat", "left", "the", "old", "harbour", "at", "dawn")
    few = [Sentence.of(str(i), words[: 9 - i], (0, 2, 5)) for i in range(4)]
    long = Sentence.of("long", ("boat",) * 60, tuple(range(58)))
    items = [*few, long]
    prompts = [len(item.prompted(model.tokenizer, False).prompt) for item in items]
    assert default_slots(prompts[0], model.denoiser.config.slots) < default_slots(
        prompts[-1], model.denoiser.config.slots
    )
    alone, _ = generate(replace(model, batch=1), items, CONTENDERS[name].filling, located=False, steps=3)
    together, _ = generate(replace(model, batch=8), items, CONTENDERS[name].filling, located=False, steps=3)
    assert alone == together


def test_goes_on_where_it_stopped(model, bench, tmp_path):
    output = tmp_path / "rows.jsonl"
    whole = rows_of(model, bench, output)
    assert rows_of(model, bench, output) == []
    kept = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(kept[:2]) + kept[2][:20])  # killed while writing the third
    again = rows_of(model, bench, output)
    strip = lambda row: {k: v for k, v in row.items() if k != "seconds"}  # noqa: E731
    assert [strip(row) for row in again] == [strip(row) for row in whole[2:]]
    assert len(output.read_text().splitlines()) == 4


def test_rows_say_how_the_model_was_trained(model, bench, tmp_path):
    """From a model's folder to the table over λ."""
    config = model.denoiser.config
    for factor in (0.5, 20.0):
        folder = tmp_path / f"lambda-{factor}"
        folder.mkdir()
        meta = {"recipe": "own", "step": 7, "seconds": 1.5, "training": {"position_factor": factor}}
        save_model(model.denoiser.state_dict(), config, model.tokenizer, meta, folder)
        loaded = replace(model, name=str(folder), training=training_of(folder))
        (bench / "1bw-block.test.jsonl").write_text((bench / "own.test.jsonl").read_text())
        for row in evaluate(loaded, bench, tmp_path / "rows.jsonl", ["1bw-block"], methods=("unfilled", "ddot-r")):
            said = {"recipe": "own", "position_factor": factor, "training_steps": 7, "training_seconds": 1.5}
            assert {name: row.get(name) for name in said} == (
                said if row["method"] == "ddot-r" else dict.fromkeys(said)
            )
    table = render(read_rows(tmp_path / "rows.jsonl"), "lambda")
    assert "λ 0.5 | λ 3 |" in table
    assert ": DDOT-R |" in table
    (tmp_path / "base").mkdir()
    save_model(model.denoiser.state_dict(), config, model.tokenizer, {"converted_from": "x"}, tmp_path / "base")
    assert training_of(tmp_path / "base") == {}


def test_programs_are_filled_by_every_way_and_come_back_whole(model, tmp_path):
    program = {"id": "1", "prefix": "def f(x):\n    y = 1\n", "middle": "    y += x\n", "suffix": "\n    return  y"}
    (tmp_path / "code-block.test.jsonl").write_text(json.dumps(program) + "\n")
    methods = tuple(CONTENDERS)
    rows = list(evaluate(model, tmp_path, tmp_path / "rows.jsonl", ["code-block"], methods=methods, steps=(2,)))
    located, free = ([name for name in methods if task in CONTENDERS[name].tasks] for task in ("located", "free"))
    assert [row["method"] for row in rows] == [*located, *free]
    assert all(row["cut"] == 0 for row in rows)
    texts = [json.loads(line) for line in (tmp_path / "rows.texts.jsonl").read_text().splitlines()]
    for row in texts:
        if row["task"] == "located" and row["method"] in KEPT - {"unfilled"}:
            assert row["text"].startswith(program["prefix"])
            assert row["text"].endswith(program["suffix"])
        if row["method"] == "unfilled":
            assert row["text"] == program["prefix"] + program["suffix"]


def test_texts_are_scored_again_without_the_model(model, bench, tmp_path):
    """Metrics that were not to be had where texts were made come later, and are what they would have been."""
    output, whole = tmp_path / "rows.jsonl", tmp_path / "whole.jsonl"
    few, many = ("length_error",), ("length_error", "bleu2", "nist2", "success", "exact")
    rows_of(model, bench, output, methods=("unfilled", "planned", "lc"), metrics=few)
    expected = rows_of(model, bench, whole, methods=("unfilled", "planned", "lc"), metrics=many)
    before = output.read_text()
    found = list(rescore(output, bench, many))
    assert output.read_text().startswith(before)
    timing = ("seconds", "commit")
    strip = lambda row: {key: value for key, value in row.items() if key not in timing}  # noqa: E731
    assert [strip(row) for row in found] == [strip(row) for row in expected]
    assert list(rescore(output, bench, many)) == []
    again = measured(read_rows(output))
    assert all(all(name in row for name in many) for row in again)
    filled = output.read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))  # no Java: a sentence for every row, and nothing to write
        assert all("METEOR 1.5" in row["missing"]["meteor"] for row in rescore(output, bench, ("meteor",)))
    assert output.read_text() == filled
    with pytest.raises(ValueError, match="metric 'beauty'"):
        list(rescore(output, bench, ("beauty",)))
    (bench / "own.test.jsonl").write_text("".join((bench / "own.test.jsonl").read_text().splitlines(True)[:2]))
    with pytest.raises(ValueError, match="has 3 items and the benchmark has 2; give the --bench"):
        list(rescore(output, bench, ("d2",)))


def test_intervals_and_paired_differences(model, bench, tmp_path):
    """An interval holds the score it is of; a method against itself differs by nothing, however often it is drawn."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    (mine,) = rows_of(model, bench, first, methods=("planned",), tasks=("free",))
    theirs = rows_of(model, bench, second, methods=("unfilled", "lc"), tasks=("free",))
    (row,) = rescore(first, bench, ("bleu2", "d2"), samples=50)
    low, high = row["intervals"]["bleu2"]
    assert low <= row["bleu2"] == mine["bleu2"] <= high
    assert row["intervals"]["d2"] is None  # no sum over items
    assert list(rescore(first, bench, ("bleu2", "d2"), samples=50)) == []
    (row,) = rescore(first, bench, ("bleu2",), samples=60)  # more samples are worth making again
    assert row["samples"] == 60

    found, _ = contrast([first, second], bench, ["planned", "unfilled", "lc"], ["bleu2", "success"], samples=50)
    assert [(each.second, each.metric) for each in found] == [
        (name, metric) for name in ("unfilled", "lc") for metric in ("bleu2", "success")
    ]
    for each in found:
        (other,) = (row for row in theirs if row["method"] == each.second)
        assert each.difference == pytest.approx(mine[each.metric] - other[each.metric])
        assert each.low <= each.difference <= each.high
    second.write_text(first.read_text().replace('"planned"', '"copied"'))
    texts = first.with_suffix(".texts.jsonl").read_text()
    second.with_suffix(".texts.jsonl").write_text(texts.replace('"planned"', '"copied"'))
    (same,), _ = contrast([first, second], bench, ["planned", "copied"], ["bleu2"], samples=50)
    assert (same.difference, same.low, same.high, same.wins) == (0, 0, 0, 0.5)
    with pytest.raises(ValueError, match="no row has the method 'magic'; available: planned, copied"):
        list(contrast([first, second], bench, ["planned", "magic"], ["bleu2"]))
    for methods in (["planned"], ["planned", "planned"]):
        with pytest.raises(ValueError, match="does not name two methods"):
            list(contrast([first], bench, methods, ["bleu2"]))
    none, (said,) = contrast([first, second], bench, ["planned", "copied"], ["d2"])
    assert not none
    assert "d2" in said
    second.write_text(second.read_text().replace('"steps": 2', '"steps": 3'))
    second.with_suffix(".texts.jsonl").write_text(
        texts.replace('"planned"', '"copied"').replace('"steps": 2', '"steps": 3')
    )
    with pytest.raises(ValueError, match="no two rows of planned, copied agree in dataset"):
        list(contrast([first, second], bench, ["planned", "copied"], ["bleu2"]))


def test_perplexity_of_a_row(model, bench, tmp_path):
    """With a model that gives every token log 2 nats, all texts have the perplexity 2, when filled or afterwards."""
    nats = lambda texts: (np.log(2) * np.array([len(t) for t in texts]), np.array([len(t) for t in texts]))  # noqa: E731
    two, output = Fluency("two", nats), tmp_path / "rows.jsonl"
    (row,) = rows_of(model, bench, output, ("planned",), tasks=("free",), metrics=("perplexity",), fluency=two)
    assert (row["perplexity"], row["language_model"]) == (pytest.approx(2), "two")
    (row,) = rows_of(model, bench, output, ("lc",), tasks=("free",), metrics=("bleu2", "perplexity"))
    assert "--language-model" in row["missing"]["perplexity"]
    # What could not be had is no reason to fill again: the texts are there.
    assert rows_of(model, bench, output, ("lc",), tasks=("free",), metrics=("bleu2", "perplexity")) == []
    (row,) = rescore(output, bench, ("perplexity",), fluency=two)
    assert (row["method"], row["perplexity"]) == ("lc", pytest.approx(2))
    three = Fluency("three", lambda texts: (np.log(3) * nats(texts)[1], nats(texts)[1]))
    assert [row["perplexity"] for row in rescore(output, bench, ("perplexity",), fluency=three)] == [
        pytest.approx(3)
    ] * 2
    assert list(rescore(output, bench, ("perplexity",), fluency=three)) == []


@pytest.mark.parametrize("cut", [1, 9, 40, None])
def test_a_kill_in_the_middle_of_a_line_loses_nothing_else(model, bench, tmp_path, cut):
    """Wherever rows or texts were cut, the same command brings both files to what they would have been."""
    whole, output = tmp_path / "whole.jsonl", tmp_path / "rows.jsonl"
    rows_of(model, bench, whole, methods=("unfilled", "planned"), tasks=("free",))
    rows, texts = (file.read_text().splitlines(True) for file in (whole, whole.with_suffix(".texts.jsonl")))
    output.write_text(rows[0] + rows[1][:cut].rstrip("\n"))
    output.with_suffix(".texts.jsonl").write_text("".join(texts[:-1]) + texts[-1][:cut].rstrip("\n"))
    again = rows_of(model, bench, output, methods=("unfilled", "planned"), tasks=("free",))
    assert len(again) == (cut is not None)  # a whole line that only lacks its end is a line
    strip = lambda row: {key: value for key, value in row.items() if key != "seconds"}  # noqa: E731
    assert [strip(row) for row in measured(read_rows(output))] == [strip(row) for row in measured(read_rows(whole))]
    assert read_texts([output]) == read_texts([whole])


@pytest.mark.parametrize(
    "held",
    [
        "dear diary\n", "dear diary", "{}", '{"first": "lc", "second": "pop"}\n',
        '{"id": "1", "words": ["a"], "keep": [0]}\n', '[1, 2]\n{"model": ',
    ],
)  # fmt: skip
def test_what_somebody_else_wrote_is_left_alone(model, bench, tmp_path, held):
    for name in ("rows.jsonl", "rows.texts.jsonl"):
        file = tmp_path / name
        file.write_text(held)
        with pytest.raises(ValueError, match="choose another --output"):
            rows_of(model, bench, tmp_path / "rows.jsonl", methods=("unfilled",))
        assert file.read_text() == held
        file.unlink()
    assert not list(tmp_path.glob("rows*"))


def test_a_row_that_lacks_its_end_is_not_written_onto(model, bench, tmp_path):
    """Scoring after a kill: nothing is glued to the last row, and a text that was cut off is said to be missing."""
    output = tmp_path / "rows.jsonl"
    rows_of(model, bench, output, methods=("unfilled", "planned"), tasks=("free",), metrics=("length_error",))
    texts = output.with_suffix(".texts.jsonl")
    output.write_text(output.read_text()[:-1])
    assert len(list(rescore(output, bench, ("exact",)))) == 2
    assert len(read_rows(output)) == 4
    texts.write_text(texts.read_text()[:-9])
    with pytest.raises(ValueError, match="it was cut off"):
        read_texts([output])
    with pytest.raises(ValueError, match="has no text of item '2'"):
        list(rescore(output, bench, ("d2",)))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seen", [True, False])
def test_nothing_is_added_to_a_line_that_somebody_else_is_writing(tmp_path, seen, whole):
    """Another one holds the file, has written half a line or has not, and writes the rest of it or is killed."""
    fcntl = pytest.importorskip("fcntl")
    file, theirs = tmp_path / "rows.jsonl", b'{"model": "theirs", "steps": 16}\n'
    with open(file, "ab", buffering=0) as held, ThreadPoolExecutor(2) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(theirs[: 20 * seen])
        waiting = [pool.submit(append, file, [{"model": "ours"}]), *[pool.submit(mend, file)] * seen]
        assert not wait(waiting, timeout=0.3).done
        held.write(theirs[20 * seen : None if whole else 20])
        fcntl.flock(held, fcntl.LOCK_UN)
        assert not wait(waiting).not_done
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        *[{"model": "theirs", "steps": 16}] * whole,
        {"model": "ours"},
    ]


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path):
    """As a sentence, and nothing is left there."""
    (tmp_path / "self.jsonl").symlink_to(tmp_path / "self.jsonl")
    (tmp_path / "away.jsonl").symlink_to(tmp_path / "nowhere" / "rows.jsonl")
    for file in (Path("/proc/rows.jsonl"), tmp_path / "self.jsonl", tmp_path / "away.jsonl"):
        with pytest.raises(ValueError, match=r"cannot be written \(.*\); choose another --output"):
            Store(file)
    Store(tmp_path / "rows.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["away.jsonl", "self.jsonl"]


def test_old_rows_learn_what_was_kept(model, bench, tmp_path):
    output = tmp_path / "rows.jsonl"
    for row in rows_of(model, bench, output, methods=("unfilled", "planned"), tasks=("free",), metrics=("success",)):
        old = row | {"kept": None} if row["method"] == "unfilled" else {k: row[k] for k in row if k != "kept"}
        append(tmp_path / "old.jsonl", [old])
    output.with_suffix(".texts.jsonl").rename(tmp_path / "old.texts.jsonl")
    assert len(list(rescore(tmp_path / "old.jsonl", bench, ("success",)))) == 2
    kept = {row["method"]: row["kept"] for row in measured(read_rows(output))}
    assert {row["method"]: row["kept"] for row in measured(read_rows(tmp_path / "old.jsonl"))} == kept
    assert list(rescore(tmp_path / "old.jsonl", bench, ("success",))) == []


@pytest.mark.parametrize("changed", [None, "training", "weights", "items", "code"])
@pytest.mark.parametrize("threads", [1, 4])
def test_texts_that_were_filled_before_an_interruption_are_not_filled_again(
    model, bench, tmp_path, monkeypatch, changed, threads
):
    """By what wrote them; anything else fills them anew. Seconds are of what was filled in one go."""
    again = Model(model.denoiser, model.tokenizer, threads=threads)
    trained, whole, output = replace(model, model=again, batch=1), tmp_path / "whole.jsonl", tmp_path / "rows.jsonl"
    asked, heard = {"methods": ("ddot-u", "planned"), "tasks": ("free",)}, []
    rows_of(replace(trained, training={"training_steps": 20}), bench, whole, **asked)
    texts = whole.with_suffix(".texts.jsonl").read_text().splitlines(True)
    output.with_suffix(".texts.jsonl").write_text("".join(texts[:4]))  # all three of one row, one of the other
    after = replace(trained, training={"training_steps": 21 if changed == "training" else 20})
    if changed == "weights":
        after = replace(after, model=Model(deepcopy(model.denoiser), model.tokenizer, threads=threads))
        torch.nn.init.normal_(next(after.denoiser.parameters()))
    if changed == "items":
        file = bench / "own.test.jsonl"
        file.write_text(file.read_text().replace("garden", "kitchen").replace("dawn", "noon").replace("rains", "snows"))
    if changed == "code":
        monkeypatch.setattr("ddot.evaluation.run.source", lambda: "another")
    rows = rows_of(after, bench, output, tell=lambda row, *counts: heard.append((row.method, *counts)), **asked)
    if changed:
        assert sorted(heard) == [(name, count, 1) for name in asked["methods"] for count in (1, 2, 3)]
    else:
        assert sorted(heard) == [("ddot-u", 3, 0), ("planned", 1, 0), ("planned", 2, 1), ("planned", 3, 1)]
    assert all(("seconds" in row) == bool(changed) for row in rows)
    rows_of(after, bench, tmp_path / "fresh.jsonl", **asked)
    scores, fresh = (
        [(row["method"], row["bleu2"]) for row in some] for some in (rows, read_rows(tmp_path / "fresh.jsonl"))
    )
    assert scores == fresh
    again, once = (
        {(key.method, item): text for key, texts in read_texts([file]).items() for item, text in texts.items()}
        for file in (output, tmp_path / "fresh.jsonl")
    )
    assert again == once


def test_threads_write_without_locks_on_files(tmp_path, monkeypatch):
    monkeypatch.setattr("ddot.evaluation.store._lock", lambda _: None)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: append(tmp_path / "a.jsonl", [{"model": i, "text": "x" * 9000}]), range(400)))
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["model"] for line in lines) == list(range(400))


def test_what_another_one_added_meanwhile_is_not_made_again(model, bench, tmp_path):
    output, asked = tmp_path / "rows.jsonl", {"methods": ("unfilled", "planned", "ddot-u"), "tasks": ("free",)}
    mine = evaluate(model, bench, output, ["own"], steps=(2,), **asked)
    assert next(mine)["method"] == "unfilled"
    assert [row["method"] for row in evaluate(model, bench, output, ["own"], steps=(2,), **asked)] == [
        "planned",
        "ddot-u",
    ]
    assert list(mine) == []
    assert len(read_rows(output)) == 3


def test_a_number_that_is_asked_twice_is_filled_once(model, bench, tmp_path):
    rows = rows_of(model, bench, tmp_path / "rows.jsonl", methods=("planned", "planned"), tasks=("free",))
    assert len(rows) == 1


def test_links_stay_links(tmp_path):
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    Store(tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").is_symlink()
    assert not (tmp_path / "elsewhere.jsonl").exists()


def test_a_model_that_learnt_more_since_is_not_taken_for_the_same(model, bench, tmp_path):
    output = tmp_path / "rows.jsonl"
    rows_of(replace(model, training={"training_steps": 20}), bench, output, methods=("unfilled", "planned"))
    before = output.read_text()
    for now, said in (
        ({"training_steps": 60}, "training_steps 20, now it has 60; choose another --output"),
        ({"training_steps": 20, "recipe": "toy"}, None),
        ({"recipe": "toy"}, "training_steps 20, now it has None"),
    ):
        if said is None:  # what rows do not say cannot be another
            assert rows_of(replace(model, training=now), bench, output, methods=("planned",)) == []
            continue
        with pytest.raises(ValueError, match=said):
            rows_of(replace(model, training=now), bench, output, methods=("planned",))
    assert output.read_text() == before
    other = replace(model, name="another", training={"training_steps": 60})
    assert len(rows_of(other, bench, output, methods=("planned",))) == 2


def test_mistakes(model, bench, tmp_path):
    for steps in (0, -2):
        with pytest.raises(ValueError, match=f"steps is {steps}; .*at least 1"):
            list(evaluate(model, bench, tmp_path / "r.jsonl", ["own"], methods=("unfilled",), steps=(16, steps)))
    with pytest.raises(ValueError, match=r"r\.texts\.jsonl cannot hold rows"):
        rows_of(model, bench, tmp_path / "r.texts.jsonl")
    (tmp_path / "folder.texts.jsonl").mkdir()
    with pytest.raises(ValueError, match=r"folder\.texts\.jsonl cannot be written \(Is a directory\)"):
        rows_of(model, bench, tmp_path / "folder.jsonl")
    assert not (tmp_path / "folder.jsonl").exists()
    with pytest.raises(ValueError, match="method 'magic'"):
        rows_of(model, bench, tmp_path / "r.jsonl", methods=("magic",))
    with pytest.raises(ValueError, match="task 'both'"):
        rows_of(model, bench, tmp_path / "r.jsonl", tasks=("both",))
    texts = tmp_path / "r.texts.jsonl"
    texts.write_text("")
    with pytest.raises(ValueError, match=r"holds texts; give the rows they belong to, r\.jsonl"):
        list(rescore(texts, bench, ["bleu4"]))
    assert texts.read_text() == ""
    with pytest.raises(ValueError, match="cannot hold rows"):
        rows_of(model, bench, tmp_path)
    with pytest.raises(FileNotFoundError, match="no benchmark"):
        list(evaluate(model, bench, tmp_path / "r.jsonl", ["other"]))


def _not_learnt(names, recipe):
    return [name for name in names if not learnt(name, recipe)]


def test_contenders_a_model_has_not_learnt():
    names = ["unfilled", "ddot-u-leap", "lc", "pop-drawn", "planned", "fixed-oracle", "autoregressive", "insertion"]
    assert _not_learnt([*names, "infill"], "smollm2") == [*names[2:]]
    assert _not_learnt(names, "smollm2_lc") == [name for name in names if name not in ("unfilled", "lc")]
    assert _not_learnt(names, None) == []
    starts = ["ddot-r", "ddot-u", "ddot-t", "ddot-u-kept", "ddot-t-kept", "no-ot", "no-ot-u-drawn"]
    assert _not_learnt(starts, "smollm2_ddot") == ["ddot-t", "ddot-t-kept", "no-ot", "no-ot-u-drawn"]
    assert _not_learnt(starts, "smollm2_ddot_u") == ["ddot-r", "ddot-t", "ddot-t-kept", "no-ot", "no-ot-u-drawn"]
    assert _not_learnt(starts, "smollm2_ddot_t") == ["ddot-r", "ddot-u", "ddot-u-kept", "no-ot", "no-ot-u-drawn"]
    assert _not_learnt(starts, "smollm2_no_ot") == ["ddot-r", "ddot-u", "ddot-t", "ddot-u-kept", "ddot-t-kept"]


def test_keys_belong_to_rows():
    assert (row_keys(0, 3)[1:] == row_keys(0, 2, first=1)).all()
