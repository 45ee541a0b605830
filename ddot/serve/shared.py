"""A model on a GPU, where requests that come at the same time share batches.

One thread takes all requests that wait, up to a batch, and fills them together; rows have a fixed shape there, so each
answer is the one it would get alone. A request whose states are watched is filled by itself, between the others' steps.
"""

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress

from ddot.infill import answers
from ddot.infill.answers import Answers, Request
from ddot.infill.engine import Step, Steps
from ddot.infill.model import Model
from ddot.infill.scheduler import inside, result_of

_LOOK = 0.25  # seconds between checks whether a request was cancelled, in each of up to 64 threads

_GATHER = 0.03  # seconds to wait for another request after a batch: clients answered together ask again together

Waiting = tuple[Request, "Future[Answers]"]


class Shared(Model):
    """The model with a queue. Each request uses it from its own thread."""

    def __init__(self, model: Model):
        super().__init__(model.denoiser, model.tokenizer, model.name, model.threads, model.engine.shape)
        self.lock = threading.Lock()
        self.waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="batches").start()

    def steps(self, request: Request) -> Steps[Answers]:
        """The answers to a request, computed in a batch with others; closing the generator leaves the queue."""
        future: Future[Answers] = Future()
        self.waiting.put((request, future))
        try:
            while True:
                try:
                    return future.result(_LOOK)
                except TimeoutError:
                    yield Step()
        finally:
            future.cancel()

    def watched(self, request: Request) -> Steps[Answers]:
        """As `Model.steps`: every step with its states."""
        return inside(lambda: self.lock, super().steps(request))

    def _work(self) -> None:
        busy = False
        while True:
            batch = [self.waiting.get()]
            with suppress(queue.Empty):
                while len(batch) < self.engine.shape.rows:
                    batch.append(self.waiting.get(timeout=_GATHER) if busy else self.waiting.get_nowait())
            busy = len(batch) > 1
            self._fill([each for each in batch if each[1].set_running_or_notify_cancel()])

    def _fill(self, batch: list[Waiting]) -> None:
        """Fill requests together; if that fails, one by one, so that only the faulty one fails."""
        steps = inside(self._computing, answers.answers([request for request, _ in batch], self.engine))
        try:
            found = result_of(inside(lambda: self.lock, steps)) if batch else []
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                for each in batch:
                    self._fill([each])
            return
        for (_, future), answer in zip(batch, found, strict=True):
            future.set_result(answer)
