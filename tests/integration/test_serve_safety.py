"""`ddot serve` against those who mean ill: other sites, too much work, slow connections; and how it stops."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from served import LONG, ROOT, THREADS, Served, small_model

from ddot.serve import connections
from ddot.serve.access import read_api_key

BODY = {"text": "a ___{1}", "steps": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("safe") / "tiny")


@pytest.fixture(scope="module")
def served(folder):
    hosts = ("--allow-host", "ddot.example", "--allow-origin", "https://notes.example")
    with Served("--model", folder, *hosts, "--time-limit", 3) as server:
        yield server


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8012"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:8012"}, 200),
        ({"Host": "192.168.1.7:8012"}, 200),  # an address is nobody's name
        ({"Host": "ddot.example"}, 200),
        ({"Host": "DDOT.example:443"}, 200),
        ({"Host": "evil.example:8012"}, 421),
        ({"Host": "ddot.example.evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "127.0.0.1:8012", "Origin": "http://127.0.0.1:8012"}, 200),
        ({"Host": "ddot.example", "Origin": "https://ddot.example"}, 200),  # behind a proxy that adds TLS
        ({"Origin": "https://notes.example"}, 200),
        ({"Origin": "http://notes.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Host": "127.0.0.1:8012", "Origin": "http://127.0.0.1:9000"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),  # a name made to resolve to this machine
    ],
    ids=str,
)
def test_other_sites_and_names_are_refused(served, headers, status):
    for method, path in [("POST", "/v1/infill"), ("GET", "/")]:
        got, found_headers, found = served.ask(method, path, BODY if method == "POST" else None, headers)
        assert got == status
        assert found_headers["X-Content-Type-Options"] == "nosniff"
        if status != 200:
            assert {403: "--allow-origin", 421: "--allow-host"}[status] in found["error"]["message"]


def test_a_flood_from_another_site_does_not_reach_the_queue(served):
    with ExitStack() as closing:
        for _ in range(40):
            # As a page may send it without asking first: a simple request.
            headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
            closing.callback(served.open("POST", "/v1/infill", LONG, headers).close)
        health = served.health()
        assert (health["at_work"], health["waiting"]) == (0, 0)
        assert served.post("/infill", input_prefix="The", input_suffix="", n_predict=2, steps=1)["content"]


def test_more_work_than_allowed_is_refused_and_the_rest_ends_in_time(served):
    most = {"text": "___ a " * 64, "n": 16, "steps": 128}
    status, _, found = served.ask("POST", "/v1/infill", most)
    assert status == 400
    assert "131,072; at most 8,192" in found["error"]["message"]
    for stream in (False, True):
        start = time.monotonic()
        connection = served.open("POST", "/v1/infill", {**LONG, "stream": stream})
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        assert 2.5 < time.monotonic() - start < 6
        error = json.loads(body.split(b"data: ")[-1] if stream else body)["error"]
        assert (error["code"], "3 seconds" in error["message"]) == ("time_limit", True)
        assert reply.status == (200 if stream else 503)
        if not stream:
            assert reply.headers["x-should-retry"] == "false"


def test_whoever_waits_is_told(served):
    with ExitStack() as closing:
        for _ in range(THREADS):
            closing.callback(served.open("POST", "/v1/infill", LONG).close)
        while served.health()["at_work"] < THREADS:
            time.sleep(0.01)
        waits = served.open("POST", "/v1/infill", {**BODY, "stream": True})
        closing.callback(waits.close)
        line = waits.getresponse().readline()
        assert json.loads(line.removeprefix(b"data: ")) == {"type": "queued", "ahead": 0}


def test_slow_headers_and_too_many_connections(monkeypatch, served):
    def said(sock):
        sock.settimeout(15)
        return b"".join(iter(lambda: sock.recv(4096), b""))

    with ExitStack() as closing:
        slow = [closing.enter_context(socket.create_connection(("127.0.0.1", served.port))) for _ in range(20)]
        start = time.monotonic()
        while time.monotonic() - start < connections.HEADER_TIMEOUT - 1:  # a byte now and then, as a slow loris does
            for each in slow:
                each.sendall(b"P")
            time.sleep(1)
        assert served.health()["status"] == "ok"
        assert all(b" 408 " in said(each) for each in slow)
    with ExitStack() as closing:
        many = [
            closing.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            for _ in range(connections.MAX_CONNECTIONS + 1)
        ]
        assert b" 503 " in said(many[-1])


def test_a_public_address_without_a_key_is_warned_of(folder):
    command = [sys.executable, "-m", "ddot", "serve", "--model", str(folder), "--host", "0.0.0.0", "--port", "0"]
    for key in (None, "secret"):
        env = {**os.environ, **({} if key is None else {"DDOT_API_KEY": key})}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        lines = [process.stderr.readline()]
        if key is None:
            assert "warning" in lines[0]
            assert "--api-key-file" in lines[0]
            lines.append(process.stderr.readline())
        assert "is at http://0.0.0.0" in lines[-1]
        process.terminate()
        process.communicate(timeout=90)


def test_the_key_is_read_from_a_file(folder, tmp_path):
    (tmp_path / "key").write_text("k1\n")
    with Served("--model", folder, "--api-key-file", tmp_path / "key", key="other") as server:
        assert server.ask("POST", "/v1/infill", BODY, {"Authorization": "Bearer other"})[0] == 401
        assert server.ask("POST", "/v1/infill", BODY, {"Authorization": "Bearer k1"})[0] == 200
        assert server.ask("GET", "/metrics")[0] == 401


def test_the_key_is_read_from_what_the_shell_opened_and_no_pipe_is_waited_for(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"secret\n")
    os.close(writing)
    assert read_api_key(Path(f"/dev/fd/{reading}")) == "secret"
    os.close(reading)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="named pipe"):
        read_api_key(tmp_path / "pipe")


def test_metrics_and_the_access_log(folder):
    server = Served("--model", folder, "--access-log")
    server.post("/v1/infill", **BODY)
    assert server.ask("POST", "/v1/infill", {"text": "x"})[0] == 400
    status, headers, text = server.ask("GET", "/metrics")
    assert (status, headers.get_content_type()) == (200, "text/plain")
    lines = text.splitlines()
    assert 'ddot_requests_total{route="/v1/infill",status="200"} 1.0' in lines
    assert 'ddot_requests_total{route="/v1/infill",status="400"} 1.0' in lines
    assert 'ddot_request_seconds_count{route="/v1/infill"} 2.0' in lines
    assert "ddot_requests_waiting 0.0" in lines
    *logged, last = server.stop()[2].splitlines()
    assert last == "ddot: stopped"
    found = [json.loads(line) for line in logged]
    assert [(each["method"], each["path"], each["status"]) for each in found] == [
        ("POST", "/v1/infill", 200), ("POST", "/v1/infill", 400), ("GET", "/metrics", 200)
    ]  # fmt: skip


def test_sigterm_finishes_what_is_at_work_and_what_waits(folder):
    body = {"text": "The boat ___{2} and " * 10, "n": 4, "steps": 8}
    server = Served("--model", folder)
    alone = server.post("/v1/infill", **body)["results"]
    found = []
    threads = [threading.Thread(target=lambda: found.append(server.ask("POST", "/v1/infill", body))) for _ in range(8)]
    for thread in threads:
        thread.start()
    while sum(server.health()[what] for what in ("at_work", "waiting")) < len(threads):
        time.sleep(0.005)
    status, _, said = server.stop(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
    assert (status, said) == (0, "ddot: stopped\n")
    assert [(reply, answer["results"]) for reply, _, answer in found] == [(200, alone)] * len(threads)


def test_draining_ends(folder):
    server = Served("--model", folder, "--drain", 1)
    connection = server.open("POST", "/v1/infill", LONG)
    while not server.health()["at_work"]:
        time.sleep(0.01)
    start = time.monotonic()
    assert server.stop(signal.SIGTERM)[0] == 0
    assert time.monotonic() - start < 10
    reply = connection.getresponse()
    assert (reply.status, json.load(reply)["error"]["code"]) == (503, "stopped")
    connection.close()
