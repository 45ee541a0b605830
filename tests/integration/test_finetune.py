"""`ddot finetune`: a model learns a user's own text, measured on a part of it that is held out."""

import json
import os
import signal
from dataclasses import replace

import pytest
from commands import ddot, mistake

from ddot.core.rng import generator
from ddot.network.folder import load_tensors
from ddot.network.int8 import compress
from ddot.training import finetune as module
from ddot.training.finetune import affordable, finetune, held_out, pieces

WHO = ["The baker", "My aunt", "A neighbour", "The captain", "Our teacher"]
DOES = ["paints", "repairs", "sells", "carries", "remembers"]
WHAT = ["a blue boat", "the old clock", "two chairs", "every letter", "a wooden box"]
WHEN = ["before dawn", "on Sundays", "in the rain", "at noon", "without a word"]


def sentence(rng):
    return " ".join(some[int(rng.integers(len(some)))] for some in (WHO, DOES, WHAT, WHEN)) + "."


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    rng = generator(0)
    file = tmp_path_factory.mktemp("own") / "own.txt"
    file.write_text("".join(" ".join(sentence(rng) for _ in range(4)) + "\n" for _ in range(150)))
    return file


def test_a_model_learns_what_it_was_not_shown(folder, text, tmp_path):
    output = tmp_path / "mine"
    done = ddot("finetune", text, "--output", output, "--model", folder, "--minutes", 30, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["nats_after"] < figures["nats_before"] - 0.5
    assert figures["held_out_tokens"] < figures["tokens"] / 5
    assert figures["kept"] > 0
    filled = ddot("infill", "The baker ___ the old clock at noon.", "--model", output, "--steps", 4)
    assert filled.returncode == 0, filled.stderr
    assert json.loads(ddot("info", output).stdout)["recipe"] == "finetune"
    assert {file.name for file in tmp_path.iterdir()} == {"mine"}


@pytest.mark.parametrize("rate", [0.0, 100.0])
def test_what_does_not_help_is_not_kept(rate, folder, text, tmp_path, monkeypatch):
    """A rate that learns nothing, and one that destroys the network: the saved weights are those before."""
    usual = module.settings
    monkeypatch.setattr(module, "settings", lambda *given: replace(usual(*given), rate=rate, dev_batches=4))
    monkeypatch.setattr(module, "_PASSES", 0.2)
    result = finetune([str(text)], tmp_path / "mine", folder, minutes=60.0)
    assert (result.kept, result.nats_after, result.nats_error) == (0, result.nats_before, 0)
    assert result.steps > 2
    before = compress(load_tensors(folder, "model"))
    saved = load_tensors(tmp_path / "mine", "model")
    assert all(weight.equal(before[name]) for name, weight in saved.items())


@pytest.mark.parametrize("seconds", [0.001, 0.1, 0.7, 3.0, 100.0])
@pytest.mark.parametrize("minutes", [0.1, 1.0, 5.0, 60.0])
def test_measuring_takes_a_fifth_of_the_time_unless_that_is_too_little(seconds, minutes):
    count, times = affordable(seconds, minutes, 24), 1 + len(module._SHARES)
    assert 6 <= count <= 24
    assert count == 6 or count * times * seconds <= 0.2 * 60 * minutes
    assert count == 24 or (count + 1) * times * seconds > 0.2 * 60 * minutes
    assert affordable(seconds, minutes, 4) == 4


def test_pieces_are_trained_on_or_held_out_never_both(text):
    everything = pieces([str(text)])
    train, dev = held_out(everything, 0)
    assert sorted(map(tuple, train + dev)) == sorted(map(tuple, everything))
    assert len(dev) == round(0.1 * len(everything))


def test_wrapped_lines_are_one_text(tmp_path):
    rng = generator(1)
    words = " ".join(sentence(rng) for _ in range(300)).split()
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 70:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    file = tmp_path / "wrapped.txt"
    file.write_text("\n".join([*lines, line]) + "\n")
    found = [each for piece in pieces([str(file)]) for each in piece]
    assert len(found) == 300
    assert " ".join(found).split() == words


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.txt", "--output", "out"], "no text at missing.txt"),
        (["own.md", "--output", "out"], "own.md is of an unknown"),
        (["short.txt", "--output", "out"], "1 sentences"),
        (["latin.txt", "--output", "out"], "UTF-8"),
        (["empty.txt", "--output", "out"], "no text"),
        (["own.txt", "--output", "."], "exists already"),
        (["own.txt", "--output", "out", "--minutes", "0"], "minutes is 0"),
        (["own.txt", "--output", "out", "--minutes", "nan"], "minutes is nan"),
        (["own.txt", "--output", "out", "--device", "tpu"], "no device"),
        (["own.txt", "--output", "out", "--model", "nowhere"], "no model at"),
    ],
)
def test_mistakes_are_told_before_anything_is_learnt(arguments, says, text, capsys, monkeypatch, tmp_path):
    (tmp_path / "own.txt").write_bytes(text.read_bytes())
    (tmp_path / "own.md").write_text("Hello there.")
    (tmp_path / "short.txt").write_text("Hello there.")
    (tmp_path / "latin.txt").write_bytes("Voilà un été.".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert says in mistake(capsys, monkeypatch, "finetune", *arguments).replace("\n", " ")
    assert sorted(tmp_path.iterdir()) == before


def test_ctrl_c_saves_what_was_learnt(folder, text, tmp_path):
    told = []

    def tell(done, figures):
        told.append(done)
        if len(told) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    result = finetune([str(text)], tmp_path / "mine", folder, minutes=60.0, tell=tell)
    assert result.interrupted
    assert result.steps == 2
    assert (tmp_path / "mine" / "config.json").is_file()
