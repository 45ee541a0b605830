"""Filling as people see it: one frame for each state."""

from dataclasses import dataclass

from ddot.core.records import OPEN, State, Vocabulary
from ddot.typist import Alphabet, View

MASKED = "░"


@dataclass(frozen=True)
class Frame:
    """One moment of filling. For each slot: its piece of text (None: masked; "": no word), its place, was it given."""

    t: float
    pieces: list[str | None]
    positions: list[float]
    given: list[bool]

    @property
    def text(self) -> str:
        """How the text reads now, with ░ for what is still masked."""
        order = sorted(range(len(self.pieces)), key=lambda i: (self.positions[i], i))
        return "".join(f" {MASKED}" if self.pieces[i] is None else str(self.pieces[i]) for i in order).strip()


def frame_of(state: State, seen: View, alphabet: Alphabet, vocabulary: Vocabulary) -> Frame:
    """How the first row of a state looks while what was seen is filled."""
    given = (state.kind[0] != OPEN).tolist()
    prompt = iter(seen.pieces)  # given slots are in the order of the text
    pieces: list[str | None] = []
    for token, is_given in zip(state.x[0].tolist(), given, strict=True):
        if is_given:
            pieces.append(next(prompt))
        elif token == vocabulary.mask:
            pieces.append(None)
        else:
            pieces.append(alphabet.pieces[token] if token < vocabulary.base else "")
    return Frame(float(state.t[0]), pieces, state.z[0].tolist(), given)
