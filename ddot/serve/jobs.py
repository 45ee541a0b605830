"""Runs long jobs on a few threads behind a bounded queue, so that the event loop never blocks.

Knows nothing about texts or HTTP. A job is a generator: its steps are forwarded to a reader on the event loop, and a
cancelled job ends between two steps.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

S = TypeVar("S")
R = TypeVar("R")

_MAX_UNREAD = 2_000  # a job with more unread steps is cancelled: its client has stopped reading


class QueueFull(Exception):
    """The queue is full."""


class JobCancelled(Exception):
    """The job was cancelled before it had a result, or not accepted because the queue is shutting down."""


class DeadlineExceeded(Exception):
    """The job had no result in time."""

    def __init__(self, seconds: float):
        super().__init__(f"no result within {seconds:g} seconds")
        self.seconds = seconds


class JobQueue:
    """At most `threads` jobs run and `max_waiting` wait, each until its deadline. Used from one event loop."""

    def __init__(self, threads: int, max_waiting: int, time_limit: float = 60.0):
        self.threads, self.max_waiting, self.time_limit = threads, max_waiting, time_limit
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="filling")
        self.jobs: dict[Job[Any, Any], None] = {}  # in order of arrival
        self.draining = self.stopping = False

    @property
    def running(self) -> int:
        return sum(job.started.is_set() for job in self.jobs)

    @property
    def waiting(self) -> int:
        return len(self.jobs) - self.running

    def submit(self, steps: Generator[S, None, R]) -> "Job[S, R]":
        """Queue a job; raises `QueueFull` if the queue is full."""
        if self.draining or self.stopping:
            raise JobCancelled
        if len(self.jobs) >= self.threads + self.max_waiting:
            raise QueueFull
        job = Job(self, steps)
        self.jobs[job] = None
        job.future = self.executor.submit(job.run)
        return job

    def drain(self) -> None:
        """Accept no new jobs and finish the others. Only sets a flag: safe in a signal handler."""
        self.draining = True

    def stop(self) -> None:
        """Cancel every job before its next step and accept no more. Only sets a flag: safe in a signal handler."""
        self.stopping = True

    def close(self) -> None:
        """Stop, and wait for the threads."""
        self.stop()
        self.executor.shutdown()


class Job(Generic[S, R]):
    """A generator in the queue: its steps as they come, then its result."""

    def __init__(self, queue: JobQueue, steps: Generator[S, None, R]):
        self.queue, self.steps = queue, steps
        self.loop = asyncio.get_running_loop()
        self.messages: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.started, self.cancelled = threading.Event(), threading.Event()
        self.future: Any = None
        self.deadline = self.loop.call_later(queue.time_limit, self.cancel, DeadlineExceeded(queue.time_limit))

    def cancel(self, reason: Exception | None = None) -> None:
        """End the job before its next step; a waiting job leaves the queue at once. Its reader gets `reason` now."""
        self.cancelled.set()
        if self.future.cancel():
            self._end("error", reason or JobCancelled())
        elif reason is not None:
            self.messages.put_nowait(("error", reason))

    @property
    def ahead(self) -> int:
        """Number of jobs ahead of this one in the queue."""
        waiting = [job for job in self.queue.jobs if not job.started.is_set()]
        return waiting.index(self) if self in waiting else 0

    async def read(self) -> AsyncIterator[S]:
        """The steps as they come; afterwards `result` has the result. Errors are raised."""
        while True:
            kind, value = await self.messages.get()
            if kind == "step":
                yield value
                continue
            if kind == "error":
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
        """Run on a thread of the executor."""
        self.started.set()
        outcome: tuple[str, Any] = ("error", JobCancelled())
        try:
            while not (self.cancelled.is_set() or self.queue.stopping or self.messages.qsize() > _MAX_UNREAD):
                step = next(self.steps)
                self.loop.call_soon_threadsafe(self.messages.put_nowait, ("step", step))
            self.steps.close()
        except StopIteration as end:
            outcome = ("result", end.value)
        except Exception as error:  # passed to the reader; the thread continues with the next job
            outcome = ("error", error)
        self.loop.call_soon_threadsafe(self._end, *outcome)

    def _end(self, kind: str, value: Any) -> None:
        """Called on the event loop."""
        self.deadline.cancel()
        self.queue.jobs.pop(self, None)
        self.messages.put_nowait((kind, value))
