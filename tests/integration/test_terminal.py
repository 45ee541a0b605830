"""Watching: what a terminal shows, read back from a real pseudo-terminal, and plain lines where there is none."""

import io
import os
import pty
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from scipy.optimize import isotonic_regression

from ddot.figures.canvas import spread
from ddot.figures.terminal import picture_of, reading_text, stage_of, watch
from ddot.infill.frames import Frame


def lines_of(frame, width, height=50):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, _environ={})
    console.print(picture_of(frame, width, height))
    return console.file.getvalue().splitlines()


def in_a_terminal(frames, width, height):
    """All bytes that watching sends to a pseudo-terminal."""
    master, slave = pty.openpty()
    received = []

    def read():
        while True:
            try:
                some = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            received.append(some)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8") as file:
        console = Console(file=file, width=width, height=height, _environ={"TERM": "xterm-256color"})
        assert watch(iter(frames), console, delay=0.001) == frames
    reader.join(timeout=10)
    os.close(master)
    return b"".join(received).decode()


def screen(sent):
    """The lines a terminal shows in the end, by the few control codes that matter here."""
    rows, row, column = [""], 0, 0
    for code, argument, letter, plain in re.findall(r"(\x1b\[(\??[\d;]*)([A-Za-z]))|([^\x1b])", sent):
        if code:
            assert letter in "mAKhl", code
            if letter == "A":
                row -= int(argument or 1)
            elif letter == "K":
                rows[row] = ""
        elif plain == "\r":
            column = 0
        elif plain == "\n":
            row, column = row + 1, 0
            if row == len(rows):
                rows.append("")
        else:
            rows[row] = rows[row][:column].ljust(column) + plain + rows[row][column + 1 :]
            column += 1
    return [each.rstrip() for each in rows]


def test_the_last_frame_stays_and_no_other(with_pads):
    sent = in_a_terminal(with_pads, 60, 24)
    assert "\x1b[" in sent
    shown = screen(sent)
    assert sum(line.startswith("t ") for line in shown) == 1
    assert shown[0].startswith("t 0.00")
    assert shown[0].endswith("done")
    assert with_pads[-1].text in " ".join(shown)
    assert shown[: len(lines_of(with_pads[-1], 60, 24))] == [line.rstrip() for line in lines_of(with_pads[-1], 60, 24)]


def test_without_a_terminal_every_frame_is_one_plain_line(streamed):
    for environment in ({}, {"TERM": "dumb"}):
        file = io.StringIO()
        assert watch(iter(streamed), Console(file=file, width=20, _environ=environment), delay=5.0) == streamed
        lines = file.getvalue().splitlines()
        assert lines == [f"t {frame.t:.3f}  {frame.text}" for frame in streamed]


def test_plain_lines_hold_no_control_codes():
    frame = Frame(0.0, [" a\x1b[2J", "\n\tb[red]"], [-1.0, 1.0], [True, False])
    file = io.StringIO()
    watch([frame], Console(file=file, _environ={}))
    assert file.getvalue() == "t 0.000  a�[2J  b[red]\n"
    assert "\x1b" not in "".join(lines_of(frame, 40))


@pytest.mark.parametrize("width", [1, 2, 8, 16, 25, 26, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(with_pads, streamed, width):
    for frame in [*with_pads, *streamed, Frame(1.0, [" 日本語の言葉" * 9, None], [0.5, 0.5], [True, False])]:
        assert max(map(cell_len, lines_of(frame, width))) <= width


@pytest.mark.parametrize("height", [3, 6, 12])
def test_low_terminals_show_the_text(with_pads, height):
    lines = lines_of(with_pads[-1], 60, height)
    assert len(lines) <= max(height, 4)
    assert with_pads[-1].text in " ".join(lines)


def crowded(seed):
    """A frame of many words of different lengths, wherever they are."""
    rng = np.random.default_rng(seed)
    pieces = [" " + "w" * int(n) for n in rng.integers(1, 9, 30)]
    return Frame(0.5, pieces, np.round(rng.uniform(-1, 1, 30), 2).tolist(), (rng.random(30) < 0.5).tolist())


def test_every_word_is_shown_whole_on_its_side_of_a_line_with_its_mark(with_pads, streamed):
    for frame in [*with_pads, *streamed, *map(crowded, range(10))]:
        for width in (30, 79):
            stage = [line.plain for line in stage_of(frame, width)]
            middle = next(number for number, line in enumerate(stage) if set(line) <= set("─┴┬┼"))
            assert len(stage[middle]) == width
            for side, marks, given_side in ((stage[:middle], "┴┼", True), (stage[middle + 1 :], "┬┼", False)):
                slots = [s for s, g in enumerate(frame.given) if g == given_side and frame.pieces[s] != ""]
                wanted = ["░" if frame.pieces[s] is None else frame.pieces[s].strip() or "␣" for s in slots]
                assert sorted(" ".join(side).split()) == sorted(" ".join(wanted).split())
                columns = {round(column) for column in _columns(frame, slots, width)}
                assert {n for n, mark in enumerate(stage[middle]) if mark in marks} == columns


def _columns(frame, slots, width):
    shown = [place for place, piece in zip(frame.positions, frame.pieces, strict=True) if piece != ""]
    first, last = min(shown), max(shown)
    return [(frame.positions[slot] - first) / (last - first) * (width - 1) for slot in slots]


def test_the_text_in_colours_reads_as_the_frame(with_pads, streamed):
    for frame in [*with_pads, *streamed]:
        assert reading_text(frame).plain == frame.text


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 9)), min_size=1, max_size=12), st.booleans())
def test_labels_do_not_cover_each_other_and_move_least(labels, whole):
    starts, sizes = np.array(labels, float).T
    room = float(sizes.sum())
    placed = spread(starts, sizes, -1000.0, 1000.0)
    before = np.cumsum(sizes) - sizes
    # Far from both ends this is the isotonic regression of where labels want to be, less the room of those before.
    assert placed == pytest.approx(isotonic_regression(starts - before).x + before)
    tight = spread(starts, sizes, 0.0, room + 3, whole)
    assert (np.diff(tight) >= sizes[:-1] - 1e-9).all()
    assert tight[0] >= 0
    assert tight[-1] + sizes[-1] <= room + 3 + 1e-9
    if whole:
        assert (tight == np.rint(tight)).all()
