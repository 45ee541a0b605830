"""`ddot bench serve`: a load test with clients that each send the next request when they have an answer.

The target is a server or, without HTTP, only its job queue and workers (`serve.jobs`, `serve.processes`).
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
from ddot.serve.jobs import JobQueue
from ddot.serve.processes import WorkerPool, process_count

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
_TIMEOUT = 300.0  # seconds for an answer


class Target(NamedTuple):
    """The server under test. `fill`: the results for a text, None on failure. `copies`: processes with the model."""

    fill: Callable[[str], Any]
    pid: int
    copies: int = 1


@contextmanager
def http_server(model: str | None, device: str | None, queue: int, processes: int | None = None) -> Iterator[Target]:
    """A `ddot serve` in another process."""
    copies = process_count(device_of(device), processes)
    options = {"--model": model, "--device": device, "--processes": processes, "--queue": queue}
    arguments = [str(part) for option in options.items() if option[1] is not None for part in option]
    command = [sys.executable, "-m", "ddot", "serve", "--port", "0", *arguments]
    with subprocess.Popen([*command, "--time-limit", str(_TIMEOUT)], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            match = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not match:
                raise ValueError(f"the server did not start: {line.strip()}")
            yield Target(lambda text: _post(int(match[1]), text), server.pid, copies)
        finally:
            server.terminate()


@contextmanager
def in_process(open_pool: Callable[[], WorkerPool], max_waiting: int) -> Iterator[Target]:
    """The job queue and the workers of a server, without HTTP."""
    pool = open_pool()
    loop, queue = asyncio.new_event_loop(), JobQueue(pool.capacity, max_waiting, _TIMEOUT)

    async def submit(text: str) -> list[dict[str, Any]]:
        return await queue.submit(pool.steps(_fill, text)).result()

    def fill(text: str) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(submit(text), loop).result()
        except Exception:
            traceback.print_exc()
            return None

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Target(fill, os.getpid(), pool.copies)
    finally:
        queue.close()
        pool.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _fill(model: Model, text: str) -> Steps[list[dict[str, Any]]]:
    answers = yield from model.steps(model.request(text))
    return [asdict(answer.infill) for answer in answers.best]


def measure(
    server: AbstractContextManager[Target], clients: Sequence[int], requests: int, seconds: float
) -> list[dict[str, Any]]:
    """Throughput, latency and errors for each number of clients; `requests` per client, for at most `seconds`.

    `times_first`: the throughput over that of the first row. `cores`: the server's CPU time over the elapsed time; on a
    busy machine a second process may get no extra core.
    """
    with server as target:
        # Warm up every copy of the model with every text; the copies take turns.
        texts = [text for text in TEXTS[: max(clients) + requests - 1] for _ in range(target.copies)]
        expected = {text: target.fill(text) for text in texts}
        rows = [_row(target, count, requests, seconds, expected) for count in clients]
    return [{**row, "times_first": row["per_second"] / rows[0]["per_second"]} for row in rows]


def _row(target: Target, clients: int, requests: int, seconds: float, expected: dict[str, Any]) -> dict[str, Any]:
    """One measurement. When its time is up, a client sends no more requests but waits for the last reply."""
    latencies: list[float] = []
    different = errors = 0
    lock = threading.Lock()
    start, cpu_start = time.perf_counter(), _cpu_seconds(target.pid)

    def run_client(client: int) -> None:
        nonlocal different, errors
        for number in range(requests):
            sent = time.perf_counter()
            if sent - start > seconds:
                return
            text = TEXTS[(client + number) % len(TEXTS)]
            results = target.fill(text)
            with lock:
                latencies.append(time.perf_counter() - sent)
                errors += results is None
                different += results is not None and results != expected[text]

    threads = [threading.Thread(target=run_client, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, cpu = time.perf_counter() - start, _cpu_seconds(target.pid) - cpu_start
    count, (p50, p95) = len(latencies), np.percentile(latencies, [50, 95])
    return {
        "clients": clients, "requests": count, "per_second": count / elapsed, "p50_s": float(p50),
        "p95_s": float(p95), "errors": errors, "different_answers": different, "cores": cpu / elapsed,
        "cpu_s_per_request": cpu / count,
    }  # fmt: skip


def _cpu_seconds(pid: int) -> float:
    """CPU time so far of a process and its children; 0 on systems without /proc."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if pid in (int(path.parent.name), int(fields[1])):
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _post(port: int, text: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        connection.request("POST", "/v1/infill", json.dumps({"text": text}))
        return json.loads(connection.getresponse().read()).get("results")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
