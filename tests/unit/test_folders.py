"""Models and runs on disk: what is written comes back, nothing is a pickle, damage is a sentence, the last stays."""

import dataclasses
import json
import os
import pickle
import resource
import struct
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
import torch

from ddot.core.absorbing import ScoreEntropy
from ddot.core.records import Vocabulary
from ddot.data.tokenizer import learn_bpe
from ddot.files import check_seal, is_sealed, seal, whole_folder
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.folder import config_from_json, config_to_json, load_model, load_tensors, save_model, save_tensors
from ddot.network.llama import LlamaConfig
from ddot.network.places import EMBEDDED, complete_steps, model_folder
from ddot.training.checkpoints import check_space, damaged, open_run, save_step

TEXTS = ["a lamp hangs over the table", "the table stands under a lamp"]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(TEXTS, 280)


@pytest.fixture
def model(tokenizer):
    vocabulary = tokenizer.vocabulary
    trunk = LlamaConfig(width=16, blocks=1, heads=2, key_heads=1, inner_width=32, vocabulary=vocabulary.rows)
    model = Denoiser(DenoiserConfig.extended(trunk, vocabulary))
    for parameter in model.parameters():  # the additions start at zero, which would hide a mistake
        torch.nn.init.normal_(parameter)
    return model


def write_model(model, tokenizer, folder, shard_bytes=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_model(dict(model.named_parameters()), model.config, tokenizer, {"step": 3}, folder, shard_bytes)
    return folder


def same(model, other):
    mine, theirs = model.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("shard_bytes", [None, 1, 4_000, 1 << 30])
def test_a_model_comes_back(model, tokenizer, tmp_path, shard_bytes):
    write_model(model, tokenizer, tmp_path, shard_bytes)
    again, words = load_model(tmp_path)
    assert same(again, model)
    assert again.config == model.config
    assert words.encode(TEXTS[0]).tolist() == tokenizer.encode(TEXTS[0]).tolist()
    parts = sorted(tmp_path.glob("model*.safetensors"))
    assert {part.stat().st_mode for part in parts} == {(tmp_path / "config.json").stat().st_mode}
    assert (len(parts) > 1) == (shard_bytes is not None and shard_bytes < 1 << 30)
    if shard_bytes == 4_000:
        # No part is larger than was asked for, but for single tensors that are.
        largest = max(p.numel() * 4 for p in model.parameters())
        assert max(_data_bytes(part) for part in parts) <= max(shard_bytes, largest)


def _data_bytes(file):
    content = file.read_bytes()
    return len(content) - 8 - struct.unpack("<Q", content[:8])[0]


def test_every_config_comes_back():
    vocabulary = Vocabulary(50_257)
    for config in (
        DenoiserConfig.extended(LlamaConfig.smollm2_135m(vocabulary.rows), vocabulary),
        DenoiserConfig(DiTConfig.small(vocabulary.rows), vocabulary, ScoreEntropy(states=50_258), position_scale=512.0),
    ):
        assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == config


def test_the_embedded_config_is_read_and_written_as_it_is():
    stored = json.loads((EMBEDDED / "config.json").read_text())
    config = config_from_json(stored)
    assert config.gap_lengths
    written = config_to_json(config)
    assert {name: written[name] for name in stored} == stored
    assert (config.planner, config.order) == ("text", "outline")  # what it was trained for


def test_no_file_is_a_pickle_and_none_is_ever_unpickled(model, tokenizer, tmp_path, monkeypatch):
    write_model(model, tokenizer, tmp_path, 4_000)

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for holder, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (np, "load")):
        monkeypatch.setattr(holder, name, refuse)
    assert same(load_model(tmp_path)[0], model)
    for file in tmp_path.iterdir():
        if file.suffix == ".json":
            json.loads(file.read_text())
        else:
            _read_by_hand(file)


def _read_by_hand(file):
    """The safetensors format by its description: a length, a JSON header, then bytes that the header names exactly."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    spans = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    assert spans[0][0] == 0
    assert all(end == start for (_, end), (start, _) in pairwise(spans))
    assert 8 + length + spans[-1][1] == len(content)


def _cut(file, share):
    os.truncate(file, int(file.stat().st_size * share))


DAMAGE = {
    "weights cut in half": (lambda f: _cut(f / "model.safetensors", 0.5), "model.safetensors is damaged"),
    "weights cut in the header": (lambda f: _cut(f / "model.safetensors", 0.001), "model.safetensors is damaged"),
    "weights empty": (lambda f: _cut(f / "model.safetensors", 0), "model.safetensors is damaged"),
    "weights a pickle": (
        lambda f: (f / "model.safetensors").write_bytes(pickle.dumps({"a": list(range(99))})),
        "model.safetensors is damaged",
    ),
    "weights gone": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
    "config gone": (lambda f: (f / "config.json").unlink(), "give a folder with config.json"),
    "config cut": (lambda f: _cut(f / "config.json", 0.5), "config.json is damaged"),
    "config binary": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "config.json is damaged"),
    "config of something else": (
        lambda f: (f / "config.json").write_text('{"model_type": "llama"}'),
        "config.json names 'None'; this version knows",
    ),
    "config a list": (lambda f: (f / "config.json").write_text("[1]"), "[1], not an object"),
    "config with a field too many": (
        lambda f: (f / "config.json").write_text('{"is": "Vocabulary", "base": 3, "extra": 1}'),
        "config.json does not fit this version",
    ),
    "tokenizer gone": (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer at"),
    "tokenizer cut": (lambda f: _cut(f / "tokenizer.json", 0.7), "tokenizer.json is not a tokenizer.json"),
    "tokenizer of another size": (
        lambda f: learn_bpe(TEXTS, 270).save(f / "tokenizer.json"),
        "has 270 tokens, the network 280; use the tokenizer.json the network was trained with",
    ),
    "weights of another network": (
        lambda f: save_tensors({"trunk.norm.weight": torch.ones(5)}, f, "model"),
        "do not fit its config.json: missing",
    ),
}


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *(("slots", value) for value in ("x", -4, 0, 1.5, True, None, [64], 10**9)),
        *(("trunk", value) for value in (3, None, [], "Llama", {"is": "Vocabulary", "base": 3})),
        *(("vocabulary", value) for value in (280, None, {"is": "CleanToken"})),
        *(("heads", value) for value in (0, -1, "two", 2.0, None)),
        ("blocks", 10**9), ("width", "wide"), ("norm_eps", "tiny"), ("norm_eps", True), ("causal", 1),
        ("position_scale", "x"), ("time", 3), ("order", "sideways"), ("planner", 7), ("score", "sure"), ("base", -1),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_that_no_network_has_is_refused(model, tokenizer, tmp_path, where, value):
    file = write_model(model, tokenizer, tmp_path / "model") / "config.json"
    config = json.loads(file.read_text())
    for part in (config, config["trunk"], config["vocabulary"]):
        if where in part:
            part[where] = value
            break
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=where):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_one_sentence(model, tokenizer, tmp_path, kind):
    damage, sentence = DAMAGE[kind]
    damage(write_model(model, tokenizer, tmp_path / "model"))
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        load_model(tmp_path / "model")
    assert sentence in str(raised.value)


def test_weights_are_checked_against_their_checksums(model, tokenizer, tmp_path):
    """A flipped bit of a weight is refused. Other files may change, and folders without checksums load."""
    folder = write_model(model, tokenizer, tmp_path / "model", 4_000)
    seal(folder)
    assert same(load_model(folder)[0], model)
    (folder / "meta.json").write_text("{}")
    assert same(load_model(folder)[0], model)
    damaged_part = max(folder.glob("model-*.safetensors"))
    content = bytearray(damaged_part.read_bytes())
    content[-3] ^= 1
    damaged_part.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{damaged_part.name} is damaged: its checksum"):
        load_model(folder)
    (folder / "sha256.json").unlink()
    load_model(folder)


def test_the_embedded_model_has_checksums():
    assert is_sealed(EMBEDDED)
    check_seal(EMBEDDED)


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with whole_folder(tmp_path / "a" / "made") as draft:
        (draft / "file").write_text("x")
        assert not (tmp_path / "a" / "made").exists()
    assert (tmp_path / "a" / "made" / "file").read_text() == "x"
    with pytest.raises(ValueError, match="made exists already"), whole_folder(tmp_path / "a" / "made"):
        raise AssertionError("the block ran")
    with suppress(KeyboardInterrupt), whole_folder(tmp_path / "b") as draft:
        (draft / "half").write_text("x")
        raise KeyboardInterrupt
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    (tmp_path / "plain").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*plain"), whole_folder(tmp_path / "plain" / "under"):
        raise AssertionError("the block ran")


def test_damaged_parts_are_named(model, tokenizer, tmp_path):
    write_model(model, tokenizer, tmp_path, 4_000)
    first = min(tmp_path.glob("model-*.safetensors"))
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=rf"{first.name} is missing"):
        load_tensors(tmp_path, "model")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="weight_map"):
        load_tensors(tmp_path, "model")


def write_step(run, step, value, keep=2):
    def write(folder):
        save_tensors({"w": torch.full((1000,), float(value))}, folder, "model")
        (folder / "config.json").write_text("{}")

    return save_step(run, step, write, 4_000, keep)


def stored(run):
    return load_tensors(model_folder(run), "model")["w"][0].item()


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_last_steps_are_kept_and_latest_is_the_newest(tmp_path, keep):
    for step in (2, 9, 10, 100):
        write_step(tmp_path, step, step, keep)
        assert stored(tmp_path) == step
    kept = ["step-00000002", "step-00000009", "step-00000010", "step-00000100"][-keep:]
    assert [folder.name for folder in complete_steps(tmp_path)] == kept
    assert (tmp_path / "latest").resolve().name == "step-00000100"
    assert not list(tmp_path.glob(".*"))


def test_a_step_is_never_written_over(tmp_path):
    write_step(tmp_path, 3, 1)
    with pytest.raises(ValueError, match="step-00000003 exists already"):
        write_step(tmp_path, 3, 2)
    assert stored(tmp_path) == 1


def test_when_the_newest_is_removed_the_one_before_is_the_model(tmp_path):
    write_step(tmp_path, 1, 1)
    newest = write_step(tmp_path, 2, 2)
    (newest / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"step-00000002 has no config\.json; it is damaged"):
        model_folder(tmp_path)
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    assert stored(tmp_path) == 1


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("x")])
def test_a_write_that_fails_half_way_leaves_the_last_one(tmp_path, failure):
    write_step(tmp_path, 1, 1)

    def write(folder):
        save_tensors({"w": torch.zeros(3)}, folder, "model")
        raise failure

    wanted = ValueError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(wanted) as raised:
        save_step(tmp_path, 2, write, 10, 2)
    if wanted is ValueError:
        assert "No space left on device" in str(raised.value)
    assert stored(tmp_path) == 1
    assert len(complete_steps(tmp_path)) == 1
    write_step(tmp_path, 2, 2)
    assert stored(tmp_path) == 2
    assert not list(tmp_path.glob(".*"))


@pytest.fixture
def file_size_limit():
    """Files of this process cannot grow beyond 20 kB: the system refuses as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("file_size_limit")
def test_a_full_disk_leaves_the_last_one(tmp_path):
    write_step(tmp_path, 1, 1)
    with pytest.raises(
        ValueError, match=r"no checkpoint could be written .*\(the last complete checkpoint is intact\)"
    ):
        save_step(tmp_path, 2, lambda folder: save_tensors({"w": torch.zeros(10_000)}, folder, "model"), 40_000, 2)
    assert stored(tmp_path) == 1
    assert [folder.name for folder in tmp_path.iterdir() if folder.name.startswith(".")] == []


def test_what_the_disk_has_no_room_for_is_not_begun(tmp_path):
    write_step(tmp_path, 1, 1)
    with pytest.raises(ValueError, match=r"MB needed, .* MB free"):
        save_step(tmp_path, 2, lambda _: pytest.fail("it was begun"), 1 << 60, 2)
    with pytest.raises(ValueError, match="MB needed"):
        check_space(tmp_path, 1 << 60)
    assert stored(tmp_path) == 1


def test_damage_names_the_checkpoint_before(tmp_path):
    first, second = write_step(tmp_path, 1, 1), write_step(tmp_path, 2, 2)
    with pytest.raises(ValueError, match=r"step-00000002 cannot be read: 'step' is missing; remove"), damaged(second):
        raise KeyError("step")
    with pytest.raises(ValueError, match="cannot be read: no; there is no earlier"), damaged(first):
        raise ValueError("no")


def test_a_run_folder_is_opened_once_unless_resumed(tmp_path):
    run = tmp_path / "deep" / "run"
    assert open_run(run, resume=False) is None
    assert open_run(run, resume=True) is None
    newest = write_step(run, 5, 5)
    assert open_run(run, resume=True) == newest
    with pytest.raises(ValueError, match="already holds a run"):
        open_run(run, resume=False)
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ValueError, match=r"\(.*\); choose another --output"):
            open_run(wrong, resume=False)


def test_config_fields_are_what_the_dataclasses_say(model):
    told = config_to_json(model.config)
    assert told["is"] == "DenoiserConfig"
    names = {field.name for field in dataclasses.fields(model.config)}
    assert set(told) - {"is"} == names - {"gap_lengths"} | {"rooms"}  # the file keeps the name it began with
