"""A model in several processes: on a CPU one for each core and request, on a GPU a few that fill many requests each.

Threads of one process contend for the interpreter lock at every torch operation: on two idle cores two threads did 1.35
times the work of one, two processes 1.74 times. On a CPU processes are forked after the model is loaded and share its
weights. A GPU waits half of the time for the one thread that drives it, and CUDA cannot be forked: there processes are
spawned, and each loads the model, drives batches of its own (`serve.shared`), and serves many connections, a thread
each.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import torch

from ddot.infill.engine import GPU, Shape
from ddot.infill.model import Model, load
from ddot.network.devices import device_of
from ddot.network.places import find
from ddot.serve import check_processes
from ddot.serve.shared import Shared

A = TypeVar("A")
S = TypeVar("S")
R = TypeVar("R")
Fill = Callable[[Model, A], Generator[S, None, R]]  # steps that lead to the reply to a request

_ON_A_GPU = 2  # processes, unless told otherwise
_PATIENCE = 10.0  # seconds for processes to end by themselves
_DYING = 1.0  # seconds for one that was killed


def processes_on(device: torch.device, processes: int | None) -> int:
    """How many processes load the model for this device."""
    check_processes(processes, str(device))
    return processes or (_ON_A_GPU if device.type == "cuda" else 1)


def filling(
    load_here: Callable[[str | None, str], Model], name: str | None, device: str | None, processes: int | None
) -> "Filling":
    """Where requests are filled with a model on a device; `processes` is for a GPU.

    If several processes load the model, the one here is on the CPU: it only tells mistakes in requests.
    """
    where = device_of(device)
    many = processes_on(where, processes)
    model = load_here(name, str(where) if many == 1 else "cpu")
    model.name = Path(model.name).name if Path(model.name).is_dir() else model.name  # clients see no paths
    if many == 1:
        return Filling(model)
    share = replace(GPU, rows=-(-GPU.rows // many))  # a pass takes longer with more rows, idle ones too
    return Filling(model, Spawn(partial(load, find(name), str(where)), many, share))


class Filling:
    """Where requests are filled: in processes that are spawned, in a batch on a GPU, in a process a core on a CPU, or
    else in this process.

    `at_once`: how many at a time. `copies`: processes with a model of their own. Made before there are other threads;
    used from one thread for each request.
    """

    def __init__(self, model: Model, spawn: "Spawn | None" = None):
        self.model, self.at_once, self.copies = model, model.threads, 1
        self.workers: list[Worker] = []
        replacement: Callable[[], Here] | None = partial(Here, model)
        if spawn is not None:
            self.at_once, self.copies, replacement = spawn.at_once, spawn.processes, None
            self.workers = spawn.started(model.name)
        elif model.device.type == "cuda":
            self.model, self.at_once = Shared(model), model.engine.shape.rows
        elif model.device.type == "cpu" and sys.platform == "linux" and self.at_once > 1:
            self.workers = [_forked(model) for _ in range(self.at_once)]
        self.idle = Idle(self.workers, replacement)

    def start(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        """The steps of `fill` with the model. Mistakes are raised at once."""
        steps = fill(self.model, request)
        return self._elsewhere(fill, request) if self.workers else steps

    def _elsewhere(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        worker = self.idle.take()
        try:
            return (yield from worker.steps(fill, request))
        finally:
            self.idle.put(worker)

    def close(self) -> None:
        """End the processes, and the batch of this one."""
        _end(self.workers, _PATIENCE)
        if isinstance(self.model, Shared):
            self.model.close()


class Here:
    """Fills a request in this process, in the thread that asks: what replaces a process that has died."""

    lives = True

    def __init__(self, model: Model):
        self.model, self.process = model, self

    def steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        return fill(self.model, request)


class Worker:
    """A connection to a process, over which it answers one request at a time."""

    def __init__(self, process: BaseProcess, connection: Connection):
        self.process, self.connection, self.lost = process, connection, False

    @property
    def lives(self) -> bool:
        """Whether the process is there. Without a request it sends nothing, but its end can be read."""
        try:
            return not self.lost and not self.connection.poll()
        except OSError:
            return False

    def steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        """The steps that the process tells of; to stop reading them is to stop its work."""
        what = ""
        try:
            self.connection.send((fill, request))
            while True:
                what, value = self.connection.recv()
                if what == "step":
                    yield value
                elif what == "error":
                    raise value
                else:
                    return value
        except (EOFError, OSError):
            self.lost = True
            self.process.join(_DYING)  # until its other connections are closed too
            raise RuntimeError("a worker process has died; the others continue") from None
        finally:
            if what == "step" and not self.lost:
                self._cancel()

    def _cancel(self) -> None:
        try:
            self.connection.send(None)
            while self.connection.recv()[0] == "step":
                pass
        except (EOFError, OSError):
            self.lost = True


class Idle:
    """Workers that wait for a request. One whose process has died is replaced if there is a replacement."""

    def __init__(self, workers: Sequence[Worker], replacement: Callable[[], Here] | None):
        self.workers: list[Worker | Here] = list(workers)
        self.living, self.replacement, self.changed = len(workers), replacement, threading.Condition()

    def take(self) -> Worker | Here:
        """Wait for a worker: of the process with the most idle ones, so that all do as much, the longest idle one."""
        with self.changed:
            while True:
                self.changed.wait_for(lambda: self.workers or not self.living)
                if not self.living:
                    raise RuntimeError("all worker processes have died; start the server again")
                idle = Counter(worker.process for worker in self.workers)
                worker = max(self.workers, key=lambda each: idle[each.process])
                self.workers.remove(worker)
                if worker.lives:
                    return worker
                self.put(worker)

    def put(self, worker: Worker | Here) -> None:
        """Let a worker wait for its next request."""
        with self.changed:
            if worker.lives:
                self.workers.append(worker)
            elif self.replacement is not None:
                self.workers.append(self.replacement())
            else:
                self.living -= 1
            self.changed.notify_all()


@dataclass(frozen=True)
class Spawn:
    """Processes that load a model each and fill as many requests at once as the shape of their batches has rows.

    `load` is sent to them.
    """

    load: Callable[[], Model]
    processes: int
    shape: Shape

    @property
    def at_once(self) -> int:
        return self.processes * self.shape.rows

    def started(self, name: str) -> list[Worker]:
        """Start them side by side, and wait until all have loaded the model, which gets this name."""
        of_processes: list[list[Worker]] = []
        try:
            with _interrupts_blocked():
                for _ in range(self.processes):
                    of_processes.append(_spawned(partial(_serve, self.load, name, self.shape), self.shape.rows))
            for workers in of_processes:
                _await(workers[0])
        except BaseException:
            _end(chain(*of_processes), 0.0)
            raise
        return [worker for each in zip(*of_processes, strict=True) for worker in each]  # they take turns


def _spawned(serve: Callable[[list[Connection]], None], connections: int) -> list[Worker]:
    """The workers of a process that is spawned, a connection each."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(connections)]
    process = context.Process(target=serve, args=([there for _, there in pipes],), daemon=True)
    process.start()
    for _, there in pipes:
        there.close()
    return [Worker(process, here) for here, _ in pipes]


def _forked(model: Model) -> Worker:
    """The worker of a process that is forked, with the model as it is."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_serve_one, args=(model, here, there), daemon=True)
    process.start()
    there.close()
    return Worker(process, here)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that are started inside never hear Ctrl-C, which is for the server; it hears it afterwards."""
    resource_tracker.ensure_running()  # started with the first process, it would unblock them (before Python 3.12)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _await(worker: Worker) -> None:
    """Wait until a process has loaded the model; its error is raised here."""
    try:
        what, value = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(_PATIENCE)
        raise ChildProcessError(
            f"a worker process ended before it had loaded the model (exit status {worker.process.exitcode}); is there "
            "memory for another? Try fewer --processes"
        ) from None
    if what == "error":
        raise value


def _end(workers: Iterable[Worker], seconds: float) -> None:
    """Close connections, and let the processes that read them end within so many seconds."""
    workers, due = list(workers), time.monotonic() + seconds
    for worker in workers:
        worker.connection.close()
    for process in dict.fromkeys(worker.process for worker in workers):
        process.join(max(0.0, due - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()


def _serve(load: Callable[[], Model], name: str, shape: Shape, connections: list[Connection]) -> None:
    """In a process that was spawned: load the model, say so, and serve all connections until they are closed."""
    _set_apart()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the process that started this one has given them
            model = load()
    except Exception as error:
        return _tell(connections[0], "error", _noted(error))
    model.name = name
    with closing(Shared(model, shape)) as shared:
        _tell(connections[0], "ready")
        threads = [threading.Thread(target=_work, args=(shared, each)) for each in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _tell(here: Connection, what: str, value: Any = None) -> None:
    with suppress(OSError):  # whoever started this process has given up
        here.send((what, value))


def _serve_one(model: Model, there: Connection, here: Connection) -> None:
    """In a process that was forked, where both ends of its pipe are open."""
    there.close()
    _set_apart()
    _work(model, here)


def _set_apart() -> None:
    os.setpgrp()  # signals to the group, such as Ctrl-C, are for the server, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)


def _work(model: Model, here: Connection) -> None:
    """Serve requests until the other end is closed. A message during a request ends it before its next step."""
    with here, suppress(EOFError, OSError):
        while True:
            if (task := here.recv()) is not None:
                reply = _done(task[0], task[1], model, here)
                try:
                    here.send(reply)
                except (TypeError, AttributeError, pickle.PicklingError) as error:  # it cannot travel
                    here.send(("error", RuntimeError(f"{error!r}, in a reply of {reply[1]!r}")))


def _done(fill: "Fill[A, S, R]", request: A, model: Model, here: Connection) -> tuple[str, Any]:
    """The last message about a request. Errors of the connection are raised: whoever asked is gone."""
    steps: Generator[S, None, R] | None = None
    while not here.poll():
        try:
            steps = steps or fill(model, request)
            step = next(steps)
        except StopIteration as end:
            return "result", end.value
        except Exception as error:
            return "error", _noted(error)
        here.send(("step", step if isinstance(step, list) else None))  # states stay here
    if steps is not None:
        steps.close()
    return "stopped", None


def _noted(error: Exception) -> Exception:
    """An error with its traceback, which does not travel by itself, unless it is a mistake of the user's."""
    if not isinstance(error, ValueError | OSError):
        error.add_note(traceback.format_exc())
    return error
