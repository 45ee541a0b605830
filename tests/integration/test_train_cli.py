"""`ddot train` as a program: killed, interrupted, given nonsense; each ends with its last good checkpoint in place."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import connection
from pathlib import Path

import pytest
import torch
from tiny import Command, ddot
from tiny import options as tiny_options

from ddot.data.tokenizer import learn_bpe
from ddot.infill.model import load
from ddot.network.folder import load_model, load_tensors
from ddot.network.places import complete_steps
from ddot.training.recipes import RECIPES

STEPS = 24
NEWEST = f"step-{STEPS:08d}"


def options(*settings):
    return tiny_options(f"training.steps={STEPS}", *settings)


def wait_until(command, happened):
    """Look often, until it happened or the command ended."""
    while command.process.is_alive() and not happened():
        time.sleep(0.001)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run nobody disturbed."""
    place = tmp_path_factory.mktemp("finished")
    result = ddot(place, "train", "toy", "--output", str(place / "run"), *options("training.save_every=1"))
    assert result.status == 0, result.told
    assert json.loads(result.printed)["step"] == STEPS
    return place / "run"


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_weights(finished, tmp_path):
    """There is a checkpoint after each step, and a kill at a random moment between one and the next.

    Every second kill comes as soon as a checkpoint is seen being written.
    """
    chance = random.Random(5)
    run, settings = tmp_path / "run", options("training.save_every=1")
    arguments = ["train", "toy", "--output", str(run), "--resume", *settings]
    seconds = [row["seconds"] for row in _rows(finished)]
    half_written = 0
    for kill in range(10):
        steps = complete_steps(run)
        command = Command(tmp_path, arguments)
        wait_until(command, lambda before=steps: complete_steps(run) != before)
        if kill % 2:
            wait_until(command, lambda: any(run.glob(".unfinished-*")))
        else:
            pause = chance.uniform(0, (seconds[-1] - seconds[0]) / (len(seconds) - 1))
            connection.wait([command.process.sentinel], pause)
        command.process.kill()
        command.process.join()
        assert command.process.exitcode == -signal.SIGKILL
        half_written += bool(list(run.glob(".unfinished-*")))
        assert all(weight.isfinite().all() for weight in load_model(run)[0].parameters())
    assert half_written >= 1, "no kill came at the moment this test is about"
    last = ddot(tmp_path, *arguments)
    assert last.status == 0, last.told
    for name in ("", "state"):
        mine, theirs = (load_tensors(r / "latest" / name, name or "model") for r in (run, finished))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert _losses(run) == _losses(finished)
    assert sorted(file.name for file in run.iterdir()) == sorted(file.name for file in finished.iterdir())


def _rows(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def _losses(run):
    return [(row["step"], row["total"], row["gradient"], row["rate"]) for row in _rows(run)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_its_last_step(tmp_path, number):
    run = tmp_path / "run"
    arguments = ["train", "toy", "--output", str(run), "--resume", *options("training.save_every=1000")]
    command = Command(tmp_path, [*arguments, "--set", "training.steps=100000"])
    log = run / "log.jsonl"
    wait_until(command, lambda: log.is_file() and log.read_text().count("\n") >= 3)
    os.kill(command.process.pid, number)
    result = command.result()
    (saved,) = complete_steps(run)
    step = int(saved.name.removeprefix("step-"))
    assert result.status == 130
    assert f"interrupted at step {step}; the run is saved" in result.told
    assert json.loads(result.printed)["step"] == step >= 3
    assert len(_losses(run)) == step
    load_model(run)


def _copy(finished, place):
    shutil.copytree(finished, place / "run", symlinks=True)
    return place / "run"


def _truncate(file, share=0.5):
    os.truncate(file, int(file.stat().st_size * share))


def _flip(file):
    """One bit in the middle of the last tensor."""
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)


DAMAGE = {
    "state cut in half": (lambda f: _truncate(f / "state/state.safetensors"), "state.safetensors is damaged"),
    "state gone": (lambda f: (f / "state/state.safetensors").unlink(), "state.safetensors is missing"),
    "model cut in half": (lambda f: _truncate(f / "model.safetensors"), "model.safetensors is damaged"),
    "meta cut in half": (lambda f: _truncate(f / "meta.json"), "meta.json is damaged"),
    "meta gone": (lambda f: (f / "meta.json").unlink(), "meta.json is missing"),
    "meta without a step": (lambda f: (f / "meta.json").write_text("{}"), "meta.json is damaged"),
    "a bit of the model": (
        lambda f: _flip(f / "model.safetensors"),
        "model.safetensors is damaged",
    ),
    "a bit of the state": (lambda f: _flip(f / "state/state.safetensors"), "is damaged"),
    "no checksums": (lambda f: (f / "sha256.json").unlink(), "sha256.json is missing"),
    "config cut in half": (lambda f: _truncate(f / "config.json"), "config.json is damaged"),
    "config gone": (lambda f: (f / "config.json").unlink(), "config.json"),
    "tokenizer cut in half": (lambda f: _truncate(f / "tokenizer.json"), "is not a tokenizer.json"),
    "another vocabulary": (
        lambda f: learn_bpe(["one two three"], 262).save(f / "tokenizer.json"),
        "network or vocabulary",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_a_sentence_that_names_the_one_before(finished, tmp_path, kind):
    damage, sentence = DAMAGE[kind]
    run = _copy(finished, tmp_path)
    damage(run / NEWEST)
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    arguments = ["train", "toy", "--output", str(run), "--resume", *options(f"training.steps={STEPS + 1}")]
    _told_in_one_line(
        ddot(tmp_path, *arguments), sentence, f"remove {run / NEWEST} to resume from step-{STEPS - 1:08d}"
    )
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    if kind == "state cut in half":  # what the sentence says works
        shutil.rmtree(run / NEWEST)
        load_model(run)
        assert ddot(tmp_path, *arguments).status == 0
        assert complete_steps(run)[-1].name == f"step-{STEPS + 1:08d}"


def _told_in_one_line(result, *parts):
    assert result.status == 2, result
    assert result.printed == ""
    (line,) = result.told.strip().splitlines()
    assert line.startswith("ddot: ")
    for part in parts:
        assert part in line


def test_a_full_disk_is_a_sentence_and_the_last_checkpoint_stays(finished, tmp_path):
    """On a file system of its own where the machine lets us; else with a limit on the size of files."""
    place = tmp_path / "small"
    place.mkdir()
    used = sum(file.stat().st_size for file in finished.rglob("*") if file.is_file())  # two checkpoints
    mount = ["mount", "-t", "tmpfs", "-o", f"size={int(used * 1.25)}", "none", str(place)]
    mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        run = _copy(finished, place)
        before = {file: file.stat().st_mtime_ns for file in run.glob("step-*/**/*")}
        arguments = ["train", "toy", "--output", str(run), "--resume", *options(f"training.steps={STEPS + 2}")]
        result = Command(tmp_path, arguments, largest_file=None if mounted else 1 << 20).result()
        assert result.status == 2, result
        assert "no checkpoint could be written" in result.told.splitlines()[-1]
        assert "resume with --resume" in result.told.splitlines()[-1]
        assert {file: file.stat().st_mtime_ns for file in run.glob("step-*/**/*")} == before
        load_model(run)
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)


def test_a_checkpoint_that_grows_too_large_half_way_is_a_sentence_too(finished, tmp_path):
    run = _copy(finished, tmp_path)
    arguments = ["train", "toy", "--output", str(run), "--resume", *options(f"training.steps={STEPS + 2}")]
    result = Command(tmp_path, arguments, largest_file=1 << 20).result()
    assert result.status == 2, result
    assert "File too large" in result.told.splitlines()[-1]
    assert "resume with --resume" in result.told.splitlines()[-1]
    assert not list(run.glob(".*"))
    assert complete_steps(run)[-1].name == NEWEST
    load_model(run)


def _text(place, name, content):
    (place / name).write_bytes(content)
    return f"data.texts={place / name}"


MISTAKES = {
    "an unknown recipe": (lambda place: (["tox"], []), ["no recipe 'tox'", *RECIPES]),
    "an unknown setting": (lambda place: (["toy"], ["training.step=3"]), ["no setting 'training.step'", "steps"]),
    "a wrong type": (lambda place: (["toy"], ["training.steps=few"]), ["training.steps", "a whole number"]),
    "an empty text": (lambda place: (["toy"], [_text(place, "a.txt", b"")]), ["a.txt", "no text"]),
    "blank lines": (lambda place: (["toy"], [_text(place, "a.txt", b"\n  \n\n")]), ["a.txt", "no text"]),
    "a binary file": (
        lambda place: (["toy"], [_text(place, "a.txt", bytes(range(256)) * 9)]),
        ["a.txt"],
    ),
    "zeros": (lambda place: (["toy"], [_text(place, "a.txt", b"abc\n\0\0\0\n")]), ["a.txt", "binary"]),
    "no such text": (lambda place: (["toy"], ["data.texts=nowhere.txt"]), ["no text at nowhere.txt"]),
    "no such model": (lambda place: (["toy"], ["start=nowhere"]), ["nowhere", "ddot convert"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_one_line_and_status_two(tmp_path, kind):
    make, parts = MISTAKES[kind]
    recipe, settings = make(tmp_path)
    result = ddot(tmp_path, "train", *recipe, "--output", str(tmp_path / "run"), *options(*settings))
    _told_in_one_line(result, *parts)
    assert not complete_steps(tmp_path / "run")


def test_a_folder_that_holds_a_run_is_not_written_to(finished, tmp_path):
    before = {file: file.stat().st_mtime_ns for file in finished.rglob("*")}
    result = ddot(tmp_path, "train", "toy", "--output", str(finished), *options())
    _told_in_one_line(result, "already holds a run", "--resume", "--output")
    assert {file: file.stat().st_mtime_ns for file in finished.rglob("*")} == before
    (tmp_path / "file").write_text("")
    _told_in_one_line(ddot(tmp_path, "train", "toy", "--output", str(tmp_path / "file"), *options()), "choose another")


def test_help_says_how_to_train():
    result = subprocess.run([sys.executable, "-m", "ddot", "train", "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    for part in (
        "recipe",
        "toy, smollm2",
        "--output",
        "--set",
        "--resume",
        "ddot train toy --output runs/toy",
        "training.steps=200",
    ):
        assert part in result.stdout
    missing = subprocess.run([sys.executable, "-m", "ddot", "train", "toy"], capture_output=True, text=True)
    assert missing.returncode == 2
    assert "--output" in missing.stderr


def test_the_shipped_text_is_plain_and_short():
    """Every sentence of the toy text fits into the rows of the recipe, with its edges."""
    (file,) = RECIPES["toy"]().data.texts
    lines = Path(file).read_text().splitlines()
    tokenizer = learn_bpe(lines, RECIPES["toy"]().data.tokens)
    assert len(set(lines)) == len(lines) >= 20
    assert max(len(tokenizer.encode(" " + line)) for line in lines) <= RECIPES["toy"]().plans[0].lengths[0] - 2


def blanks():
    """(text with ___, the text) for every run of one to five words that only one of the shipped sentences fits."""
    texts = [line.split() for line in Path(RECIPES["toy"]().data.texts[0]).read_text().splitlines()]
    for words in texts:
        for start in range(len(words)):
            for stop in range(start + 1, min(start + 5, len(words)) + 1):
                head, tail = words[:start], words[stop:]
                fitting = [t for t in texts if t[:start] == head and t[len(t) - len(tail) :] == tail]
                if len(head) + len(tail) >= 2 and len(fitting) == 1:
                    yield " ".join([*head, "___", *tail]), " ".join(words)


@pytest.mark.slow
def test_the_toy_model_fills_blanks_in_the_sentences_it_has_seen(tmp_path):
    assert ddot(tmp_path, "train", "toy", "--output", str(tmp_path / "run")).status == 0
    model = load(str(tmp_path / "run"))
    chosen = list(blanks())[::8]
    right = [model.infill(prompt)[0].text == text for prompt, text in chosen]
    assert sum(right) >= 0.55 * len(right), f"{sum(right)} of {len(right)} blanks filled with the one text that fits"
