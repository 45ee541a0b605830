"""How blanks are filled: the one list of settings, with its checks, for Python, command line, JSON lines and HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from ddot.core.annealing import Annealing, Tempered, greedy, greedy_words
from ddot.core.positions import Terminal, grid_terminal, random_terminal

TERMINALS: dict[str, Terminal] = {"grid": grid_terminal, "random": random_terminal}


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
    temperature, top_p: how tokens are drawn; at temperature 0 the likeliest is taken. terminal: without one, slots stay
    where they belong; "grid" or "random" is where they start before they move (DDOT-U, DDOT-R). avoid: words or phrases
    that no fill holds, in small letters or capitals.
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
                raise ValueError(f"{name} is {short(value)}; wanted a number")
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"temperature is {self.temperature}; it must be between 0 (the likeliest) and 10")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.terminal is not None and (not isinstance(self.terminal, str) or self.terminal not in TERMINALS):
            raise ValueError(f"terminal is {short(self.terminal)}; there are {', '.join(TERMINALS)}")
        if not isinstance(self.avoid, list | tuple) or not all(isinstance(word, str) for word in self.avoid):
            raise ValueError(f"avoid is {short(self.avoid)}; wanted a list of words")
        if not all(any(map(str.isalnum, word)) for word in self.avoid):
            raise ValueError(f"avoid is {short(self.avoid)}; each must be a word, or words, of letters or digits")
        object.__setattr__(self, "avoid", tuple(dict.fromkeys(" ".join(word.split()) for word in self.avoid)))

    def updated(self, given: Mapping[str, Any]) -> "Settings":
        """These settings with those in `given`, which may hold other things too; None leaves a setting as it is."""
        names = [field.name for field in fields(self) if given.get(field.name) is not None]
        return replace(self, **{name: given[name] for name in names})

    @property
    def anneal(self) -> Annealing:
        """How a token is chosen from its distribution."""
        if self.temperature > 0:
            return Tempered(self.temperature, self.top_p)
        return greedy if self.terminal is None else greedy_words


def whole_number(name: str, value: object, least: int | None = None, most: int | None = None) -> None:
    """Refuse a value that is not a whole number within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {short(value)}; wanted a whole number")
    if (least is not None and value < least) or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{name} is {value}; it must be {wanted}")


def short(value: object) -> str:
    """A value as it is quoted in an error."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
