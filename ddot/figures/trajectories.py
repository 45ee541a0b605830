"""Figures of moving slots: during a fill (`trajectories`) and in training (`training_paths`).

Time runs from noise (t = 1, left) to text (t = 0, right); the text reads from top to bottom. PNG or SVG by the file
name. Needs the extra `plots`.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.cells import cell_len

from ddot.core.codes import PAD, PROMPT, RESPONSE
from ddot.core.coupling import Coupling, couple, couple_independently
from ddot.core.positions import Terminal, random_terminal
from ddot.figures.canvas import canvas, form_of, image, printable, spread
from ddot.figures.paths import Sentence, Track, coupled, crossings_within, from_slots, in_slots, tracks
from ddot.files import write_whole
from ddot.infill.frames import Frame

COLOURS = {PROMPT: "#0072B2", RESPONSE: "#D55E00", PAD: "#BBBBBB"}  # safe for colour-blind readers
WAITING = "#A8A8A8"
_NAMES = {PROMPT: "given (prompt)", RESPONSE: "filled in (response)", PAD: "left empty (pad)"}

COUPLINGS: Mapping[str, Coupling] = MappingProxyType(
    {"Without optimal transport": couple_independently, "With optimal transport": couple}
)

# Inches.
_WIDE, _LEAST_HIGH, _LETTER, _LINE = 4.6, 3.4, 0.078, 0.175
_BETWEEN, _HEADING = 0.6, 0.11  # two rulers; characters of the heading


@dataclass(frozen=True)
class Panel:
    """One picture: tracks, the unit of their places, and the least range shown."""

    title: str
    measure: str
    tracks: list[Track]
    low: float
    high: float


def trajectories(frames: Sequence[Frame], path: Path | str, scaled: bool | None = None) -> None:
    """Draw the positions of slots during a fill (the paper's Path Visualizations).

    Unscaled places count slots of the context. Scaled ones lie in [-1, 1] and undo the shrinking of a text that is
    shorter than its context: pads run level, and straight paths may bend. None shows both: side by side, or as two
    axes of one picture where they look the same because there are no pads.
    """
    form = form_of(path)
    if not frames:
        raise ValueError("there are no frames to plot; fill a text first")
    counted, measured = tracks(frames, scaled=False), tracks(frames, scaled=True)
    slots = len(counted)
    panels = [
        Panel("Scaled: the text spans [−1, 1] at every moment", "scaled", measured, -1.0, 1.0),
        Panel("Unscaled: places in the context", "slots", counted, 0.0, float(slots)),
    ]
    both_rulers = scaled is None and all(track.kind != PAD for track in counted)
    if scaled is not None:
        panels = [panels[0] if scaled else panels[1]]
    elif both_rulers:
        panels = [Panel("", "scaled", measured, -1.0, 1.0)]
    words_of = [sum(track.kind == kind and track.label != "" for track in counted) for kind in (PROMPT, RESPONSE)]
    swapped = sum(crossings_within(counted, kind) for kind in (PROMPT, RESPONSE))
    pairs = "no two" if not swapped else "one pair" if swapped == 1 else f"{swapped} pairs"
    remark = f"{words_of[0]} given and {words_of[1]} filled-in pieces in {_count(len(frames) - 1, 'step')}; "
    remark += f"{pairs} of one colour ended in another order"
    write_whole(path, _figure(f"“{frames[-1].text}”", remark, panels, form, slots if both_rulers else None))


def training_paths(
    sentence: Sentence,
    path: Path | str,
    slots: int | None = None,
    seed: int = 0,
    couplings: Mapping[str, Coupling] = COUPLINGS,
    terminal: Terminal = random_terminal,
) -> dict[str, dict[str, int]]:
    """Draw the straight training paths of a sentence under each coupling; returns the crossings.

    All pictures have the same terminal positions; only their assignment differs. `slots` defaults to a third more than
    words. The result has, for each coupling, the crossings within "prompt" and within "response".
    """
    form = form_of(path)
    panels, counts = [], {}
    for name, coupling in couplings.items():
        found = coupled(sentence, slots, seed, coupling, terminal)
        counts[name] = {"prompt": crossings_within(found, PROMPT), "response": crossings_within(found, RESPONSE)}
        title = f"{name}\n{_count(counts[name]['prompt'], 'crossing')} within the prompt, "
        title += f"{counts[name]['response']} within the response"
        panels.append(Panel(title, "scaled", found, -1.0, 1.0))
    remark = "The straight paths that slots are taught to take, from terminal positions to the text"
    write_whole(path, _figure(f"“{sentence.text}”", remark, panels, form))
    return counts


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _figure(heading: str, remark: str, panels: Sequence[Panel], form: str, ruler: int | None = None) -> bytes:
    """The finished file. `ruler`: the number of slots on a second axis."""
    labelled = max(sum(track.label != "" for track in panel.tracks) for panel in panels)
    letters = max((cell_len(track.label) for panel in panels for track in panel.tracks), default=0)
    high = max(_LEAST_HIGH, _LINE * labelled + 0.3)
    wide = _WIDE * (1.5 if len(panels) == 1 else 1.0)
    left, beside, bottom = 0.75 + _BETWEEN * (ruler is not None), 0.35 + _LETTER * letters, 1.05
    width = len(panels) * (left + wide + beside) + 0.1
    heading = printable(heading)
    broad = _HEADING * cell_len(heading) / len(heading)  # of a character; some are twice as broad
    lines = textwrap.wrap(heading, max(20, int((width - left) / broad)), max_lines=4, placeholder=" …”")
    top = 0.3 + 0.24 * len(lines) + 0.45 + 0.22 * max(panel.title.count("\n") + bool(panel.title) for panel in panels)
    height = bottom + high + top
    with canvas(width, height) as figure:
        for number, panel in enumerate(panels):
            corner = number * (left + wide + beside) + left
            box = (corner / width, bottom / height, wide / width, high / height)
            axes = figure.add_axes(box)
            _draw(axes, panel, number, _LINE / high)
            if ruler is not None:
                there, back = partial(in_slots, L=ruler), partial(from_slots, L=ruler)
                axes.secondary_yaxis(-_BETWEEN / wide, functions=(there, back))
                _name_ruler(axes, "slots", -_BETWEEN / wide)
        at = left * 0.4 / width
        figure.text(at, 1 - 0.14 / height, "\n".join(lines), fontsize=12, weight="bold", va="top", parse_math=False)
        figure.text(at, 1 - (0.2 + 0.24 * len(lines)) / height, remark, color="#444444", va="top", parse_math=False)
        _legend(figure, panels)
        return image(figure, form)


def _draw(axes: Any, panel: Panel, number: int, label_height: float) -> None:
    ends = [place for track in panel.tracks for place in (track.places.min(), track.places.max())]
    low, high = min(panel.low, *ends), max(panel.high, *ends)
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    axes.set_xlim(1.0, 0.0)
    axes.set_ylim(high, low)  # the text is read from top to bottom
    for slot, track in enumerate(panel.tracks):
        _draw_track(axes, track, f"panel-{number}-slot-{slot}")
    named = sorted((track for track in panel.tracks if track.label), key=lambda track: track.places[-1])
    if named:
        size = label_height * (high - low)
        wanted = np.array([float(track.places[-1]) for track in named])
        starts = spread(wanted - size / 2, np.full(len(named), size), low, high)
        for track, start in zip(named, (starts + size / 2).tolist(), strict=True):
            colour = COLOURS[track.kind]
            axes.plot([0, -0.025], [track.places[-1], start], color=colour, linewidth=0.5, alpha=0.6, clip_on=False)
            axes.text(-0.032, start, track.label, color=colour, va="center_baseline", clip_on=False, parse_math=False)
    axes.set_title(panel.title, loc="left", fontsize=10, pad=20)  # above the name of the ruler
    axes.set_xlabel("time t (1: noise, 0: text)")
    _name_ruler(axes, panel.measure, 0.0)


def _name_ruler(axes: Any, name: str, place: float) -> None:
    """The unit of an axis, at its top."""
    look = {"ha": "right", "color": "#444444", "annotation_clip": False}
    axes.annotate(name, (place, 1.0), (-4, 4), "axes fraction", "offset points", **look)


def _draw_track(axes: Any, track: Track, name: str) -> None:
    """One slot: grey while masked, then in its colour, with a dot where its word is revealed. Pads are faint."""
    colour, empty = COLOURS[track.kind], track.kind == PAD or not track.label
    width, alpha = (0.8, 0.8) if empty else (1.6, 0.95)
    dashes = (0, (2, 2)) if track.kind == PAD else "-"
    if track.known > 0:
        masked = slice(0, track.known + 1)
        grey = {"color": WAITING, "linewidth": width * 0.65, "alpha": alpha, "zorder": 1}
        axes.plot(track.times[masked], track.places[masked], **grey)
    look = {"color": colour, "linewidth": width, "alpha": alpha, "linestyle": dashes, "clip_on": False, "zorder": 2}
    (line,) = axes.plot(track.times[track.known :], track.places[track.known :], **look)
    line.set_gid(name)
    if 0 < track.known < len(track.times) and not empty:
        axes.plot(track.times[track.known], track.places[track.known], "o", color=colour, markersize=3.2, clip_on=False)


def _legend(figure: Any, panels: Sequence[Panel]) -> None:
    from matplotlib.lines import Line2D

    some = [track for panel in panels for track in panel.tracks]
    looks: list[dict[str, Any]] = [
        {"color": COLOURS[kind], "linewidth": 1.8, "linestyle": ":" if kind == PAD else "-", "label": name}
        for kind, name in _NAMES.items() if any(track.kind == kind for track in some)
    ]  # fmt: skip
    if any(track.kind == PROMPT and not track.label for track in some):
        looks.append({"color": COLOURS[PROMPT], "linewidth": 0.7, "label": "end of the text"})
    if any(track.known > 0 for track in some):
        looks.append({"color": WAITING, "linewidth": 1.0, "label": "still masked"})
        dot = {"marker": "o", "markersize": 4, "linestyle": "", "label": "word found"}
        looks.append({"color": COLOURS[RESPONSE], **dot})
    entries = [Line2D([], [], **look) for look in looks]
    rows = -(-len(entries) // max(1, int(figure.get_figwidth() / 1.7)))
    figure.legend(handles=entries, loc="lower center", ncols=-(-len(entries) // rows), frameon=False)
