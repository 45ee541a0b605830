"""A model on a CPU in several processes, one request in each.

Threads of one process contend for the interpreter lock at every torch operation: on two idle cores two threads did 1.35
times the work of one, two processes 1.74 times. Processes are forked after the model is loaded and share its weights.
"""

import multiprocessing
import os
import queue
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from ddot.infill.model import Model
from ddot.serve.shared import Shared

A = TypeVar("A")
S = TypeVar("S")
R = TypeVar("R")
Fill = Callable[[Model, A], Generator[S, None, R]]  # steps that lead to the reply to a request


class Filling:
    """Where requests are filled: in a batch on a GPU, in a process a core on a CPU, or else in this process.

    `at_once`: how many at a time. Made before there are other threads; used from one thread for each request.
    """

    def __init__(self, model: Model):
        on_gpu = model.device.type == "cuda"
        self.model = Shared(model) if on_gpu else model
        self.at_once = model.engine.shape.rows if on_gpu else model.threads
        self.free: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self.workers: list[Connection] = []
        forks = model.device.type == "cpu" and sys.platform == "linux" and self.at_once > 1
        for _ in range(self.at_once if forks else 0):
            self._fork()

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        context.Process(target=_work, args=(self.model, here, there), daemon=True).start()
        there.close()
        self.workers.append(here)
        self.free.put(here)

    def start(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        """The steps of `fill` with the model. Mistakes are raised at once."""
        steps = fill(self.model, request)
        return self._elsewhere(fill, request) if self.workers else steps

    def _elsewhere(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        worker = self.free.get()
        if worker is None:  # one that died is replaced by a thread
            try:
                return (yield from fill(self.model, request))
            finally:
                self.free.put(None)
        what = ""
        try:
            worker.send((fill, request))
            while True:
                what, value = worker.recv()
                if what == "step":
                    yield value
                elif what == "error":
                    raise value
                else:
                    return value
        except (EOFError, OSError):
            worker = None
            raise RuntimeError("a worker process has died; the others continue") from None
        finally:
            if worker is not None and what == "step":  # cancelled
                worker.send(None)
                while worker.recv()[0] == "step":
                    pass
            self.free.put(worker)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if isinstance(self.model, Shared):
            self.model.close()


def _work(model: Model, there: Connection, here: Connection) -> None:
    """Serve requests until the other end is closed. A message during a request ends it before its next step."""
    there.close()
    os.setpgrp()  # signals to the group, such as Ctrl-C, are for the server, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    try:
        while True:
            if (task := here.recv()) is not None:
                here.send(_done(task[0], task[1], model, here))
    except (EOFError, OSError):
        return


def _done(fill: "Fill[A, S, R]", request: A, model: Model, here: Connection) -> tuple[str, Any]:
    steps = fill(model, request)
    try:
        while not here.poll():
            step = next(steps)
            here.send(("step", step if isinstance(step, list) else None))  # states stay here
        steps.close()
        return "stopped", None
    except StopIteration as end:
        return "result", end.value
    except (EOFError, OSError):
        raise
    except Exception as error:
        if not isinstance(error, ValueError):
            error.add_note(traceback.format_exc())  # does not travel by itself
        return "error", error
