"""Frames: states of filling as text, and traces, files of frames to be watched or plotted later.

{"text": "We were so ___ wedding.", "settings": {"seed": 0, "steps": 16}, "frames": [
{"t": 1.0, "pieces": [" We", null, …], "positions": [-1.0, -0.5, …], "given": [true, false, …]},
…
]}
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddot.files import write_whole

if TYPE_CHECKING:  # a trace is read without torch
    from ddot.core.records import State, Vocabulary
    from ddot.infill.alphabet import Alphabet
    from ddot.infill.view import View

MASKED = "░"


@dataclass(frozen=True)
class Frame:
    """One state of filling. For each slot: its piece of text (None: masked; "": no word), position, whether given."""

    t: float
    pieces: list[str | None]
    positions: list[float]
    given: list[bool]

    @property
    def text(self) -> str:
        """How the text reads now, with ░ for what is still masked."""
        order = sorted(range(len(self.pieces)), key=lambda i: (self.positions[i], i))
        return "".join(f" {MASKED}" if self.pieces[i] is None else str(self.pieces[i]) for i in order).strip()


def frame_of(state: "State", seen: "View", alphabet: "Alphabet", vocabulary: "Vocabulary", row: int = 0) -> Frame:
    """The frame of a row of a state, for the view that it fills."""
    given = state.is_prompt[row].tolist()
    prompt = iter(seen.pieces)  # given slots are in the order of the text
    pieces: list[str | None] = []
    for token, is_given in zip(state.x[row].tolist(), given, strict=True):
        if is_given:
            pieces.append(next(prompt))
        elif token == vocabulary.mask:
            pieces.append(None)
        else:
            pieces.append(alphabet.pieces[token] if token < vocabulary.base else "")
    return Frame(float(state.t[row]), pieces, state.z[row].tolist(), given)


@dataclass(frozen=True)
class Trace:
    """What was filled, with which settings, and every frame."""

    text: str
    settings: dict[str, Any]
    frames: list[Frame]


def save_trace(path: Path | str, text: str, settings: dict[str, Any], frames: Sequence[Frame]) -> None:
    """Write a trace. The file is either the whole new one or what was there before."""
    head = json.dumps({"text": text, "settings": settings}, ensure_ascii=False, allow_nan=False)
    lines = [json.dumps(asdict(frame), ensure_ascii=False, allow_nan=False) for frame in frames]
    body = ",\n".join(lines)
    write_whole(path, f'{head[:-1]}, "frames": [\n{body}\n]}}\n'.encode())


def load_trace(path: Path | str) -> Trace:
    """The trace in a file; a damaged one is refused."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no trace at {path}; make one with ddot infill … --trace {path}")
    try:
        trace = json.loads(path.read_bytes())
        _check(trace["text"], trace["settings"], trace["frames"])
    except (ValueError, KeyError, TypeError) as error:  # bad JSON and bad UTF-8 alike
        advice = f"write it again with ddot infill … --trace {path}"
        raise ValueError(f"{path} is not a whole trace ({error}); {advice}") from None
    return Trace(trace["text"], trace["settings"], [Frame(**frame) for frame in trace["frames"]])


def _check(text: Any, settings: Any, frames: Any) -> None:
    if not (isinstance(text, str) and isinstance(settings, dict) and isinstance(frames, list) and frames):
        raise ValueError("wanted a text, settings and frames")
    given, last = frames[0]["given"], 1.0
    for number, frame in enumerate(frames, 1):
        lists = [frame[name] for name in ("pieces", "positions", "given")]
        fits = len(frame) == 4 and frame["given"] == given and all(isinstance(each, list) for each in lists)
        fits = fits and given and {len(each) for each in lists} == {len(given)}
        fits = fits and all(isinstance(piece, str | None) for piece in frame["pieces"])
        fits = fits and all(isinstance(each, bool) for each in frame["given"])
        if not fits or not all(map(_is_number, (frame["t"], *frame["positions"]))) or not 0 <= frame["t"] <= last:
            raise ValueError(f"frame {number} is damaged")
        last = frame["t"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
