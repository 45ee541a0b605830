"""The training loop, seen through what it logs and saves."""

import dataclasses
import json
import math
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from ddot.data.shards import Corpus, pack
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.network.denoiser import Denoiser
from ddot.network.folder import load_model, load_tensors
from ddot.network.places import complete_steps, training_of
from ddot.training.batches import Batches
from ddot.training.loop import train
from ddot.training.recipes import toy
from ddot.training.setup import open_data

OTHER_TEXTS = "the clock stands still.\nten candles burn in the hall.\na fox runs over the frozen field.\n"


def rows(output, kind="total"):
    found = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [row for row in found if kind in row]


def raw_weights(folder):
    """The weights as they were trained, not averaged."""
    state = load_tensors(folder / "state", "state")
    return {name.removeprefix("weights/model."): value for name, value in state.items() if name.startswith("weights/")}


def _meta(run):
    return json.loads((complete_steps(run)[-1] / "meta.json").read_text())


def difference(mine, theirs):
    assert mine.keys() == theirs.keys()
    return max((mine[name] - theirs[name]).abs().max().item() for name in mine)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A whole run of twelve steps: its folder."""
    output = tmp_path_factory.mktemp("straight") / "run"
    figures = train(tiny("training.position_warmup=5", "training.decay=0.5"), output)
    assert figures == rows(output)[-1]
    return output


def test_the_log_holds_the_losses_the_paper_adds_up_and_the_schedule(straight):
    run = tiny()
    logged = rows(straight)
    assert [row["step"] for row in logged] == list(range(1, 13))
    for step, row in enumerate(logged):
        factor = run.training.position_factor * min(1, (step + 1) / 5)  # λ, warmed up
        total = row["token"] + factor * row["position"] + run.plans[0].method.gap_length_factor * row["gap_length"]
        assert row["total"] == pytest.approx(total, rel=1e-5)
        assert row["rate"] == pytest.approx(min(1, (step + 1) / 3, (1 - step / 12) / 0.5))
    assert logged[-1]["total"] < logged[0]["total"]
    seconds = [row["seconds"] for row in logged]
    assert seconds == sorted(seconds)


def test_the_saved_model_is_the_moving_average(straight):
    """From step 8 to step 12 by hand is not possible, from one to the next it is."""
    output = straight.with_name("average")
    train(tiny("training.steps=7", "training.save_every=1", "training.average=0.5", "training.keep=3"), output)
    first, before, after = complete_steps(output)
    assert (first.name, before.name, after.name) == ("step-00000005", "step-00000006", "step-00000007")
    old, new, raw = load_tensors(before, "model"), load_tensors(after, "model"), raw_weights(after)
    keep = min(0.5, (1 + 6) / (10 + 6))
    assert difference(new, {name: keep * old[name] + (1 - keep) * raw[name] for name in old}) < 1e-6
    assert difference(new, raw) > 1e-4


def test_only_what_is_named_learns_and_goes_on_after_a_stop(straight):
    """The rest keeps every bit; stopped halfway and resumed, the same weights come out as in one go."""
    settings = ("training.only=room_head,velocity", f"start={straight}")
    whole, halves = straight.with_name("whole"), straight.with_name("halves")
    train(tiny(*settings), whole)
    train(tiny(*settings, "training.save_every=5"), halves)
    shutil.rmtree(complete_steps(halves)[-1])
    train(tiny(*settings), halves, resume=True)
    start, end = load_tensors(complete_steps(straight)[-1], "model"), load_tensors(complete_steps(whole)[-1], "model")
    learnt = {name for name in end if not torch.equal(start[name], end[name])}
    assert learnt == {"room_head.weight", "room_head.bias", "velocity.weight", "velocity.bias"}
    assert difference(load_tensors(complete_steps(halves)[-1], "model"), end) == 0
    first, (before,) = _meta(straight), _meta(whole)["before"]
    assert [before[key] for key in ("recipe", "step", "seconds", "only")] == ["toy", 12, first["seconds"], []]
    said = training_of(whole)  # of the run in which all learnt
    assert (said["training_steps"], said["training_seconds"]) == (12, first["seconds"])
    train(tiny(f"start={whole}"), straight.with_name("on"))
    said = training_of(straight.with_name("on"))
    assert (said["training_steps"], said["own_steps"]) == (24, 12)
    assert said["own_seconds"] == _meta(straight.with_name("on"))["seconds"] < said["training_seconds"]
    assert "0x" not in "".join(first["plans"])
    for only in ("trunk.blocks", "trunk"):  # Muon's part alone, and with AdamW
        part = straight.with_name(only)
        train(tiny(f"start={straight}", f"training.only={only}", "training.save_every=5"), part)
        shutil.rmtree(complete_steps(part)[-1])
        train(tiny(f"start={straight}", f"training.only={only}"), part, resume=True)
        assert training_of(part)["training_steps"] == 24
    with pytest.raises(ValueError, match=r"no weights 'head…'; its parts are trunk, "):
        train(tiny("training.only=head"), straight.with_name("none"))


@pytest.mark.parametrize("said", [None, "{", "[]", "{}", '{"training": "yes"}', '{"training": {}, "before": null}'])
def test_a_model_that_says_nothing_of_itself_can_be_trained_on(straight, tmp_path, said):
    start = tmp_path / "start"
    shutil.copytree(complete_steps(straight)[-1], start)
    (start / "meta.json").unlink()
    if said is not None:
        (start / "meta.json").write_text(said)
    train(tiny("training.steps=1", f"start={start}"), tmp_path / "run")
    unknown = dict.fromkeys(("recipe", "step", "seconds", "position_factor", "device", "only"))
    assert _meta(tmp_path / "run")["before"] == ([unknown] if said and "null" in said else [])


def test_what_was_before_is_settled_at_the_start(straight, tmp_path):
    start, run = tmp_path / "start", tmp_path / "run"
    shutil.copytree(complete_steps(straight)[-1], start)
    train(tiny("training.steps=2", f"start={start}"), run)
    before = _meta(run)["before"]
    (start / "meta.json").write_text("{}")  # the start went on, or away
    train(tiny("training.steps=4", f"start={start}"), run, resume=True)
    assert _meta(run)["before"] == before
    assert before[0]["step"] == 12


def test_a_checkpoint_is_a_model_folder(straight):
    model, tokenizer = load_model(straight)
    assert difference(dict(model.named_parameters()), load_tensors(straight / "latest", "model")) == 0
    assert tokenizer.decode(tokenizer.encode("the old dog")) == "the old dog"
    meta = json.loads((straight / "latest" / "meta.json").read_text())
    assert (meta["recipe"], meta["step"], meta["figures"]) == ("toy", 12, rows(straight)[-1])
    assert meta["training"]["slots"] == 96


def test_batches_in_parts_give_the_same_steps(tmp_path):
    one, two = (tmp_path / name for name in ("one", "two"))
    train(tiny("training.steps=4"), one)
    train(tiny("training.steps=4", "training.accumulate=4"), two)
    for a, b in zip(rows(one), rows(two), strict=True):
        for name in ("total", "token", "position", "gap_length", "gradient"):
            assert a[name] == pytest.approx(b[name], rel=1e-4)
    assert difference(raw_weights(one / "latest"), raw_weights(two / "latest")) < 1e-4


@pytest.mark.parametrize("clip", [0.25, 1000.0])
def test_gradients_are_clipped_by_their_joint_norm(tmp_path, clip):
    """After one step a momentum is (1 − β) times the gradient that was used."""
    train(tiny("training.steps=1", f"training.clip={clip}"), tmp_path)
    state = load_tensors(tmp_path / "latest" / "state", "state")
    squares = 0.0
    for name, value in state.items():
        share = {"exp_avg": 0.1, "momentum": 0.05}.get(name.split("/")[1] if name.startswith("optimiser/") else "")
        squares += 0 if share is None else (value / share).double().square().sum().item()
    before = rows(tmp_path)[0]["gradient"]
    assert before > 0.25
    assert math.sqrt(squares) == pytest.approx(min(clip, before), rel=1e-3)


def test_times_are_spread_over_the_rows_of_all_processes(straight):
    """Row i of B has its time in [(i + u)/B], one u for the batch: antithetic."""
    run = tiny()
    plan = dataclasses.replace(run.plans[0], full_noise=0.0)
    corpus = Corpus(straight / "data")
    tokenizer = Tokenizer.load(corpus.folder)
    parts = [Batches([(1.0, corpus)], [plan], tokenizer, 480, 3, True, rank, 4)[5][1].t for rank in range(4)]
    t = np.sort((torch.cat(parts).double().numpy() - 1e-3) / (1 - 1e-3))
    np.testing.assert_allclose(np.diff(t), 1 / 40, atol=1e-6)
    assert 0 <= t[0] < 1 / 40


def test_a_budget_of_seconds_ends_a_run_with_its_schedule_done(tmp_path):
    budget, decay = 1.5, 0.4
    settings = (
        "training.steps=none",
        f"training.seconds={budget}",
        f"training.decay={decay}",
        "training.save_every=1000",
    )
    figures = train(tiny(*settings), tmp_path)
    logged = rows(tmp_path)
    assert figures == logged[-1]
    # The rate of a step is settled after the line of the step before it was written.
    for before, row in zip([{"seconds": 0.0}, *logged], logged, strict=False):
        warm = min(1.0, row["step"] / 3)
        assert row["rate"] <= min(warm, max(0.0, 1 - before["seconds"] / budget) / decay) + 1e-9
        assert row["rate"] >= min(warm, max(0.0, 1 - row["seconds"] / budget) / decay) - 1e-9
    # The time may be up between the line of the last step and the next look at the clock.
    assert all(row["seconds"] < budget for row in logged[:-1])
    assert logged[-1]["seconds"] > budget / 2
    assert [folder.name for folder in complete_steps(tmp_path)] == [f"step-{logged[-1]['step']:08d}"]
    content = (tmp_path / "log.jsonl").read_text()
    assert train(tiny(*settings), tmp_path, resume=True) == {}
    assert (tmp_path / "log.jsonl").read_text() == content


def test_a_finished_run_is_left_as_it_is(straight):
    before = {file: file.stat().st_mtime_ns for file in straight.glob("step-*/**/*")}
    log = (straight / "log.jsonl").read_text()
    assert train(tiny(), straight, resume=True) == {}
    assert {file: file.stat().st_mtime_ns for file in straight.glob("step-*/**/*")} == before
    assert (straight / "log.jsonl").read_text() == log


def test_a_run_goes_on_where_it_was_and_nothing_is_unpickled(straight, tmp_path, monkeypatch):
    shutil.copytree(straight, tmp_path / "run", symlinks=True)
    shutil.rmtree(tmp_path / "run" / "step-00000012")

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for holder, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(holder, name, refuse)
    train(tiny("training.position_warmup=5", "training.decay=0.5"), tmp_path / "run", resume=True)
    again, first = tmp_path / "run" / "latest", straight / "latest"
    assert difference(load_tensors(again, "model"), load_tensors(first, "model")) == 0
    assert difference(load_tensors(again / "state", "state"), load_tensors(first / "state", "state")) == 0
    same = [name for name in rows(straight)[0] if name not in ("seconds", "slots_per_second", "waiting")]
    assert [[row[name] for name in same] for row in rows(tmp_path / "run")] == [
        [row[name] for name in same] for row in rows(straight)
    ]
    for file in again.rglob("*"):
        assert file.is_dir() or file.suffix in (".safetensors", ".json")


def test_the_dev_loss_is_that_of_the_weights_on_the_dev_text(tmp_path):
    text = tmp_path / "held out.txt"
    text.write_text(OTHER_TEXTS)
    run = tiny(f"data.dev={text}", "training.steps=4", "training.dev_every=2", "training.dev_batches=3")
    train(run, tmp_path / "run")
    found = rows(tmp_path / "run", "dev")
    assert [row["step"] for row in found] == [2, 4]
    tokenizer = Tokenizer.load(tmp_path / "run" / "latest")
    corpus = Corpus(tmp_path / "run" / "dev")
    assert corpus.meta["sentences"] == 3
    model = Denoiser(run.network(tokenizer.vocabulary))
    model.load_state_dict(raw_weights(tmp_path / "run" / "latest"))
    batches = Batches([(1.0, corpus)], run.plans, tokenizer, 96, -1)
    with torch.no_grad():
        losses = [run.plans[0].method.loss(model, batches[i][1], run.training.position_factor) for i in range(3)]
    for name in ("total", "token", "position", "gap_length", "nats"):
        mean = np.mean([getattr(loss, name).item() for loss in losses])
        assert found[-1]["dev"][name] == pytest.approx(mean, rel=1e-4)


def test_blanks_are_filled_and_shown_now_and_then(straight, tmp_path, capsys):
    settings = ("training.position_warmup=5", "training.decay=0.5", "training.sample_every=6")
    train(tiny(*settings), tmp_path)
    shown = capsys.readouterr().err
    found = rows(tmp_path, "samples")
    assert [row["step"] for row in found] == [6, 12]
    lines = Path(toy().data.texts[0]).read_text().splitlines()
    for row in found:
        assert len(row["samples"]) == 3
        for sample in row["samples"]:
            before, after = (part.strip() for part in sample["prompt"].split("___"))
            assert sample["original"] in lines
            assert sample["original"].startswith(before)
            assert sample["original"].endswith(after)
            assert len(before) + len(after) < len(sample["original"])
            letters = iter(sample["filled"])
            assert all(letter in letters for letter in before + after if letter != " "), "the prompt is gone"
            assert f"{sample['prompt']}  →  {sample['filled']}" in shown
    assert [s["prompt"] for s in found[0]["samples"]] == [s["prompt"] for s in found[1]["samples"]]
    # A look changes nothing.
    mine, theirs = load_tensors(tmp_path / "latest", "model"), load_tensors(straight / "latest", "model")
    assert difference(mine, theirs) == 0


def test_tensorboard_gets_the_same_figures(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    train(tiny("training.steps=3", "training.tensorboard=true", "training.save_every=0"), tmp_path)
    (file,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    found = {}
    for event in loader.EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found[value.tag, event.step] = value.tensor.float_val[0]
    for row in rows(tmp_path):
        assert found["total", row["step"]] == pytest.approx(row["total"], rel=1e-5)
    assert not complete_steps(tmp_path)


def test_without_tensorboard_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"needs the extra `track`: .* pip install .*\[track\]"):
        train(tiny("training.tensorboard=true"), tmp_path)


@pytest.mark.parametrize("log_every", [1, 1000])
def test_a_run_that_blows_up_leaves_its_last_good_checkpoint(straight, tmp_path, log_every):
    shutil.copytree(straight, tmp_path / "run", symlinks=True)
    wild = tiny("training.steps=30", "training.rate=1e30", "training.save_every=3", f"training.log_every={log_every}")
    with pytest.raises(ValueError, match="lower the rates"):
        train(wild, tmp_path / "run", resume=True)
    assert complete_steps(tmp_path / "run")[-1].name == "step-00000012"
    assert all(weight.isfinite().all() for weight in load_model(tmp_path / "run")[0].parameters())


def test_a_run_starts_from_a_model(straight, tmp_path):
    text = tmp_path / "more.txt"
    text.write_text(OTHER_TEXTS)
    start = (f"start={straight}", f"data.texts={text}", "training.steps=1", "training.average=0")
    train(tiny(*start, "training.rate=0", "training.matrix_rate=0"), tmp_path / "run")
    mine, theirs = load_tensors(tmp_path / "run" / "latest", "model"), load_tensors(straight / "latest", "model")
    assert difference(mine, theirs) == 0
    assert Tokenizer.load(tmp_path / "run" / "data").vocabulary == Tokenizer.load(straight / "data").vocabulary


def test_a_start_that_does_not_fit_is_a_sentence(straight, tmp_path):
    smaller = dataclasses.replace(toy(), network=lambda v: _narrow(toy().network(v)), start=str(straight))
    with pytest.raises(ValueError, match=r"has the trunk .* toy"):
        train(smaller, tmp_path / "a")
    pack([["ten candles burn"]], learn_bpe([OTHER_TEXTS], 290), tmp_path / "packed")
    foreign = tiny(f"start={straight}", "data.texts=", f"data.folder={tmp_path}", "data.sources=packed")
    with pytest.raises(ValueError, match=r"was packed with another tokenizer \(290 tokens\)"):
        train(foreign, tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="no model at"):
        train(tiny("start=nowhere"), tmp_path / "c")


def _narrow(config):
    return dataclasses.replace(config, trunk=dataclasses.replace(config.trunk, inner_width=64))


def test_going_on_with_something_else_is_a_sentence(straight):
    before = sorted(straight.rglob("*"))
    for run, sentence in (
        (
            dataclasses.replace(tiny(), network=lambda v: _narrow(toy().network(v))),
            "network .* the recipe's",
        ),
        (
            tiny("training.matrix_rate=none"),
            "another run: .* keep training.matrix_rate and training.only",
        ),
        (tiny("training.only=velocity"), "another run: .* keep training.matrix_rate and training.only"),
        (tiny("data.tokens=280"), "packed from other texts"),
    ):
        with pytest.raises(ValueError, match=sentence):
            train(run, straight, resume=True)
    assert sorted(straight.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("training.steps=none",), "a run needs an end"),
        (("training.dev_every=5",), "data.dev is not"),
        (("data.texts=",), "a run needs data"),
        (("data.texts=", "data.sources=news"), "no packed corpus at news"),
        (("training.accumulate=3",), "8 rows .*training.accumulate=3"),
        (("training.slots=100",), "100 slots .* rows of 12"),
        (("training.device=cuda",), "finds no GPU"),
        (("training.device=abacus",), "there is no device 'abacus'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(tmp_path, settings, sentence):
    if "finds no GPU" in sentence and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        train(tiny(*settings), tmp_path)
    assert not complete_steps(tmp_path)


def test_texts_are_packed_once(tmp_path):
    """With the run's own tokenizer; a folder packed from something else is not taken."""
    text = tmp_path / "mine.txt"
    text.write_text(OTHER_TEXTS)
    tokenizer, ((weight, corpus),), dev = open_data(tiny(f"data.texts={text}"), tmp_path, 0)
    assert (weight, dev) == (1.0, None)
    assert [tokenizer.decode(corpus.passage(i, 99)[0]).strip() for i in range(3)] == OTHER_TEXTS.splitlines()
    text.write_text(OTHER_TEXTS + "One more line.\n")
    with pytest.raises(ValueError, match="packed from other texts"):
        open_data(tiny(f"data.texts={text}"), tmp_path, 0)
    text.unlink()
    open_data(tiny(f"data.texts={text}"), tmp_path, 0)
    with pytest.raises(ValueError, match="packed from other texts"):
        open_data(tiny(), tmp_path, 0)
