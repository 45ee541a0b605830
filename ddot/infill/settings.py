"""The settings of infilling and their checks, shared by Python, the command line, JSON lines and HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, TypedDict

from ddot.infill.mistakes import Mistake

TERMINALS = ("grid", "random")
PRECISIONS = ("auto", "int8", "float32")


class Options(TypedDict, total=False):
    """The fields of `Settings` as keyword arguments."""

    n: int
    seed: int
    steps: int
    temperature: float
    top_p: float
    terminal: str | None
    avoid: Sequence[str]


@dataclass(frozen=True)
class Settings:
    """How to fill a text.

    n: number of alternatives. seed: the same seed gives the same answer. steps: of the reverse process.
    temperature, top_p: how tokens are sampled; at 0 the best of several candidates is chosen. terminal: where slots
    start before they move, "grid" or "random" (DDOT-U, DDOT-R); without one they stay where they belong. avoid: words
    or phrases, in any case, that no fill may contain.
    """

    n: int = 1
    seed: int = 0
    steps: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    terminal: str | None = None
    avoid: Sequence[str] = ()

    def __post_init__(self) -> None:
        whole_number("n", self.n, 1, 100)
        whole_number("seed", self.seed)
        whole_number("steps", self.steps, 1, 1000)
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _wrong(name, value, "; wanted a number")
        if not 0 <= self.temperature <= 10:
            raise _wrong("temperature", self.temperature, "; it must be between 0 (the best candidate) and 10")
        if not 0 < self.top_p <= 1:
            raise _wrong("top_p", self.top_p, "; it must be above 0 and at most 1")
        if self.terminal is not None:
            one_of("terminal", self.terminal, TERMINALS)
        if not isinstance(self.avoid, list | tuple) or not all(isinstance(word, str) for word in self.avoid):
            raise _wrong("avoid", self.avoid, "; wanted a list of words")
        for word in self.avoid:
            if not any(map(str.isalnum, word)):
                raise _wrong("avoid", word, ", which is no word; each must have letters or digits", "has")
        object.__setattr__(self, "avoid", tuple(dict.fromkeys(" ".join(word.split()) for word in self.avoid)))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Settings from keyword arguments; a misspelt name is a TypeError that says which there are."""
        names = [field.name for field in fields(cls)]
        if unknown := [name for name in given if name not in names]:
            near = get_close_matches(unknown[0], names, 1)
            hint = f"is it {near[0]}?" if near else f"there are {', '.join(names)}"
            raise TypeError(f"there is no setting '{unknown[0]}'; {hint}")
        return cls(**given)

    def updated(self, given: Mapping[str, Any]) -> "Settings":
        """These settings with those in `given`, which may hold other things too; None leaves a setting as it is."""
        names = [field.name for field in fields(self) if given.get(field.name) is not None]
        return replace(self, **{name: given[name] for name in names})


def whole_number(name: str, value: object, least: int | None = None, most: int | None = None) -> None:
    """Refuse a value that is not a whole number within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, "; wanted a whole number")
    if (least is not None and value < least) or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        raise _wrong(name, value, f"; it must be {wanted}")


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of these names."""
    if not isinstance(value, str) or value not in allowed:
        raise _wrong(name, value, f"; there are {', '.join(allowed)}")


def _wrong(name: str, value: object, wanted: str, verb: str = "is") -> Mistake:
    return Mistake(lambda say: f"{say.name(name)} {verb} {say.value(value)}{wanted}")
