"""How a run's time is counted."""

import time

from ddot.core.records import Vocabulary
from ddot.network.denoiser import Denoiser
from ddot.training.meter import Meter
from ddot.training.recipes import toy


def test_compiling_is_no_training(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    run = toy()
    with Meter(run, tmp_path, 0, 7.0, 0, 1, Denoiser(run.network(Vocabulary(20)))) as meter:
        now += 3
        with meter.compiling(first=True):
            now += 50
        now += 2
        assert meter.elapsed() == 7 + 3 + 2
        assert now - meter.mark == 3 + 2, "nor is it counted for the speed"
        assert not meter.counts, "nor are its slots"
        with meter.apart():
            now += 10
        assert meter.elapsed() == 7 + 3 + 2 + 10, "looking at dev items is part of the run"
        meter.counts = True
        with meter.starting():
            now += 20
        assert meter.elapsed() == 7 + 3 + 2 + 10, "waiting for the first batch is not"
        assert meter.counts
