"""A `ddot serve` process to talk to, and the small model it serves."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from ddot.data.tokenizer import learn_bpe
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import save_model
from ddot.network.llama import LlamaConfig

ROOT = Path(__file__).parents[2]
SENTENCES = ["The small boat leaves the harbour at dawn.", "My sister sings while she waters the garden.", "It rains."]
THREADS = len(os.sched_getaffinity(0))
# So many attempts, windows and steps that it takes a minute or more, and no more than is allowed.
LONG = {"text": "The boat ___{2} and " * 64, "n": 16, "steps": 8, "temperature": 1.0}


def small_model(where: Path, writes: bool = False) -> Path:
    """A folder with a network of random weights that has an opinion.

    `writes`: as the embedded one does, and of the gaps of a free text it is sure to leave some empty, others not.
    """
    where.mkdir()
    torch.manual_seed(0)
    tokenizer = learn_bpe(SENTENCES, 320)
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, tokenizer.vocabulary.rows), tokenizer.vocabulary)
    config = replace(config, order="outline") if writes else config
    denoiser = Denoiser(config)
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if writes:
        denoiser.state_dict()["trunk.embed_tokens.weight"][tokenizer.vocabulary.sep] *= 16
    save_model(denoiser.state_dict(), config, tokenizer, {"recipe": "none"}, where)
    return where


class Served:
    """The process, on a port of its own."""

    program: tuple[str, ...] = ("-m", "ddot", "serve", "--port", "0")

    def __init__(self, *arguments: object, key: str | None = None):
        command = [sys.executable, *self.program, *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **({} if key is None else {"DDOT_API_KEY": key})},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.line = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.line)
        assert found, self.line + self.process.stderr.read()
        self.port = int(found[1])

    def stop(self, how: int = signal.SIGINT) -> tuple[int, str, str]:
        """(status, stdout, stderr) of the process after a signal."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()

    def open(self, method: str, path: str, body=None, headers=None) -> http.client.HTTPConnection:
        """A connection on which something was asked; nobody has listened to the answer yet."""
        return opened(self.port, method, path, body, headers)

    def ask(self, method: str, path: str, body=None, headers=None):
        """(status, headers, what the JSON body holds)."""
        return asked(self.port, method, path, body, headers)

    def post(self, path: str, **body):
        """What a request that is right gets."""
        status, _, found = self.ask("POST", path, body)
        assert status == 200, found
        return found

    def events(self, path: str, **body) -> list:
        """The events of a stream."""
        connection = self.open("POST", path, {**body, "stream": True})
        try:
            reply = connection.getresponse()
            assert reply.status == 200
            assert reply.headers.get_content_type() == "text/event-stream"
            blocks = reply.read().decode().split("\n\n")
        finally:
            connection.close()
        assert blocks.pop() == ""
        assert all(block.startswith("data: ") for block in blocks)
        datas = [block.removeprefix("data: ") for block in blocks]
        return [data if data == "[DONE]" else json.loads(data) for data in datas]

    def health(self) -> dict:
        return self.ask("GET", "/health")[2]


def opened(port: int, method: str, path: str, body=None, headers=None) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, headers or {})
    return connection


def asked(port: int, method: str, path: str, body=None, headers=None):
    connection = opened(port, method, path, body, headers)
    try:
        reply = connection.getresponse()
        content = reply.read()
    finally:
        connection.close()
    is_json = reply.headers.get_content_type() == "application/json"
    return reply.status, reply.headers, json.loads(content) if is_json else content.decode()
