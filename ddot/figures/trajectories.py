"""Figures of moving slots: during a fill (`trajectories`) and in training (`training_paths`).

Time runs from noise (t = 1, left) to text (t = 0, right); the text reads from top to bottom. PNG or SVG by file name.
Needs the extra `plots`.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len

from ddot.core.codes import PAD, PROMPT, RESPONSE
from ddot.core.coupling import Coupling, couple, couple_independently
from ddot.core.positions import random_terminal
from ddot.core.rng import generator, row_keys
from ddot.data.masks import Blocks, Units
from ddot.figures.canvas import canvas, printable, spread
from ddot.infill.frames import Frame

COLOURS = {PROMPT: "#0072B2", RESPONSE: "#D55E00", PAD: "#BBBBBB"}  # distinguishable for colour-blind readers
WAITING = "#A8A8A8"
_NAMES = {PROMPT: "given (prompt)", RESPONSE: "filled in (response)", PAD: "left empty (pad)"}

COUPLINGS: dict[str, Coupling] = {
    "Without optimal transport": couple_independently,
    "With optimal transport": couple,
}
_LONGEST = 22  # characters of a label

# In inches: a panel, a letter and a line of labels; the distance of two rulers, a letter of the heading.
_WIDE, _LEAST_HIGH, _LETTER, _LINE = 4.6, 3.4, 0.078, 0.175
_BETWEEN, _HEADING = 0.6, 0.11


@dataclass(frozen=True)
class Track:
    """The path of one slot: its place at each time. Its token is revealed at times[known]."""

    kind: int  # PROMPT, RESPONSE, PAD
    label: str
    times: Float[np.ndarray, "steps"]
    places: Float[np.ndarray, "steps"]
    known: int


@dataclass(frozen=True)
class Sentence:
    """The words of a text, and which of them are given."""

    words: list[str]
    is_prompt: list[bool]


def marked_sentence(text: str, seed: int = 0) -> Sentence:
    """A sentence with its [missing words] in brackets; without brackets, some are chosen as in training."""
    if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", text)):
        raise ValueError(f"'{text}' has an unmatched bracket; write it as in 'She [opened the] door'")
    words, is_prompt = [], []
    for part in re.findall(r"\[[^\[\]]*\]|[^\[\]]+", text):
        piece = part.strip("[]").split()
        words += piece
        is_prompt += [not part.startswith("[")] * len(piece)
    if not words:
        raise ValueError("the text is empty; give a sentence, such as 'She [opened the] door'")
    if all(is_prompt) and len(words) > 1:
        rng, mask = generator(int(row_keys(seed, 1)[0])), Blocks(low=1, high=3)
        while all(is_prompt):
            is_prompt = mask(Units.alike(len(words)), rng).tolist()
    return Sentence(words, is_prompt)


def tracks(frames: Sequence[Frame], scaled: bool) -> list[Track]:
    """The path of every slot, in units of slots, or scaled to undo the shrinking of eq. init_pos."""
    last, L = frames[-1], len(frames[-1].pieces)
    kinds = [
        PROMPT if given else PAD if piece == "" else RESPONSE
        for piece, given in zip(last.pieces, last.given, strict=True)
    ]
    times = np.array([frame.t for frame in frames])
    z = np.array([frame.positions for frame in frames])
    share = 1 - kinds.count(PAD) / L
    places = z / (times + (1 - times) * share)[:, None] if scaled else in_slots(z, L)
    paths = []
    for slot, kind in enumerate(kinds):
        known = next((n for n, frame in enumerate(frames) if frame.pieces[slot] is not None), len(frames))
        label = _short(last.pieces[slot]) if kind != PAD else ""
        paths.append(Track(kind, label, times, places[:, slot], known))
    return paths


def coupled(sentence: Sentence, seed: int, coupling: Coupling) -> list[Track]:
    """The straight paths of a sentence's slots under a coupling (eq. train-paths); L is a third more than its words."""
    n = len(sentence.words)
    L = n + -(-n // 3)
    is_prompt = np.zeros((1, L), bool)
    is_prompt[0, :n] = sentence.is_prompt
    keys = row_keys(seed, 1)
    z_0, z_T = coupling(is_prompt, np.array([n]), keys, random_terminal(is_prompt, keys))
    ends = np.array([1.0, 0.0])
    places = np.stack([z_T[0], z_0[0]], axis=1).astype(np.float64)
    kinds = [PROMPT if given else RESPONSE for given in sentence.is_prompt] + [PAD] * (L - n)
    labels = [_short(word) for word in sentence.words] + [""] * (L - n)
    return [Track(kinds[slot], labels[slot], ends, places[slot], 0) for slot in range(L)]


def crossings(z_T: Float[np.ndarray, "n"], z_0: Float[np.ndarray, "n"]) -> int:
    """Number of pairs of straight paths from z_T to z_0 that cross."""
    return int(((z_T[:, None] < z_T) & (z_0[:, None] > z_0)).sum())


def crossings_within(paths: Sequence[Track], kind: int) -> int:
    """Number of pairs of slots of one kind that swap their order."""
    members = [track for track in paths if track.kind == kind]
    return crossings(np.array([t.places[0] for t in members]), np.array([t.places[-1] for t in members]))


def in_slots(z: np.ndarray, L: int) -> np.ndarray:
    """Positions in [-1, 1] in units of slots: neighbours in the text are about 1 apart."""
    return (z + 1) * (L / 2)


def _short(piece: str | None) -> str:
    """The label of a token; empty if its slot is masked or a pad."""
    if not piece:
        return ""
    shown = printable(piece).strip() or "␣"
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


@dataclass(frozen=True)
class Panel:
    """One plot: tracks, and the unit of their places."""

    title: str
    unit: str  # "scaled": in [-1, 1], "slots": in [0, L]
    tracks: list[Track]


def trajectories(frames: Sequence[Frame], path: Path | str, scaled: bool | None = None) -> None:
    """Draw the positions of slots during a fill (the paper's Path Visualizations).

    Unscaled positions count slots. Scaled ones lie in [-1, 1] and undo the shrinking of a text that is shorter than L:
    pads run level, and straight paths may bend. None shows both: side by side, or as two axes of one plot if there are
    no pads, since they look the same then.
    """
    if not frames:
        raise ValueError("there are no frames to plot; fill a text first")
    in_units, in_scale = tracks(frames, scaled=False), tracks(frames, scaled=True)
    panels = [
        Panel("Scaled: the text spans [−1, 1] at every moment", "scaled", in_scale),
        Panel("Unscaled: places in the context", "slots", in_units),
    ]
    both_rulers = scaled is None and all(track.kind != PAD for track in in_units)
    if scaled is not None:
        panels = [panels[0] if scaled else panels[1]]
    elif both_rulers:
        panels = [Panel("", "scaled", in_scale)]
    given, filled = (sum(track.kind == kind and track.label != "" for track in in_units) for kind in (PROMPT, RESPONSE))
    swapped = sum(crossings_within(in_units, kind) for kind in (PROMPT, RESPONSE))
    pairs = "no two" if not swapped else "one pair" if swapped == 1 else f"{swapped} pairs"
    remark = f"{given} given and {filled} filled-in pieces in {_count(len(frames) - 1, 'step')}; "
    remark += f"{pairs} of one colour ended in another order"
    _draw_figure(path, f"“{frames[-1].text}”", remark, panels, len(in_units) if both_rulers else None)


def training_paths(sentence: Sentence, path: Path | str, seed: int = 0) -> dict[str, dict[str, int]]:
    """Draw the straight training paths of a sentence under each coupling; returns the crossings within "prompt" and
    within "response". Terminal positions are the same in all plots; only their assignment differs."""
    panels, counts = [], {}
    for name, coupling in COUPLINGS.items():
        paths = coupled(sentence, seed, coupling)
        counts[name] = {"prompt": crossings_within(paths, PROMPT), "response": crossings_within(paths, RESPONSE)}
        title = f"{name}\n{_count(counts[name]['prompt'], 'crossing')} within the prompt, "
        title += f"{counts[name]['response']} within the response"
        panels.append(Panel(title, "scaled", paths))
    remark = "The straight paths that slots are taught to take, from terminal positions to the text"
    _draw_figure(path, f"“{' '.join(sentence.words)}”", remark, panels)
    return counts


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _draw_figure(
    path: Path | str, heading: str, remark: str, panels: Sequence[Panel], ruler: int | None = None
) -> None:
    """`ruler`: the number of slots, for a second axis."""
    labelled = max(sum(track.label != "" for track in panel.tracks) for panel in panels)
    letters = max((cell_len(track.label) for panel in panels for track in panel.tracks), default=0)
    high = max(_LEAST_HIGH, _LINE * labelled + 0.3)
    wide = _WIDE * (1.5 if len(panels) == 1 else 1.0)
    left, beside, bottom = 0.75 + _BETWEEN * (ruler is not None), 0.35 + _LETTER * letters, 1.05
    width = len(panels) * (left + wide + beside) + 0.1
    heading = printable(heading)
    letter = _HEADING * cell_len(heading) / len(heading)  # mean width; some characters are double width
    lines = textwrap.wrap(heading, max(20, int((width - left) / letter)), max_lines=4, placeholder=" …”")
    top = 0.3 + 0.24 * len(lines) + 0.45 + 0.22 * max(panel.title.count("\n") + bool(panel.title) for panel in panels)
    height = bottom + high + top
    with canvas(path, width, height) as figure:
        for number, panel in enumerate(panels):
            corner = number * (left + wide + beside) + left
            box = (corner / width, bottom / height, wide / width, high / height)
            axes = figure.add_axes(box)
            _draw(axes, panel, number, _LINE / high)
            if ruler is not None:
                functions = (lambda z: in_slots(z, ruler), lambda slots: slots * (2 / ruler) - 1)
                axes.secondary_yaxis(-_BETWEEN / wide, functions=functions)
                _name_ruler(axes, "slots", -_BETWEEN / wide)
        at = left * 0.4 / width
        figure.text(at, 1 - 0.14 / height, "\n".join(lines), fontsize=12, weight="bold", va="top", parse_math=False)
        figure.text(at, 1 - (0.2 + 0.24 * len(lines)) / height, remark, color="#444444", va="top", parse_math=False)
        _legend(figure, panels)


def _draw(axes: Any, panel: Panel, number: int, label_height: float) -> None:
    ends = [place for track in panel.tracks for place in (track.places.min(), track.places.max())]
    low, high = (0.0, float(len(panel.tracks))) if panel.unit == "slots" else (-1.0, 1.0)
    low, high = min(low, *ends), max(high, *ends)
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    axes.set_xlim(1.0, 0.0)
    axes.set_ylim(high, low)  # the text is read from top to bottom
    for slot, track in enumerate(panel.tracks):
        _draw_track(axes, track, f"panel-{number}-slot-{slot}")
    named = sorted((track for track in panel.tracks if track.label), key=lambda track: track.places[-1])
    if named:
        size = label_height * (high - low)
        centres = np.array([float(track.places[-1]) for track in named])
        starts = spread(centres - size / 2, np.full(len(named), size), low, high)
        for track, start in zip(named, (starts + size / 2).tolist(), strict=True):
            colour = COLOURS[track.kind]
            axes.plot([0, -0.025], [track.places[-1], start], color=colour, linewidth=0.5, alpha=0.6, clip_on=False)
            axes.text(-0.032, start, track.label, color=colour, va="center_baseline", clip_on=False, parse_math=False)
    axes.set_title(panel.title, loc="left", fontsize=10, pad=20)  # above the unit of the axis
    axes.set_xlabel("time t (1: noise, 0: text)")
    _name_ruler(axes, panel.unit, 0.0)


def _name_ruler(axes: Any, name: str, place: float) -> None:
    """The unit of an axis, at its top."""
    look = {"ha": "right", "color": "#444444", "annotation_clip": False}
    axes.annotate(name, (place, 1.0), (-4, 4), "axes fraction", "offset points", **look)


def _draw_track(axes: Any, track: Track, name: str) -> None:
    """One slot: grey while masked, then in its colour, with a dot where its token is revealed. Pads are faint."""
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

    paths = [track for panel in panels for track in panel.tracks]
    looks: list[dict[str, Any]] = [
        {"color": COLOURS[kind], "linewidth": 1.8, "linestyle": ":" if kind == PAD else "-", "label": name}
        for kind, name in _NAMES.items() if any(track.kind == kind for track in paths)
    ]  # fmt: skip
    if any(track.kind == PROMPT and not track.label for track in paths):
        looks.append({"color": COLOURS[PROMPT], "linewidth": 0.7, "label": "end of the text"})
    if any(track.known > 0 for track in paths):
        looks.append({"color": WAITING, "linewidth": 1.0, "label": "still masked"})
        dot = {"marker": "o", "markersize": 4, "linestyle": "", "label": "word found"}
        looks.append({"color": COLOURS[RESPONSE], **dot})
    entries = [Line2D([], [], **look) for look in looks]
    rows = -(-len(entries) // max(1, int(figure.get_figwidth() / 1.7)))
    figure.legend(handles=entries, loc="lower center", ncols=-(-len(entries) // rows), frameon=False)
