"""A model on a GPU whose concurrent requests share forward passes.

One thread runs all requests in turn, a step each. If the model writes its blanks, a request runs on its own and joins
the continuous batch of `infill.passes` as soon as it arrives; with other models, the requests that wait are filled
together. Batches have a fixed shape, so an answer is the same alone and among others.
"""

import queue
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from ddot.infill import answers
from ddot.infill.answers import Answers
from ddot.infill.engine import Shape, Step, Steps
from ddot.infill.model import Model
from ddot.infill.request import Request
from ddot.infill.scheduler import chunks, inside

_POLL = 0.25  # seconds between checks whether a request is still wanted, on up to 64 threads

Pending = tuple[Request, "Future[Answers]"]
Running = tuple[Steps[list[Answers]], list[Pending]]


class SharedModel(Model):
    """A copy of a model, with its own batch shape if one is given. Use it from one thread per request."""

    def __init__(self, model: Model, shape: Shape | None = None):
        super().__init__(model.denoiser, model.tokenizer, model.name, model.threads, shape or model.engine.shape)
        self.lock = threading.Lock()
        self.pending: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True, name="batches")
        self.thread.start()

    def close(self) -> None:
        """Cancel all requests and wait for the thread: the interpreter aborts if it exits during a computation."""
        self.pending.put(None)
        self.thread.join()

    def steps(self, request: Request) -> Steps[Answers]:
        """The answers to a request, computed together with others. Closing this generator cancels it."""
        future: Future[Answers] = Future()
        self.pending.put((request, future))
        try:
            while True:
                try:
                    return future.result(_POLL)
                except TimeoutError:
                    if not self.thread.is_alive():
                        raise RuntimeError("the model is closed and fills no more requests") from None
                    yield Step()
        finally:
            future.cancel()

    def watched(self, request: Request) -> Steps[Answers]:
        """As `Model.watched`: computed alone."""
        return inside(lambda: self.lock, super().watched(request))

    def located(self, request: Request) -> Steps[Request]:
        return inside(lambda: self.lock, super().located(request))

    def _run(self) -> None:
        running: list[Running] = []
        while True:
            arrived = [] if running else [self.pending.get()]
            while not self.pending.empty():
                arrived.append(self.pending.get())
            requests = [pending for pending in arrived if pending is not None]
            together = 1 if self.engine.writes_left_to_right else self.engine.shape.rows
            running += map(self._start, chunks(requests, together))
            if len(requests) < len(arrived):
                return _cancel(running)
            with self._computing():
                running = [following for current in running for following in self._advance(current)]

    def _start(self, group: list[Pending]) -> Running:
        return answers.answer_requests([request for request, _ in group], self.engine), group

    def _advance(self, running: Running) -> list[Running]:
        """Run one step; returns what is left to run. If a group fails, its requests are retried one by one."""
        steps, group = running
        try:
            with self.lock:
                if all(future.cancelled() for _, future in group):
                    steps.close()
                    return []
                next(steps)
            return [running]
        except StopIteration as end:
            for (_, future), result in zip(group, end.value, strict=True):
                with suppress(InvalidStateError):  # cancelled
                    future.set_result(result)
        except Exception as error:
            if len(group) > 1:
                return [self._start([pending]) for pending in group]
            with suppress(InvalidStateError):
                group[0][1].set_exception(error)
        return []


def _cancel(running: list[Running]) -> None:
    for steps, group in running:
        steps.close()
        for _, future in group:
            future.cancel()
