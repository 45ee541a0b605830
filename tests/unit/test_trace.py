"""Traces: what is written is what is read, and damage is told."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.infill.frames import Frame, Trace, load_trace, save_trace

characters = st.characters(codec="utf-8")


@st.composite
def fillings(draw):
    slots = draw(st.integers(1, 5))
    times = draw(st.lists(st.floats(0, 1), min_size=1, max_size=4))
    flags = draw(st.lists(st.booleans(), min_size=slots, max_size=slots))
    piece = st.none() | st.text(characters, max_size=4)
    place = st.floats(allow_nan=False, allow_infinity=False)
    return [
        (
            t,
            draw(st.lists(piece, min_size=slots, max_size=slots)),
            draw(st.lists(place, min_size=slots, max_size=slots)),
            flags,
        )
        for t in sorted(times, reverse=True)
    ]


A_FILLING = [
    Frame(1.0, [" I", None, None], [-1.0, 0.25, 1.0], [True, False, False]),
    Frame(0.5, [" I", " “see”\n", None], [-1.0, 0.1, 0.9], [True, False, False]),
    Frame(0.0, [" I", " “see”\n", ""], [-0.5, 0.5, 0.3], [True, False, False]),
]


@given(fillings(), st.text(characters), st.dictionaries(st.text(characters), st.integers() | st.none()))
@settings(max_examples=100)
def test_what_is_written_is_what_is_read(filling, text, how):
    frames = [Frame(*parts) for parts in filling]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        save_trace(path, text, how, frames)
        assert load_trace(path) == Trace(text, how, frames)


def test_a_frame_is_a_line_of_plain_json(tmp_path):
    save_trace(tmp_path / "a.json", "I ___", {"seed": 3}, A_FILLING)
    written = (tmp_path / "a.json").read_text()
    assert len(written.splitlines()) == len(A_FILLING) + 2
    assert "“see”" in written
    found = json.loads(written)
    assert list(found) == ["text", "settings", "frames"]
    assert list(found["frames"][0]) == ["t", "pieces", "positions", "given"]


def test_a_trace_cut_anywhere_is_refused(tmp_path):
    save_trace(tmp_path / "whole.json", "I ___", {}, A_FILLING)
    whole = (tmp_path / "whole.json").read_bytes().rstrip()
    for length in range(len(whole)):
        (tmp_path / "cut.json").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.json is not a whole trace"):
            load_trace(tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["text"], None),
        (["settings"], []),
        (["frames"], []),
        (["frames", 1], 5),
        (["frames", 1, "more"], 5),
        (["frames", 0, "t"], "1"),
        (["frames", 0, "t"], True),
        (["frames", 0, "t"], 1.5),
        (["frames", 2, "t"], 0.75),
        (["frames", 2, "pieces", 1], 7),
        (["frames", 2, "positions", 1], None),
        (["frames", 2, "positions", 1], float("nan")),
        (["frames", 2, "given", 1], 0),
        (["frames", 2, "given", 1], True),
        (["frames", 2, "given"], [True]),
        (["frames", 1], {"t": 0.5, "pieces": [], "positions": [], "given": []}),
        (["frames", 0], {"t": 1, "pieces": [], "positions": [], "given": []}),
    ],
)
def test_damage_is_told(tmp_path, path, value):
    save_trace(tmp_path / "a.json", "I ___", {}, A_FILLING)
    found = json.loads((tmp_path / "a.json").read_text())
    part = found
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"not a whole trace.*--trace"):
        load_trace(tmp_path / "a.json")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no trace at"):
        load_trace(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(ValueError, match="not a whole trace"):
        load_trace(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="not a whole trace"):
        load_trace(tmp_path / "a.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    save_trace(path, "I ___", {}, A_FILLING)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_trace(path, "I ___", {"temperature": float("inf")}, A_FILLING)
    assert path.read_bytes() == before
    save_trace(path, "I ___", {}, A_FILLING[:1])
    assert load_trace(path).frames == A_FILLING[:1]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="is a folder"):
        save_trace(tmp_path, "I ___", {}, A_FILLING)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save_trace(tmp_path / "no" / "a.json", "I ___", {}, A_FILLING)


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    save_trace(tmp_path / "pipe", "I ___", {}, A_FILLING[:1])
    assert json.loads(os.read(reader, 1 << 16))["text"] == "I ___"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]
