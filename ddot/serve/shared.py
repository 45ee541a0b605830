"""A model on a GPU, where requests that come at the same time share the passes of the network.

One thread takes turns at all that is under way, a step each. Where blanks are written, every request is under way by
itself and joins the continuous batch of `infill.passes` when it comes; with other models, those that wait are filled
together. Rows have a fixed shape, so each answer is the one it would get alone.
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

_LOOK = 0.25  # seconds between looks at whether a request is still wanted: 64 threads look

Waiting = tuple[Request, "Future[Answers]"]
UnderWay = tuple[Steps[list[Answers]], list[Waiting]]


class Shared(Model):
    """The same model, in batches of a shape of its own if one is given. Use it from one thread for each request."""

    def __init__(self, model: Model, shape: Shape | None = None):
        super().__init__(model.denoiser, model.tokenizer, model.name, model.threads, shape or model.engine.shape)
        self.lock = threading.Lock()
        self.waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self.worker = threading.Thread(target=self._work, daemon=True, name="batches")
        self.worker.start()

    def close(self) -> None:
        """Cancel what is under way and wait for the thread: an interpreter that exits while it computes aborts."""
        self.waiting.put(None)
        self.worker.join()

    def steps(self, request: Request) -> Steps[Answers]:
        """The answers to a request, computed with those of others; to stop reading is to leave."""
        future: Future[Answers] = Future()
        self.waiting.put((request, future))
        try:
            while True:
                try:
                    return future.result(_LOOK)
                except TimeoutError:
                    if not self.worker.is_alive():
                        raise RuntimeError("the model is closed; nothing more is filled with it") from None
                    yield Step()
        finally:
            future.cancel()

    def watched(self, request: Request) -> Steps[Answers]:
        """As `Model.watched`: computed alone."""
        return inside(lambda: self.lock, super().watched(request))

    def located(self, request: Request) -> Steps[Request]:
        return inside(lambda: self.lock, super().located(request))

    def _work(self) -> None:
        under_way: list[UnderWay] = []
        while True:
            come = [] if under_way else [self.waiting.get()]
            while not self.waiting.empty():
                come.append(self.waiting.get())
            wanted = [each for each in come if each is not None]
            under_way += map(self._begun, chunks(wanted, 1 if self.engine.writes else self.engine.shape.rows))
            if len(wanted) < len(come):
                return _cancel(under_way)
            with self._computing():
                under_way = [next_one for each in under_way for next_one in self._stepped(each)]

    def _begun(self, group: list[Waiting]) -> UnderWay:
        return answers.answers([request for request, _ in group], self.engine), group

    def _stepped(self, each: UnderWay) -> list[UnderWay]:
        """Do a step; what there is to do after it. Of several that fail, only the one at fault fails by itself."""
        steps, group = each
        try:
            with self.lock:
                if all(future.cancelled() for _, future in group):
                    steps.close()
                    return []
                next(steps)
            return [each]
        except StopIteration as end:
            for (_, future), found in zip(group, end.value, strict=True):
                with suppress(InvalidStateError):  # nobody wants it any more
                    future.set_result(found)
        except Exception as error:
            if len(group) > 1:
                return [self._begun([one]) for one in group]
            with suppress(InvalidStateError):
                group[0][1].set_exception(error)
        return []


def _cancel(under_way: list[UnderWay]) -> None:
    for steps, group in under_way:
        steps.close()
        for _, future in group:
            future.cancel()
