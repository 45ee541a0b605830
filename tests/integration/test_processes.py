"""Requests filled in processes get the answers of one; those nobody wants end; a process that dies takes few along."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch
from served import LONG, Served, small_model

import ddot
from ddot.infill.engine import GPU, Shape
from ddot.infill.model import Model
from ddot.infill.passes import shared_work
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings
from ddot.serve import processes
from ddot.serve.processes import Spawner, WorkerPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
SHAPE = Shape(4, 32, 256)  # of the batches in processes that are spawned, as for a GPU
TEXTS = ("The ___ boat", "My sister ___{2} the garden ___.", "It ___{3,5} at dawn, and ___", "___ rains.")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ddot.load(small_model(tmp_path_factory.mktemp("processes") / "tiny"), device="cpu", threads=2)


@pytest.fixture
def pool(model):
    made = WorkerPool(model)
    yield made
    made.close()


@pytest.fixture(scope="module")
def writing(tmp_path_factory):
    """The folder of a model that writes, as the embedded one does: requests share a continuous batch."""
    return small_model(tmp_path_factory.mktemp("spawned") / "tiny", writes=True)


@pytest.fixture(scope="module")
def spawned(writing):
    model = ddot.load(writing, device="cpu")
    model.name = "named here"
    with closing(WorkerPool(model, Spawner(partial(ddot.load, writing, "cpu"), 2, SHAPE))) as made:
        yield made


def fills(model, text, **settings):
    found = yield from model.steps(model.request(text, Settings(**settings)))
    return [each.infill for each in found.best]


def long(model, _):
    yield []
    return (yield from fills(model, **{name: LONG[name] for name in ("text", "n", "temperature")}))


def process(model, _):
    yield [os.getpid()]
    return os.getpid()


def about(model, _):
    """What holds in the process."""
    yield []
    frameworks = {"fastapi", "pydantic", "starlette", "uvicorn"} & set(sys.modules)
    deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return model.name, sorted(frameworks), deaf, os.getpgrp() == os.getpid()


def busy(model, _):
    yield []
    return shared_work(model.engine).busy


def endless(model, path):
    try:
        while True:
            yield []
    finally:
        path.write_text("closed")


def deadly(model, _):
    yield []
    os.kill(os.getpid(), signal.SIGKILL)


def faulty(model, _):
    yield []
    raise ZeroDivisionError("nothing to divide by")


def no_model():
    os.kill(os.getpid(), signal.SIGKILL)


def eventually(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_ended(number):
    """Whether a process is gone, or only waits to be asked for its status."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_answers_come_from_other_processes_and_are_the_same(model, pool):
    assert pool.capacity == 2
    first, second = (pool.steps(process, None) for _ in range(2))
    next(first), next(second)
    here, there = result_of(first), result_of(second)
    assert len({here, there, os.getpid()}) == 3
    for text in ("The ___ boat", "My sister ___{2} the garden ___."):
        assert result_of(pool.steps(fills, text)) == model.infill(text)
    with pytest.raises(ValueError, match="no blank"):
        result_of(pool.steps(fills, "no blank"))


def test_what_nobody_wants_ends_and_mistakes_keep_their_place(pool, tmp_path):
    for number in range(4):  # more often than there are processes: each is free again
        steps = pool.steps(endless, tmp_path / str(number))
        next(steps)
        steps.close()
        assert (tmp_path / str(number)).read_text() == "closed"
        with pytest.raises(ZeroDivisionError) as caught:
            result_of(pool.steps(faulty, None))
        assert "in faulty" in caught.value.__notes__[0]


def test_a_process_that_dies_is_replaced_by_a_thread(model, pool):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has died"):
            result_of(pool.steps(deadly, None))
    assert result_of(pool.steps(process, None)) == os.getpid()
    assert result_of(pool.steps(fills, "The ___ boat")) == model.infill("The ___ boat")


def missing_file(model, _):
    yield None
    raise FileNotFoundError("not there")


def cannot_travel(model, _):
    yield None
    return lambda: None


def test_a_request_that_fails_with_an_os_error_does_not_cost_its_worker(pool):
    for _ in range(4):  # more often than there are processes
        with pytest.raises(FileNotFoundError, match="not there"):
            result_of(pool.steps(missing_file, None))
    assert result_of(pool.steps(process, None)) != os.getpid()
    assert not any(worker.lost for worker in pool.workers)


def test_errors_of_a_request_are_told_and_the_next_one_is_answered(model):
    """Also those that look like a broken connection, and replies that cannot be sent."""
    here, there = multiprocessing.Pipe()
    thread = threading.Thread(target=processes._serve_requests, args=(model, there), daemon=True)
    thread.start()
    for fill, wanted in ((missing_file, FileNotFoundError), (cannot_travel, RuntimeError), (about, None)):
        here.send((fill, None))
        reply = here.recv()
        while reply[0] == "step":
            reply = here.recv()
        assert reply[0] == ("result" if wanted is None else "error")
        assert wanted is None or isinstance(reply[1], wanted)
    here.close()
    thread.join(10)
    assert not thread.is_alive()


def test_processes_end_with_the_one_that_started_them(model):
    made = WorkerPool(model)
    first, second = (made.steps(process, None) for _ in range(2))
    next(first), next(second)
    numbers = [result_of(first), result_of(second)]
    made.close()
    assert not {each.pid for each in multiprocessing.active_children()} & set(numbers)


def test_spawned_processes_answer_as_one_alone_several_requests_at_a_time(writing, spawned):
    assert (spawned.capacity, spawned.copies) == (8, 2)
    model = ddot.load(writing, device="cpu")
    alone = Model(model.denoiser, model.tokenizer, shape=SHAPE)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(result_of, spawned.steps(fills, text)) for text in TEXTS * 2]
        assert [each.result(60) for each in found] == [result_of(fills(alone, text)) for text in TEXTS] * 2
    with pytest.raises(ValueError, match="no blank"):
        result_of(spawned.steps(fills, "no blank"))
    with pytest.raises(ZeroDivisionError):
        result_of(spawned.steps(faulty, None))
    assert result_of(spawned.steps(about, None)) == ("named here", [], True, True)


def test_spawned_processes_get_as_many_requests_each(spawned):
    under_way = [spawned.steps(process, None) for _ in range(6)]
    where = [next(each)[0] for each in under_way]
    assert sorted(Counter(where).values()) == [3, 3]
    assert os.getpid() not in where
    ended = [each for each, number in zip(under_way, where, strict=True) if number == where[0]]
    assert {result_of(each) for each in ended} == {where[0]}
    again = [spawned.steps(process, None) for _ in range(3)]
    assert {next(each)[0] for each in again} == {where[0]}
    for each in (*under_way, *again):
        each.close()


def test_what_nobody_wants_ends_in_spawned_processes(spawned, tmp_path):
    for number in range(9):  # more often than there are connections
        steps = spawned.steps(endless, tmp_path / str(number))
        next(steps)
        steps.close()
        assert (tmp_path / str(number)).read_text() == "closed"
    under_way = [spawned.steps(long, None) for _ in range(2)]
    for each in under_way:
        next(each)
        next(each)  # a quarter of a second later
        each.close()
    eventually(lambda: not any(result_of(spawned.steps(busy, None)) for _ in range(2)))


def test_a_spawned_process_that_dies_leaves_its_requests_to_the_others(writing, tmp_path):
    model = ddot.load(writing, device="cpu")
    with closing(WorkerPool(model, Spawner(partial(ddot.load, writing, "cpu"), 2, Shape(2, 32, 256)))) as made:
        first, second = (made.steps(endless, tmp_path / name) for name in ("first", "second"))
        next(first), next(second)
        third = made.steps(process, None)
        dead = next(third)[0]
        os.kill(dead, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="has died"):
            result_of(first)
        third.close()
        next(second), second.close()
        assert (tmp_path / "second").read_text() == "closed"
        left = {result_of(made.steps(process, None)) for _ in range(5)}
        assert len(left) == 1
        assert dead not in left
        assert result_of(made.steps(fills, "___ rains.")) != []
        with pytest.raises(RuntimeError, match="has died"):
            result_of(made.steps(deadly, None))
        with pytest.raises(RuntimeError, match="start the server again"):
            result_of(made.steps(process, None))
    assert {dead, *left}.isdisjoint(each.pid for each in multiprocessing.active_children())


def test_processes_that_cannot_start_are_told_of(writing, monkeypatch):
    before = set(multiprocessing.active_children())
    with pytest.raises(ChildProcessError, match="exit status -9"):
        WorkerPool(ddot.load(writing, device="cpu"), Spawner(no_model, 1, SHAPE))
    # As if there were a GPU, which the processes do not find.
    monkeypatch.setattr(processes, "device_of", torch.device)
    loaded = []
    with pytest.raises(ValueError, match="there is no cuda:1 here"):
        processes.open_pool(
            lambda name, device: loaded.append(device) or ddot.load(name, device), str(writing), "cuda:1", 2
        )
    assert loaded == ["cpu"]
    assert set(multiprocessing.active_children()) == before


def test_a_gpu_is_shared_by_processes_and_a_cpu_has_one_for_each_core(writing, monkeypatch):
    with pytest.raises(ValueError, match="leave it out"):
        processes.open_pool(ddot.load, str(writing), "cpu", 2)
    plain = processes.open_pool(ddot.load, str(writing), "cpu", None)
    assert (plain.model.name, plain.workers, plain.copies) == ("tiny", [], 1)
    asked = []
    monkeypatch.setattr(processes, "WorkerPool", lambda _, spawn: asked.append(spawn))
    monkeypatch.setattr(processes, "device_of", lambda _: torch.device("cuda"))
    for many in (None, 3):
        processes.open_pool(lambda name, _: ddot.load(name, "cpu"), str(writing), None, many)
    assert [(spawn.processes, spawn.shape.rows, spawn.capacity) for spawn in asked] == [(2, 32, 64), (3, 22, 66)]
    assert {spawn.shape.logit_chunk for spawn in asked} == {GPU.logit_chunk}


class ServedFromProcesses(Served):
    """A server as it would be on a GPU, in a group of its own."""

    program = (
        "-c",
        """
import os, sys
from functools import partial
import ddot
from ddot.infill.engine import Shape
from ddot.serve import ServerSettings, serve
from ddot.serve.processes import Spawner, WorkerPool
os.setpgrp()
load = partial(ddot.load, sys.argv[1], "cpu")
serve(lambda: WorkerPool(load(), Spawner(load, 1, Shape(2, 32, 256))), ServerSettings(port=0))
""",
    )

    @property
    def workers(self):
        return [
            int(each) for each in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_finishes_what_is_at_work_and_leaves_no_process(writing, how):
    server, replies = ServedFromProcesses(writing), []
    workers = server.workers
    assert workers
    body = {"text": "The boat ___{2} and " * 10, "n": 2}
    asking = threading.Thread(target=lambda: replies.append(server.ask("POST", "/v1/infill", body)[0]))
    if how == signal.SIGTERM:
        asking.start()
        eventually(lambda: server.health()["at_work"])
    os.killpg(server.process.pid, how)
    out, said = server.process.communicate(timeout=30)
    if how == signal.SIGTERM:
        asking.join(20)
        assert (replies, server.process.returncode, out, said) == ([200], 0, "", "ddot: stopped\n")
    eventually(lambda: all(map(has_ended, workers)))
