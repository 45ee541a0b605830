"""Requests that share batches get the answers they would get alone; whoever leaves or fails disturbs nobody."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import replace

import pytest
from served import small_model

import ddot
from ddot.infill.engine import Shape
from ddot.infill.model import Model
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings
from ddot.serve import bench
from ddot.serve.shared import SharedModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("shared") / "tiny")


@pytest.fixture(scope="module")
def alone(folder):
    model = ddot.load(folder, device="cpu")
    return Model(model.denoiser, model.tokenizer, "tiny", shape=Shape(4, 32, 256))


@pytest.fixture(scope="module")
def shared(alone):
    with closing(SharedModel(alone)) as model:
        yield model


def requests(model):
    texts = ["The ___ boat", "My sister ___{2} the garden ___.", "It ___{3,5} at dawn, and ___", "___ rains."]
    return [model.request(text, Settings(n=n, steps=3, seed=n)) for text in texts for n in (1, 2)]


def test_answers_are_those_got_alone_and_batches_are_shared(alone, shared):
    wanted = [result_of(alone.steps(request)).best for request in requests(alone)]
    rows = []
    hook = shared.denoiser.register_forward_pre_hook(lambda _, given: rows.append(given[0].x.shape[0]))
    shared.lock.acquire()  # until all have come
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(lambda request: result_of(shared.steps(request)).best, each) for each in requests(shared)]
        shared.lock.release()
        assert [each.result(60) for each in found] == wanted
    hook.remove()
    assert set(rows) == {4}
    assert [result_of(shared.watched(each)).best for each in requests(shared)[:2]] == wanted[:2]


def test_whoever_leaves_or_fails_disturbs_nobody(alone, shared):
    good, bad, *_ = requests(shared)
    leaving = shared.steps(good)
    with shared.lock:
        next(leaving)
        leaving.close()
    wrong = replace(bad, locked=(None,) * 9)  # fails when it is answered: there are fewer fills
    with shared.lock, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(result_of, shared.steps(each)) for each in (good, wrong)]
        threading.Timer(0.2, shared.lock.release).start()
        assert futures[0].result(60).best == result_of(alone.steps(good)).best
        with pytest.raises(RuntimeError):
            futures[1].result(60)
        shared.lock.acquire()


def test_closing_cancels_what_is_under_way_and_ends_the_thread(alone):
    shared = SharedModel(alone)
    closer = threading.Thread(target=shared.close)
    with shared.lock:  # held before the first step of the first request
        under_way = [shared.steps(each) for each in requests(shared)[:2]]
        for each in under_way:
            next(each)
        closer.start()
        for _ in range(1000):
            if shared.pending.qsize() < 2:
                time.sleep(0.01)
    closer.join(60)
    for each in under_way:
        with pytest.raises(CancelledError):
            next(each)
    assert not shared.thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        result_of(shared.steps(requests(shared)[0]))


def test_a_server_is_measured(folder):
    rows = bench.measure(bench.http_server(str(folder), "cpu", 3), (1, 3), 2, 60.0)
    assert [(row["clients"], row["requests"], row["errors"], row["different_answers"]) for row in rows] == [
        (1, 2, 0, 0),
        (3, 6, 0, 0),
    ]
    assert all(0 < row["p50_s"] <= row["p95_s"] and row["per_second"] > 0 for row in rows)
    assert rows[0]["times_first"] == 1


def test_every_copy_of_a_model_fills_every_text_before_it_is_measured():
    texts = []
    target = bench.Target(lambda text: texts.append(text) or [], os.getpid(), copies=3)
    bench.measure(nullcontext(target), (1,), 2, 60.0)
    assert texts == [text for text in bench.TEXTS[:2] for _ in range(3)] + list(bench.TEXTS[:2])


# Sharing batches as on a GPU, on a machine that has no web framework.
WITHOUT_A_FRAMEWORK = """
import sys, threading
sys.modules |= dict.fromkeys(["fastapi", "pydantic", "starlette", "uvicorn", "prometheus_client"])
import ddot
from ddot.infill.engine import Shape
from ddot.serve import bench, processes, shared
class Batches(processes.WorkerPool):
    def __init__(self):
        model = shared.SharedModel(ddot.load(sys.argv[1], "cpu"), Shape(4, 32, 256))
        self.model, self.capacity, self.copies, self.workers = model, 4, 1, []
for row in bench.measure(bench.in_process(Batches, 5), (1, 5), 2, 60.0):
    print(row["clients"], row["requests"], row["errors"], row["different_answers"])
assert "batches" not in [thread.name for thread in threading.enumerate()]
"""


def test_sharing_is_measured_without_a_web_framework(folder):
    found = subprocess.run([sys.executable, "-c", WITHOUT_A_FRAMEWORK, folder], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "1 2 0 0\n5 10 0 0\n", "")
