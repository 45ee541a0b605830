"""Mistakes, closed and full streams, broken pipes and Ctrl-C through the real process, as a shell starts it.

`test_bad_inputs` has many more, in the process of the tests. Here every command comes up; most of these mistakes are
told before torch is imported, which takes seconds.
"""

import gzip
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import ROOT

MISTAKES = [
    "nothing", "--nothing", "infill --nothing", "infill 'a ___' --n x", "infill 'a ___' --temperature", "lengths",
    "lengths 'a ___' --rollouts 1.5", "score 'a ___'", "watch 'a ___' --delay soon", "plot nothing",
    "plot trajectories a b", "plot coupling", "train toy", "finetune own.txt",
    "finetune own.txt --output out --minutes soon", "prepare own.txt --output out", "evaluate", "tables", "rescore",
    "compare rows.jsonl", "nats", "convert own.txt", "serve --port x", "bench nothing", "info a b", "plot quality",
    "infill 'a ___' --seed 1.5", "serve --drain soon",
    "infill", "infill 'no blank'", "infill 'a ___{9,2}'", "infill 'a ___' --n 0", "infill 'a ___' --terminal left",
    "infill 'a ___' --lock b --lock c", "infill 'a ___' --model nowhere", "infill 'a ___' --precision int4",
    "infill --input missing.jsonl --output out", "infill --input bad.gz --output out",
    "infill --input own.txt --output out", "infill --input good.jsonl --output no/folder/out", "lengths 'no blank'",
    "lengths 'a ___' --rollouts 0", "score 'a ___' --fills b --fills c", "watch 'no blank'", "info nowhere",
    "plot trajectories 'no blank'", "plot trajectories --from missing.json", "tables missing.jsonl",
    "plot quality missing.jsonl", "finetune missing.txt --output out", "serve --port 99999",
    "serve --api-key-file missing", "serve --api-key-file pipe", "serve --port 0 --model nowhere",
    "serve --port 0 --processes 0", "serve --port 0 --device cpu --processes 2", "bench serve --processes 17",
    # From here on torch is imported first.
    "infill 'a ___' --device tpu", "infill --input good.jsonl --output pipe", "train nothing --output out",
]  # fmt: skip
STREAMS = [  # a line for bash, the statuses of the parts of its pipe, and of how many lines stderr is
    ("{ddot} infill <&-", [2], 1),
    ("{ddot} infill --input - --output - <&-", [2], 1),
    ("{ddot} --help >&-", [2], 1),
    ("{ddot} infill 'no blank' 2>&-", [2], 0),
    ("{ddot} infill <&- >&- 2>&-", [2], 0),
    ("{ddot} --help >/dev/full", [2], 1),
    ("{ddot} info {model} >/dev/full", [2], 1),
    ("{ddot} infill --quiet --input good.jsonl --output /dev/full --model {model} --steps 1", [2], 1),
    ("{ddot} --help | true", [1, 0], 0),
    ("yes 'a ___{{1}}' | {ddot} infill --model {model} --steps 1 | head -1", [141, 1, 0], 0),
    ("{ddot} infill --quiet --input good.jsonl --output pipe --model {model} --steps 1 & cat pipe; wait $!", [0], 0),
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    (place / "good.jsonl").write_text('{"id": 1, "text": "a ___{1}"}\n')
    (place / "own.txt").write_text("The boat sails.\n" * 300)
    (place / "bad.gz").write_bytes(gzip.compress(b'{"text": "a ___"}\n' * 100)[:30])
    os.mkfifo(place / "pipe")
    return place


WITHOUT_TORCH = """
import sys
from ddot.cli import status
ended = status()
sys.exit("torch was imported" if "torch" in sys.modules else ended)
"""


def shell(line, place, **names):
    """(statuses of the parts of a pipe, stdout, stderr). Nothing but what was there may be there afterwards."""
    before = sorted(place.iterdir())
    early = f"{sys.executable} -c '{WITHOUT_TORCH}'"
    line = line.format(ddot=f"{sys.executable} -m ddot", early=early, **names) + '\necho "${PIPESTATUS[@]}"'
    done = subprocess.run(
        ["timeout", "100", "bash", "-c", line],
        cwd=place,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert sorted(place.iterdir()) == before
    assert not {"Traceback", "Errno"} & set(done.stderr.replace("[", " ").split())
    *printed, statuses = done.stdout.splitlines()
    return [int(each) for each in statuses.split()], printed, done.stderr


@pytest.mark.parametrize("arguments", ["--help", "--version", "infill --help", "bench --help"])
def test_help_is_given_without_torch(arguments, place):
    statuses, printed, said = shell("{early} " + arguments, place)
    assert (statuses, said) == ([0], "")
    assert printed


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_told_by_the_real_process(arguments, place):
    early = MISTAKES.index(arguments) < MISTAKES.index("infill 'a ___' --device tpu")
    literal = arguments.replace("{", "{{").replace("}", "}}")
    statuses, printed, said = shell(f"{{{'early' if early else 'ddot'}}} {literal}", place)
    assert statuses == [2], said
    assert printed == []
    assert (said.startswith("ddot: "), said.count("\n")) == (True, 1), said


@pytest.mark.parametrize(("line", "wanted", "lines"), STREAMS, ids=[line for line, *_ in STREAMS])
def test_closed_full_and_broken_streams(line, wanted, lines, place, folder):
    statuses, printed, said = shell(line, place, model=folder)
    assert statuses == wanted, said
    assert said.count("\n") == lines
    assert len(printed) == ("head" in line or "cat" in line)


@contextmanager
def heeding_interrupts():
    """Tests that run in the background ignore SIGINT, and so would the processes they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2, 0.4, 0.8, 1.6])
def test_ctrl_c_in_the_first_moments(seconds, place, folder):
    """Whatever is being imported so long after the first library was loaded: 130 and one line."""
    command = [sys.executable, "-m", "ddot", "infill", "--quiet", "--input", "-", "--output", "-", "--model", folder]
    with heeding_interrupts():
        process = subprocess.Popen(command, env=ENVIRONMENT, cwd=place, stdin=-1, stdout=-1, stderr=-1)
    while "torch" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=100)
    assert (process.returncode, *said) == (130, b"", b"ddot: interrupted\n")


# A pool of threads that is idle, handlers for the exit, output that is not flushed.
LEAVING = """
import atexit, os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from ddot.__main__ import _leave
pool = ThreadPoolExecutor(1)
pool.submit(print, "worked").result()
atexit.register(print, "told")
if sys.argv[1:]:
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
print("last", file=sys.stderr)
_leave(3)
"""


@pytest.mark.parametrize(("more", "wanted"), [((), (3, "last\n")), (("Ctrl-C",), (130, "last\nddot: interrupted\n"))])
def test_leaving_waits_for_threads_and_calls_handlers(more, wanted):
    command = [sys.executable, "-c", LEAVING, *more]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (found.returncode, found.stderr) == wanted
    assert more or found.stdout == "worked\ntold\n"
