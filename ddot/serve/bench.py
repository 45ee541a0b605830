"""`ddot bench serve`: clients that each send a request as soon as they have an answer.

They ask a real server or, where there is no web framework, its queue and processes (`serve.jobs`, `serve.processes`).
"""

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ddot.infill.engine import Steps
from ddot.infill.model import Model
from ddot.network.devices import device_of
from ddot.serve.jobs import Work
from ddot.serve.processes import Filling, processes_on

# No two clients send the same text at the same time: equal texts would be filled once.
_PEOPLE = ("gardener", "piano teacher", "bus driver", "young doctor", "painter", "retired judge", "baker", "smith")
_PATTERNS = (
    "The {} climbed the stairs every evening ___ and the dog followed.",
    "When the rain stopped, the {} went outside and ___ on the quiet street behind the school.",
    "The {} will meet the committee again on Thursday to decide ___ before the end of the month.",
    "After three hours on the road the {} finally ___ and asked for a room with a view of the lake.",
    "Nobody knew why the {} ___ so early that morning.",
    "My neighbour, the {}, has lived here ___, and everyone likes him.",
    "The {} opened the letter. ___ Then there was a knock at the door.",
    "If you see the {}, please say that ___ is still in the kitchen.",
)
TEXTS = tuple(pattern.format(person) for person in _PEOPLE for pattern in _PATTERNS)
_PATIENCE = 300.0  # seconds for an answer


class Asked(NamedTuple):
    """The server under test: results of a text (None on failure), the process that computes them, and how many
    processes have a model of their own."""

    results: Callable[[str], Any]
    process: int
    copies: int = 1


@contextmanager
def served(model: str | None, device: str | None, queue: int, processes: int | None = None) -> Iterator[Asked]:
    """A `ddot serve` in a process of its own."""
    copies = processes_on(device_of(device), processes)
    given = {"--model": model, "--device": device, "--processes": processes, "--queue": queue}
    options = [str(part) for option in given.items() if option[1] is not None for part in option]
    command = [sys.executable, "-m", "ddot", "serve", "--port", "0", *options]
    with subprocess.Popen([*command, "--time-limit", str(_PATIENCE)], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                raise ValueError(f"the server did not start: {line.strip()}")
            yield Asked(lambda text: _post(int(found[1]), text), server.pid, copies)
        finally:
            server.terminate()


@contextmanager
def in_process(open_filling: Callable[[], Filling], queue: int) -> Iterator[Asked]:
    """The queue of a server on threads of this process, and its workers."""
    filling = open_filling()
    loop, work = asyncio.new_event_loop(), Work(filling.at_once, queue, _PATIENCE)

    async def fill(text: str) -> list[dict[str, Any]]:
        return await work.start(filling.start(_filled, text)).result()

    def results(text: str) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(fill(text), loop).result()
        except Exception:
            traceback.print_exc()
            return None

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Asked(results, os.getpid(), filling.copies)
    finally:
        work.close()
        filling.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _filled(model: Model, text: str) -> Steps[list[dict[str, Any]]]:
    answers = yield from model.steps(model.request(text))
    return [asdict(each.infill) for each in answers.best]


def measure(
    asking: AbstractContextManager[Asked], clients: Sequence[int], requests: int, seconds: float
) -> list[dict[str, Any]]:
    """Requests a second, times and errors for each number of clients; `requests` each, for at most `seconds`.

    `times_first`: the throughput over that of the first row. `cores`: the CPU time of the server over the time it took:
    beside other programs, a second thread may get no more of them.
    """
    with asking as asked:
        # As often as there are copies, which take turns: each prepares itself for texts of a new size.
        texts = [text for text in TEXTS[: max(clients) + requests - 1] for _ in range(asked.copies)]
        alone = {text: asked.results(text) for text in texts}
        rows = [_row(asked, many, requests, seconds, alone) for many in clients]
    return [{**row, "times_first": row["per_second"] / rows[0]["per_second"]} for row in rows]


def _row(asked: Asked, clients: int, requests: int, seconds: float, alone: dict[str, Any]) -> dict[str, Any]:
    """One measurement. When its time is up, a client sends no more requests but waits for the last reply."""
    times: list[float] = []
    wrong = errors = 0
    lock = threading.Lock()
    start, used = time.perf_counter(), _cpu_seconds(asked.process)

    def work(client: int) -> None:
        nonlocal wrong, errors
        for number in range(requests):
            begun = time.perf_counter()
            if begun - start > seconds:
                return
            text = TEXTS[(client + number) % len(TEXTS)]
            results = asked.results(text)
            with lock:
                times.append(time.perf_counter() - begun)
                errors += results is None
                wrong += results is not None and results != alone[text]

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent, used = time.perf_counter() - start, _cpu_seconds(asked.process) - used
    p50, p95 = np.percentile(times, [50, 95])
    return {
        "clients": clients, "requests": len(times), "per_second": len(times) / spent, "p50_s": float(p50),
        "p95_s": float(p95), "errors": errors, "different_answers": wrong, "cores": used / spent,
        "cpu_s_per_request": used / len(times),
    }  # fmt: skip


def _cpu_seconds(process: int) -> float:
    """CPU time of a process and those it started, so far; 0 where the system does not say."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if process in (int(path.parent.name), int(fields[1])):
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _post(port: int, text: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request("POST", "/v1/infill", json.dumps({"text": text}))
        return json.loads(connection.getresponse().read()).get("results")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
