"""Real processes under torchrun: the same losses and weights as in one, and going on with another number of them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import options, tiny

from ddot.network.folder import load_model, load_tensors
from ddot.training.distributed import largest, mean, sharded_like, whole, whole_state
from ddot.training.loop import train

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HERE = Path(__file__).parent


def torchrun(*arguments):
    done = subprocess.run(
        [*TORCHRUN, *arguments], capture_output=True, text=True, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return done


def rows(output):
    return [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]


def half(run, place):
    """A copy of a run that has come to step 4 of 8."""
    shutil.copytree(run, place, symlinks=True)
    shutil.rmtree(place / "step-00000008")
    return place


@pytest.mark.slow
def test_many_processes_train_as_one_does_and_take_over_from_each_other(tmp_path):
    """One test, since starting processes is what takes the time."""
    settings = ("training.steps=8", "training.dev_every=4", f"data.dev={tmp_path / 'held out.txt'}")
    sharded = (*settings, "training.sharded=true")
    (tmp_path / "held out.txt").write_text("a green bicycle leans on the wall.\nthe kettle is singing.\n")
    train(tiny(*settings), tmp_path / "one")
    done = torchrun("-m", "ddot", "train", "toy", "--output", str(tmp_path / "replicated"), *options(*settings))
    (line,) = done.stdout.splitlines()  # one process speaks
    assert json.loads(line) == losses(tmp_path / "replicated")[-1]
    half(tmp_path / "one", tmp_path / "one to replicated")
    half(tmp_path / "replicated", tmp_path / "replicated to sharded")
    torchrun(
        str(HERE / "several_runs.py"),
        *(str(tmp_path / "sharded"), *sharded, "training.sample_every=8", "training.accumulate=2", "--"),
        *(str(tmp_path / "one to replicated"), *settings, "training.accumulate=2", "--"),
        *(str(tmp_path / "replicated to sharded"), *sharded),
    )
    assert len([row for row in rows(tmp_path / "sharded") if "samples" in row]) == 1
    for kind in ("replicated", "sharded"):
        train(tiny(*settings), half(tmp_path / kind, tmp_path / f"{kind} to one"), resume=True)
    for kind in sorted(file.name for file in tmp_path.iterdir() if file.is_dir()):
        same_losses(tmp_path / kind, tmp_path / "one")
        same_checkpoint(tmp_path / kind, tmp_path / "one")


def losses(run):
    return [row for row in rows(run) if "total" in row]


def same_losses(run, one):
    """The logged losses, and those on the dev text, are the ones of one process with the same global batch."""
    assert [row["step"] for row in losses(run)] == list(range(1, 9))
    for mine, theirs in zip(losses(run), losses(one), strict=True):
        for name in ("total", "token", "position", "gap_length", "gradient", "rate"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4), (run.name, name, mine["step"])
    dev, wanted = ([row["dev"] for row in rows(folder) if "dev" in row] for folder in (run, one))
    assert len(dev) == 2
    for mine, theirs in zip(dev, wanted, strict=True):
        for name in ("total", "token", "position", "gap_length"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4), (run.name, name)


def same_checkpoint(run, one):
    for part in ("", "state"):
        found, wanted = (load_tensors(folder / "latest" / part, part or "model") for folder in (run, one))
        assert found.keys() == wanted.keys()
        for name in found:
            assert found[name].shape == wanted[name].shape
            assert (found[name] - wanted[name]).abs().max().item() < 2e-4, (run.name, name)
    load_model(run)


def test_in_one_process_there_is_nothing_to_agree_on():
    tensor = torch.arange(3.0)
    assert largest(0.5, 2.0) == [0.5, 2.0]
    assert torch.equal(mean(tensor), tensor)
    assert torch.equal(whole(tensor), tensor)
    tensor = sharded_like(tensor, torch.ones(3))
    assert tensor.tolist() == [1, 1, 1]
    model = torch.nn.Linear(2, 2)
    assert set(whole_state(model, [torch.optim.AdamW(model.parameters())])) >= {"weights/weight", "weights/bias"}
