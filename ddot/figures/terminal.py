"""Animate a fill in the terminal: words slide to their places while masked slots turn into words.

Given words move above a ruler and other slots below it; marks on the ruler show exact positions. Without a terminal, or
in a dumb one, every frame is one plain line.
"""

import time
from collections.abc import Iterable, Iterator

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ddot.figures.canvas import printable, spread
from ddot.infill.frames import MASKED, Frame

# Standard colours, which follow the terminal's theme.
GIVEN, FILLED, WAITING = "bright_blue", "bold yellow", "dim"
_PICTURES = 8  # per frame, so that words slide
_LEAST_WIDTH = 24  # narrower terminals show only the text
_TYPICAL = 7  # cells per slot: a word and a space


def watch(frames: Iterable[Frame], console: Console, delay: float = 0.15) -> list[Frame]:
    """Show frames as they arrive, `delay` seconds per step, and return them. The last one stays on screen."""
    shown: list[Frame] = []
    if not console.is_terminal or console.is_dumb_terminal:
        for frame in frames:
            line = f"t {frame.t:.3f}  {printable(frame.text)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
            shown.append(frame)
        return shown
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for frame in frames:
            for picture in between(shown[-1], frame, _PICTURES if delay > 0 else 1) if shown else [frame]:
                live.update(picture_of(picture, console.width, console.height), refresh=True)
                time.sleep(delay / _PICTURES)
            shown.append(frame)
    return shown


def between(start: Frame, end: Frame, count: int) -> Iterator[Frame]:
    """`count` interpolated frames: positions move evenly, words are those of `end`."""
    for share in np.linspace(0, 1, count + 1)[1:].tolist():
        places = [(1 - share) * a + share * b for a, b in zip(start.positions, end.positions, strict=True)]
        yield Frame((1 - share) * start.t + share * end.t, end.pieces, places, end.given)


def picture_of(frame: Frame, width: int, height: int) -> Group:
    """A frame for the terminal: progress, positions of slots, current text."""
    width = max(1, width - 1)  # some terminals wrap after the last column
    parts = [progress_line(frame, width), Text()]
    text = reading_text(frame)
    if width >= _LEAST_WIDTH:
        stage = stage_of(frame, width)
        text_lines = -(-text.cell_len // width) + 1
        if len(stage) + text_lines + 3 <= height:
            parts += [*stage, Text()]
    return Group(*parts, text)


def progress_line(frame: Frame, width: int) -> Text:
    """The time t and a progress bar."""
    masked = sum(piece is None for piece in frame.pieces)
    label = f"t {frame.t:.2f} "
    note = f" {masked} masked" if masked else " done" if frame.t <= 0 else " all words found"
    line = Text(label)
    bar = min(40, width - len(label) - len(note))
    if bar >= 4:
        done = round(bar * (1 - frame.t))
        line.append("━" * done, FILLED).append("─" * (bar - done), WAITING)
    if bar >= 0:
        line.append(note, "dim")
    line.truncate(width)
    return line


def reading_text(frame: Frame) -> Text:
    """The current text, like `Frame.text`, in colour."""
    text = Text()
    for slot in _reading_order(frame):
        piece = frame.pieces[slot]
        shown = f" {MASKED}" if piece is None else printable(piece)
        text.append(shown if text else shown.lstrip(), _style(frame, slot))
    return text


def stage_of(frame: Frame, width: int) -> list[Text]:
    """Lines that show where slots are: given words, a ruler with marks, other slots."""
    shown = [slot for slot in _reading_order(frame) if frame.pieces[slot] != ""]  # without pads and the text's edges
    if not shown:
        return []
    places = np.array([frame.positions[slot] for slot in shown])
    # Stretched to the full width: the text shrinks as slots turn out to be pads.
    reach = max(float(places[-1] - places[0]), 1e-9)
    columns = dict(zip(shown, np.rint((places - places[0]) / reach * (width - 1)).astype(int).tolist(), strict=True))
    above, below = ([slot for slot in shown if frame.given[slot] == given] for given in (True, False))
    ruler = Text()
    for column in range(width):
        marked = [slot for slot in shown if columns[slot] == column]
        up, down = (any(frame.given[slot] == given for slot in marked) for given in (True, False))
        style = _style(frame, marked[-1]) if marked else "dim"
        ruler.append("┼" if up and down else "┴" if up else "┬" if down else "─", style)
    return [*_lanes(frame, above, columns, width)[::-1], ruler, *_lanes(frame, below, columns, width)]


def _lanes(frame: Frame, slots: list[int], columns: dict[int, int], width: int) -> list[Text]:
    """Lines with words near their columns. Slots are dealt to lanes in turn, so that a word stays in its lane."""
    if not slots:
        return []
    labels = {slot: _label(frame, slot, width) for slot in slots}
    numbers = sorted(slots)
    count = max(1, -(-_TYPICAL * len(slots) // width))
    while any(sum(cell_len(labels[slot]) + 1 for slot in numbers[lane::count]) > width + 1 for lane in range(count)):
        count += 1
    lanes = [set(numbers[lane::count]) for lane in range(count)]
    return [_lane(frame, [slot for slot in slots if slot in lane], labels, columns, width) for lane in lanes]


def _lane(frame: Frame, slots: list[int], labels: dict[int, str], columns: dict[int, int], width: int) -> Text:
    sizes = np.array([float(cell_len(labels[slot]) + 1) for slot in slots])
    centred = np.array([float(columns[slot]) for slot in slots]) - (sizes - 2) / 2
    starts = spread(centred, sizes, 0.0, width + 1.0, whole=True)
    line = Text()
    for slot, start in zip(slots, starts.astype(int).tolist(), strict=True):
        line.append(" " * (start - line.cell_len))
        line.append(labels[slot], _style(frame, slot))
    return line


def _label(frame: Frame, slot: int, width: int) -> str:
    piece = frame.pieces[slot]
    shown = MASKED if piece is None else printable(piece).strip() or "␣"
    return shown if cell_len(shown) <= width else set_cell_size(shown, width)


def _reading_order(frame: Frame) -> list[int]:
    return sorted(range(len(frame.pieces)), key=lambda slot: (frame.positions[slot], slot))


def _style(frame: Frame, slot: int) -> str:
    return GIVEN if frame.given[slot] else WAITING if frame.pieces[slot] is None else FILLED
