"""What a user may choose of how blanks are filled."""

from dataclasses import dataclass

from ddot.core.annealing import Annealing, Tempered, greedy, greedy_words
from ddot.core.positions import Terminal, grid_terminal, random_terminal

TERMINALS: dict[str, Terminal] = {"grid": grid_terminal, "random": random_terminal}
STEPS = 16


@dataclass(frozen=True)
class Choice:
    """How to fill. Without `terminal` slots stay where they belong; with one, they start there and move.

    Lengths are planned first where the network can say them; otherwise slots always move and [pad]s decide.
    """

    steps: int = STEPS
    temperature: float = 0.0
    top_p: float = 1.0
    terminal: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("temperature", self.temperature), ("top_p", self.top_p)):
            if isinstance(value, bool) or not isinstance(value, int if name == "steps" else int | float):
                raise ValueError(f"{name} is {value!r}; wanted a {'whole ' * (name == 'steps')}number")
        if not 1 <= self.steps <= 1000:
            raise ValueError(f"steps is {self.steps}; it must lie between 1 and 1000")
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"temperature is {self.temperature}; it must lie between 0 (the likeliest) and 10")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must lie in (0, 1]")
        if self.terminal is not None and self.terminal not in TERMINALS:
            raise ValueError(f"terminal is '{self.terminal}'; there are {', '.join(TERMINALS)}")

    @property
    def anneal(self) -> Annealing:
        if self.temperature > 0:
            return Tempered(self.temperature, self.top_p)
        return greedy if self.terminal is None else greedy_words
