"""Requests filled in processes get the answers of one; those nobody wants end; a process that dies takes one along."""

import multiprocessing
import os
import signal
import sys
import time

import pytest
from served import small_model

import ddot
from ddot.infill.scheduler import result_of
from ddot.serve.processes import Filling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ddot.load(small_model(tmp_path_factory.mktemp("processes") / "tiny"), device="cpu", threads=2)


@pytest.fixture
def filling(model):
    made = Filling(model)
    yield made
    made.close()


def fills(model, text):
    found = yield from model.steps(model.request(text))
    return [each.infill for each in found.best]


def process(model, _):
    yield []
    return os.getpid()


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


def test_answers_come_from_other_processes_and_are_the_same(model, filling):
    assert filling.at_once == 2
    first, second = (filling.start(process, None) for _ in range(2))
    next(first), next(second)
    here, there = result_of(first), result_of(second)
    assert len({here, there, os.getpid()}) == 3
    for text in ("The ___ boat", "My sister ___{2} the garden ___."):
        assert result_of(filling.start(fills, text)) == model.infill(text)
    with pytest.raises(ValueError, match="no blank"):
        result_of(filling.start(fills, "no blank"))


def test_what_nobody_wants_ends_and_mistakes_keep_their_place(filling, tmp_path):
    for number in range(4):  # more often than there are processes: each is free again
        steps = filling.start(endless, tmp_path / str(number))
        next(steps)
        steps.close()
        assert (tmp_path / str(number)).read_text() == "closed"
        with pytest.raises(ZeroDivisionError) as caught:
            result_of(filling.start(faulty, None))
        assert "in faulty" in caught.value.__notes__[0]


def test_a_process_that_dies_is_replaced_by_a_thread(model, filling):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has died"):
            result_of(filling.start(deadly, None))
    assert result_of(filling.start(process, None)) == os.getpid()
    assert result_of(filling.start(fills, "The ___ boat")) == model.infill("The ___ boat")


def test_processes_end_with_the_one_that_started_them(model):
    made = Filling(model)
    first, second = (made.start(process, None) for _ in range(2))
    next(first), next(second)
    numbers = [result_of(first), result_of(second)]
    made.close()
    end = time.monotonic() + 20
    while {each.pid for each in multiprocessing.active_children()} & set(numbers):
        assert time.monotonic() < end
        time.sleep(0.01)
