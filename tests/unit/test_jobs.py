"""The bounded queue of the server: steps as they come, stopped between two, never more at once than allowed."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
from ddot.serve.jobs import DeadlineExceeded, JobCancelled, JobQueue, QueueFull
from ddot.serve.llama_cpp import select


def counting(to, gate=None):
    for number in range(to):
        if gate is not None:
            gate.wait(10)
        yield number
    return to


def endless(log):
    try:
        while True:
            time.sleep(0.002)
            yield None
    finally:
        log.append("closed")


def run(scenario, threads=1, max_waiting=2, time_limit=60.0):
    async def with_queue():
        queue = JobQueue(threads, max_waiting, time_limit)
        try:
            await asyncio.wait_for(scenario(queue), 20)
        finally:
            await asyncio.to_thread(queue.close)
        assert not queue.jobs

    asyncio.run(with_queue())


def test_steps_then_the_result():
    async def scenario(queue):
        job = queue.submit(counting(5))
        assert [step async for step in job.read()] == [0, 1, 2, 3, 4]
        assert await job.result() == 5
        assert await queue.submit(counting(0)).result() == 0

    run(scenario)


def test_no_more_than_allowed_and_the_event_loop_goes_on():
    async def scenario(queue):
        gate = threading.Event()
        jobs = [queue.submit(counting(3, gate)) for _ in range(3)]
        while queue.running < 1:
            await asyncio.sleep(0.001)
        assert (queue.running, queue.waiting) == (1, 2)
        with pytest.raises(QueueFull):
            queue.submit(counting(1))
        jobs[1].cancel()  # leaves the queue at once
        assert queue.waiting == 1
        with pytest.raises(JobCancelled):
            await jobs[1].result()
        late = queue.submit(counting(1))
        gate.set()
        assert [await job.result() for job in (jobs[0], jobs[2], late)] == [3, 3, 1]

    run(scenario)


def test_stopped_between_steps_and_the_thread_is_free_again():
    async def scenario(queue):
        log = []
        job = queue.submit(endless(log))
        await anext(job.read())
        job.cancel()
        with pytest.raises(JobCancelled):
            await job.result()
        assert log == ["closed"]
        assert await queue.submit(counting(2)).result() == 2

    run(scenario)


def test_mistakes_reach_whoever_reads():
    def wrong():
        yield 1
        raise ValueError("no such thing")

    async def scenario(queue):
        with pytest.raises(ValueError, match="no such thing"):
            await queue.submit(wrong()).result()
        assert await queue.submit(counting(2)).result() == 2

    run(scenario)


def test_closing_stops_what_is_at_work_and_what_waits():
    async def scenario(queue):
        log = []
        jobs = [queue.submit(endless(log)) for _ in range(3)]
        await anext(jobs[0].read())
        queue.stop()
        for job in jobs:
            with pytest.raises(JobCancelled):
                await job.result()
        with pytest.raises(JobCancelled):
            queue.submit(counting(1))

    run(scenario)


def test_late_jobs_are_told_at_once_and_leave_room():
    async def scenario(queue):
        log = []
        jobs = [queue.submit(endless(log)), queue.submit(endless(log))]
        for job in jobs:
            with pytest.raises(DeadlineExceeded, match=r"0\.2 seconds"):
                await job.result()
        while queue.jobs:
            await asyncio.sleep(0.001)
        assert log[:1] == ["closed"]

    run(scenario, time_limit=0.2)


def test_draining_finishes_what_was_begun_and_what_waits():
    async def scenario(queue):
        jobs = [queue.submit(counting(3)) for _ in range(3)]
        assert jobs[2].ahead >= 1
        queue.drain()
        with pytest.raises(JobCancelled):
            queue.submit(counting(1))
        assert [await job.result() for job in jobs] == [3, 3, 3]

    run(scenario)


def test_nobody_reading_for_long_stops_the_work():
    async def scenario(queue):
        job = queue.submit(counting(10**9))
        while queue.jobs:
            await asyncio.sleep(0.01)
        assert job.messages.qsize() < 100_000

    run(scenario)


def test_fields_are_selected_by_path():
    whole = {"a": 1, "b": {"c": 2, "d": {"e": 0}}, "f": False}
    assert select(whole, ["a", "b/c", "b/d/e", "b/x", "a/b", "", "f", "b"]) == {
        "a": 1, "b/c": 2, "b/d/e": 0, "f": False, "b": whole["b"]
    }  # fmt: skip
