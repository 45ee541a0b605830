"""`ddot bench serve`: a real server, and clients that each send a request as soon as they have an answer."""

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

TEXTS = (
    "The old lighthouse keeper climbed the stairs every evening ___ and his dog followed him.",
    "When the rain stopped, the children ran outside and ___ on the quiet street behind the school.",
    "The committee will meet again on Thursday to decide ___ before the end of the month.",
    "After three hours on the road we finally ___ and asked for a room with a view of the lake.",
)
_PATIENCE = 300.0  # seconds for an answer


def measure(
    model: str | None, device: str | None, clients: Sequence[int], requests: int, seconds: float
) -> list[dict[str, Any]]:
    """Requests a second, times and errors for each number of clients; `requests` each, for at most `seconds`."""
    options = [*(["--model", model] if model else []), *(["--device", device] if device else [])]
    command = [sys.executable, "-m", "ddot", "serve", "--port", "0", "--queue", str(max(clients)), *options]
    with subprocess.Popen([*command, "--time-limit", str(_PATIENCE)], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                raise ValueError(f"the server did not start: {line.strip()}")
            port = int(found[1])
            alone = [_ask(port, text)[1] for text in TEXTS]
            return [_row(port, many, requests, seconds, alone) for many in clients]
        finally:
            server.terminate()


def _row(port: int, clients: int, requests: int, seconds: float, alone: list[Any]) -> dict[str, Any]:
    """One measurement. A client that has no more time sends nothing more; what it sent is waited for."""
    times: list[float] = []
    wrong = errors = 0
    lock = threading.Lock()
    start = time.perf_counter()

    def work(client: int) -> None:
        nonlocal wrong, errors
        for number in range(requests):
            if time.perf_counter() - start > seconds:
                return
            which, begun = (client + number) % len(TEXTS), time.perf_counter()
            status, results = _ask(port, TEXTS[which])
            with lock:
                times.append(time.perf_counter() - begun)
                errors += status != 200
                wrong += status == 200 and results != alone[which]

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - start
    p50, p95 = np.percentile(times, [50, 95])
    return {
        "clients": clients, "requests": len(times), "per_second": len(times) / spent, "p50_s": float(p50),
        "p95_s": float(p95), "errors": errors, "different_answers": wrong,
    }  # fmt: skip


def _ask(port: int, text: str) -> tuple[int, Any]:
    """(status, results) of a request; status 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request("POST", "/v1/infill", json.dumps({"text": text}))
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read()).get("results")
    except (OSError, ValueError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
