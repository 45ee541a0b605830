"""Worker processes that fill requests: one per core on a CPU, a few that fill many requests each on a GPU.

Threads of one process contend for the interpreter lock at every torch operation: on two idle cores two threads did 1.35
times the work of one, two processes 1.74 times. On a CPU, processes are forked after the model is loaded and share its
weights. A GPU is idle half of the time if one thread drives it, and CUDA does not survive a fork: there, processes are
spawned, and each loads the model, runs its own batches (`serve.shared`) and serves many connections, a thread each.
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
from ddot.serve.shared import SharedModel

A = TypeVar("A")
S = TypeVar("S")
R = TypeVar("R")
Fill = Callable[[Model, A], Generator[S, None, R]]  # yields steps and returns the result of a request

_GPU_PROCESSES = 2  # by default
_SHUTDOWN_TIMEOUT = 10.0  # seconds for processes to exit
_EXIT_TIMEOUT = 1.0  # seconds for a process that has died


def process_count(device: torch.device, processes: int | None) -> int:
    """How many processes load the model for this device."""
    check_processes(processes, str(device))
    return processes or (_GPU_PROCESSES if device.type == "cuda" else 1)


def open_pool(
    load_model: Callable[[str | None, str], Model], name: str | None, device: str | None, processes: int | None
) -> "WorkerPool":
    """Load a model on a device and start the workers; `processes` is for a GPU.

    If several processes load the model, the server's own copy is on the CPU and only validates requests.
    """
    target = device_of(device)
    count = process_count(target, processes)
    model = load_model(name, str(target) if count == 1 else "cpu")
    model.name = Path(model.name).name if Path(model.name).is_dir() else model.name  # clients see no paths
    if count == 1:
        return WorkerPool(model)
    shape = replace(GPU, rows=-(-GPU.rows // count))  # idle rows also make a pass slower
    return WorkerPool(model, Spawner(partial(load, find(name), str(target)), count, shape))


class WorkerPool:
    """Fills requests in spawned processes, in a batch on a GPU, in one forked process per core on a CPU, or else in
    the calling thread.

    `capacity`: requests filled at a time. `copies`: processes that have loaded the model. Create it before starting
    other threads; use it from one thread per request.
    """

    def __init__(self, model: Model, spawner: "Spawner | None" = None):
        self.model, self.capacity, self.copies = model, model.threads, 1
        self.workers: list[Worker] = []
        replacement: Callable[[], LocalWorker] | None = partial(LocalWorker, model)
        if spawner is not None:
            self.capacity, self.copies, replacement = spawner.capacity, spawner.processes, None
            self.workers = spawner.start(model.name)
        elif model.device.type == "cuda":
            self.model, self.capacity = SharedModel(model), model.engine.shape.rows
        elif model.device.type == "cpu" and sys.platform == "linux" and self.capacity > 1:
            self.workers = [_fork(model) for _ in range(self.capacity)]
        self.idle = IdleWorkers(self.workers, replacement)

    def steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        """The steps of `fill` with the model. A bad request raises immediately."""
        steps = fill(self.model, request)
        return self._worker_steps(fill, request) if self.workers else steps

    def _worker_steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        worker = self.idle.take()
        try:
            return (yield from worker.steps(fill, request))
        finally:
            self.idle.put(worker)

    def close(self) -> None:
        """End the worker processes, and the batch of this process."""
        _shut_down(self.workers, _SHUTDOWN_TIMEOUT)
        if isinstance(self.model, SharedModel):
            self.model.close()


class LocalWorker:
    """Fills requests in this process, in the calling thread. Replaces a worker whose process has died."""

    is_alive = True

    def __init__(self, model: Model):
        self.model, self.process = model, self

    def steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        return fill(self.model, request)


class Worker:
    """A connection to a worker process, which fills one request at a time over it."""

    def __init__(self, process: BaseProcess, connection: Connection):
        self.process, self.connection, self.lost = process, connection, False

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive. An idle process sends nothing, so readable data means end of file."""
        try:
            return not self.lost and not self.connection.poll()
        except OSError:
            return False

    def steps(self, fill: "Fill[A, S, R]", request: A) -> Generator[S, None, R]:
        """The steps that the process sends. Closing this generator cancels the request."""
        kind = ""
        try:
            self.connection.send((fill, request))
            while True:
                kind, value = self.connection.recv()
                if kind != "step":
                    break
                yield value
        except (EOFError, OSError):
            self.lost = True
            self.process.join(_EXIT_TIMEOUT)  # until its other connections are closed too
            raise RuntimeError("a worker process has died; the others continue") from None
        finally:
            if kind == "step" and not self.lost:
                self._cancel()
        if kind == "error":  # outside the try: an OSError of the request says nothing about the process
            raise value
        return value

    def _cancel(self) -> None:
        try:
            self.connection.send(None)
            while self.connection.recv()[0] == "step":
                pass
        except (EOFError, OSError):
            self.lost = True


class IdleWorkers:
    """Workers without a request. A worker whose process has died is replaced if there is a replacement."""

    def __init__(self, workers: Sequence[Worker], replacement: Callable[[], LocalWorker] | None):
        self.workers: list[Worker | LocalWorker] = list(workers)
        self.alive, self.replacement, self.changed = len(workers), replacement, threading.Condition()

    def take(self) -> Worker | LocalWorker:
        """Wait for a worker. Balances the load: the longest idle worker of the process with the most idle workers."""
        with self.changed:
            while True:
                self.changed.wait_for(lambda: self.workers or not self.alive)
                if not self.alive:
                    raise RuntimeError("all worker processes have died; start the server again")
                idle = Counter(worker.process for worker in self.workers)
                worker = max(self.workers, key=lambda candidate: idle[candidate.process])
                self.workers.remove(worker)
                if worker.is_alive:
                    return worker
                self.put(worker)

    def put(self, worker: Worker | LocalWorker) -> None:
        """Return a worker after its request."""
        with self.changed:
            if worker.is_alive:
                self.workers.append(worker)
            elif self.replacement is not None:
                self.workers.append(self.replacement())
            else:
                self.alive -= 1
            self.changed.notify_all()


@dataclass(frozen=True)
class Spawner:
    """Spawns processes that each load a model with `load` and fill one request per row of their batch."""

    load: Callable[[], Model]
    processes: int
    shape: Shape

    @property
    def capacity(self) -> int:
        return self.processes * self.shape.rows

    def start(self, name: str) -> list[Worker]:
        """Start all processes, and wait until each has loaded the model, which gets this name."""
        by_process: list[list[Worker]] = []
        try:
            with _interrupts_blocked():
                for _ in range(self.processes):
                    by_process.append(_spawn(partial(_spawned_main, self.load, name, self.shape), self.shape.rows))
            for workers in by_process:
                _wait_until_ready(workers[0])
        except BaseException:
            _shut_down(chain(*by_process), 0.0)
            raise
        return list(chain(*zip(*by_process, strict=True)))  # the processes take turns


def _spawn(main: Callable[[list[Connection]], None], connections: int) -> list[Worker]:
    """Spawn a process; returns a worker for each of its connections."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(connections)]
    process = context.Process(target=main, args=([child_end for _, child_end in pipes],), daemon=True)
    process.start()
    for _, child_end in pipes:
        child_end.close()
    return [Worker(process, parent_end) for parent_end, _ in pipes]


def _fork(model: Model) -> Worker:
    """Fork a process, which shares the model's memory."""
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_forked_main, args=(model, parent_end, child_end), daemon=True)
    process.start()
    child_end.close()
    return Worker(process, parent_end)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started inside never receive Ctrl-C, which is for the server; the server receives it afterwards."""
    resource_tracker.ensure_running()  # started with the first process, it would unblock them (before Python 3.12)
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _wait_until_ready(worker: Worker) -> None:
    """Wait until a process has loaded the model; its error is raised here."""
    try:
        kind, value = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(_SHUTDOWN_TIMEOUT)
        raise ChildProcessError(
            f"a worker process exited before it had loaded the model (exit status {worker.process.exitcode}), perhaps "
            "for lack of memory; try fewer --processes"
        ) from None
    if kind == "error":
        raise value


def _shut_down(workers: Iterable[Worker], timeout: float) -> None:
    """Close all connections, which ends the processes; kill those still alive after the timeout."""
    workers, deadline = list(workers), time.monotonic() + timeout
    for worker in workers:
        worker.connection.close()
    for process in dict.fromkeys(worker.process for worker in workers):
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()


def _spawned_main(load: Callable[[], Model], name: str, shape: Shape, connections: list[Connection]) -> None:
    """In a spawned process: load the model, report it, and serve all connections until they are closed."""
    _isolate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the server process has already shown them
            model = load()
    except Exception as error:
        return _report(connections[0], "error", _with_traceback(error))
    model.name = name
    with closing(SharedModel(model, shape)) as shared:
        _report(connections[0], "ready")
        threads = [threading.Thread(target=_serve_requests, args=(shared, connection)) for connection in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _report(connection: Connection, kind: str, value: Any = None) -> None:
    with suppress(OSError):  # the server has given up
        connection.send((kind, value))


def _forked_main(model: Model, parent_end: Connection, child_end: Connection) -> None:
    """In a forked process, which has inherited both ends of its pipe."""
    parent_end.close()
    _isolate()
    _serve_requests(model, child_end)


def _isolate() -> None:
    os.setpgrp()  # signals to the group, such as Ctrl-C, are for the server, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)


def _serve_requests(model: Model, connection: Connection) -> None:
    """Serve requests until the other end is closed. A message during a request cancels it before its next step."""
    with connection, suppress(EOFError, OSError):
        while True:
            if (task := connection.recv()) is not None:
                reply = _run(task[0], task[1], model, connection)
                try:
                    connection.send(reply)
                except (TypeError, AttributeError, pickle.PicklingError) as error:
                    connection.send(("error", RuntimeError(f"{error!r}, in a reply of {reply[1]!r}")))


def _run(fill: "Fill[A, S, R]", request: A, model: Model, connection: Connection) -> tuple[str, Any]:
    """Send the steps of a request; returns its last message. Connection errors are raised: the server is gone."""
    steps: Generator[S, None, R] | None = None
    while not connection.poll():
        try:
            steps = steps or fill(model, request)
            step = next(steps)
        except StopIteration as end:
            return "result", end.value
        except Exception as error:
            return "error", _with_traceback(error)
        connection.send(("step", step if isinstance(step, list) else None))  # events are sent, states are not
    if steps is not None:
        steps.close()
    return "stopped", None


def _with_traceback(error: Exception) -> Exception:
    """Add the traceback, which is not pickled, as a note, unless the error is the user's mistake."""
    if not isinstance(error, ValueError | OSError):
        error.add_note(traceback.format_exc())
    return error
