"""Runs long jobs on a few threads behind a bounded queue, so that the event loop never blocks.

Knows nothing about texts or HTTP: a job is a generator whose steps are passed on as they come, and a cancelled job ends
between two of them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

S = TypeVar("S")
R = TypeVar("R")

_UNREAD = 2_000  # a job with more unread steps is cancelled: its client has stopped reading


class Full(Exception):
    """The queue is full."""


class Stopped(Exception):
    """The job was stopped before it had a result."""


class Late(Exception):
    """The job had no result in time."""

    def __init__(self, seconds: float):
        super().__init__(f"no result within {seconds:g} seconds")
        self.seconds = seconds


class Work:
    """Up to `threads` jobs at work, up to `queue` waiting, none longer than `seconds`. Used from one event loop."""

    def __init__(self, threads: int, queue: int, seconds: float = 60.0):
        self.threads, self.queue, self.seconds = threads, queue, seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="filling")
        self.jobs: dict[Job[Any, Any], None] = {}  # in the order they came
        self.draining = self.closing = False

    @property
    def at_work(self) -> int:
        return sum(job.begun.is_set() for job in self.jobs)

    @property
    def waiting(self) -> int:
        return len(self.jobs) - self.at_work

    def start(self, steps: Generator[S, None, R]) -> "Job[S, R]":
        """Queue a job; raises `Full` if the queue is full."""
        if self.draining or self.closing:
            raise Stopped
        if len(self.jobs) >= self.threads + self.queue:
            raise Full
        job = Job(self, steps)
        self.jobs[job] = None
        job.future = self.pool.submit(job.run)
        return job

    def drain(self) -> None:
        """Accept no new jobs and finish the others. Only sets a flag: safe in a signal handler."""
        self.draining = True

    def stop(self) -> None:
        """End every job before its next step and start no more. Only sets a flag: safe in a signal handler."""
        self.closing = True

    def close(self) -> None:
        """Stop, and wait for the threads."""
        self.stop()
        self.pool.shutdown(cancel_futures=False)


class Job(Generic[S, R]):
    """One piece of work: its steps as they come, then its result."""

    def __init__(self, work: Work, steps: Generator[S, None, R]):
        self.work, self.steps = work, steps
        self.loop = asyncio.get_running_loop()
        self.told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.begun, self.stopped = threading.Event(), threading.Event()
        self.future: Any = None
        self.due = self.loop.call_later(work.seconds, self.stop, Late(work.seconds))

    def stop(self, why: Exception | None = None) -> None:
        """End it before its next step and notify its reader now. A waiting job leaves the queue at once."""
        self.stopped.set()
        if self.future.cancel():
            self._end("error", why or Stopped())
        elif why is not None:
            self.told.put_nowait(("error", why))

    @property
    def ahead(self) -> int:
        """Number of jobs ahead of it in the queue."""
        waiting = [job for job in self.work.jobs if not job.begun.is_set()]
        return waiting.index(self) if self in waiting else 0

    async def read(self) -> AsyncIterator[S]:
        """The steps as they come; afterwards `result` has the result. Errors are raised."""
        while True:
            what, value = await self.told.get()
            if what == "step":
                yield value
                continue
            if what == "error":
                raise value
            self._result: R = value
            return

    async def result(self) -> R:
        """Wait for the result."""
        if not hasattr(self, "_result"):
            async for _ in self.read():
                pass
        return self._result

    def run(self) -> None:
        """Run on a thread of the pool."""
        self.begun.set()
        end: tuple[str, Any] = ("error", Stopped())
        try:
            while not (self.stopped.is_set() or self.work.closing or self.told.qsize() > _UNREAD):
                step = next(self.steps)
                self.loop.call_soon_threadsafe(self.told.put_nowait, ("step", step))
            self.steps.close()
        except StopIteration as done:
            end = ("result", done.value)
        except Exception as error:  # passed to the reader; the thread continues with the next job
            end = ("error", error)
        self.loop.call_soon_threadsafe(self._end, *end)

    def _end(self, what: str, value: Any) -> None:
        """Called on the event loop."""
        self.due.cancel()
        self.work.jobs.pop(self, None)
        self.told.put_nowait((what, value))
