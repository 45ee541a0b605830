"""Traces: what is written is what is read, and damage is told."""

import json
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
        with pytest.raises(ValueError, match=r"cut\.json is no whole trace: it is no JSON"):
            load_trace(tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["text"], None, '"text" is missing or no str'),
        (["settings"], [], '"settings" is missing or no dict'),
        (["frames"], [], "it has no frames"),
        (["frames", 1], 5, "in frame 2 there is not just t, pieces, positions and given"),
        (["frames", 1, "more"], 5, "in frame 2 there is not just"),
        (["frames", 0, "t"], "1", "in frame 1 t is '1', not a number"),
        (["frames", 0, "t"], True, "in frame 1 t is True, not a number"),
        (["frames", 0, "t"], 1.5, "in frame 1 t is 1.5"),
        (["frames", 2, "t"], 0.75, "in frame 3 t rises from 0.5 to 0.75"),
        (["frames", 2, "pieces", 1], 7, "in frame 3 pieces is no list of texts or null"),
        (["frames", 2, "positions", 1], None, "in frame 3 positions is no list of finite numbers"),
        (["frames", 2, "positions", 1], float("nan"), "in frame 3 positions is no list of finite numbers"),
        (["frames", 2, "given", 1], 0, "in frame 3 given is no list of true or false"),
        (["frames", 2, "given", 1], True, "in frame 3 other slots are given"),
        (["frames", 2, "given"], [True], "3 pieces, 3 positions, 1 given; 3 of each were wanted"),
        (["frames", 1], {"t": 0.5, "pieces": [], "positions": [], "given": []}, "in frame 2 there are 0 pieces"),
        (["frames", 0], {"t": 1, "pieces": [], "positions": [], "given": []}, "in frame 1 there are no slots"),
    ],
)
def test_damage_is_told(tmp_path, path, value, sentence):
    save_trace(tmp_path / "a.json", "I ___", {}, A_FILLING)
    found = json.loads((tmp_path / "a.json").read_text())
    part = found
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"no whole trace: .*--trace") as caught:
        load_trace(tmp_path / "a.json")
    assert sentence in str(caught.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no trace at"):
        load_trace(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(ValueError, match="it holds a list"):
        load_trace(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="it is no JSON"):
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
