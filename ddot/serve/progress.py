"""What becomes of a text while it is filled: attempt after attempt, window by window.

`Model.way` tries until it has enough different answers; whoever watches wants to know which of them he sees, and
whoever is billed how many tokens it has.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ddot.infill.engine import Looks, Task
from ddot.infill.model import Model
from ddot.infill.spacing import set_fills
from ddot.infill.template import Template


@dataclass(frozen=True)
class Attempt:
    """The number of an attempt, from 0, and how many tokens it filled in."""

    number: int
    tokens: int


class Attempts:
    """Follows the tasks of one text, whose `template` has no locked blanks left."""

    def __init__(self, model: Model, template: Template):
        self.spell: Callable[..., str] = model.filler.alphabet.spell
        self.template = template
        self.number, self.window = 0, 0
        self.made: dict[str, Attempt] = {}  # by the text it led to; the first one, as `Model.way` keeps them
        self._raw: list[str] = []
        self._tokens = 0

    def follow(self, task: Task) -> Task:
        """To be told every task before it is run. The last one of a window holds what was found for its blanks."""
        if isinstance(task, Looks):
            self._raw += [self.spell(tokens) for tokens in task.found]
            self._tokens += sum(map(len, task.found))
            self.window += 1
        elif len(self._raw) == len(self.template.blanks):
            self._begin_anew()
        return task

    def of(self, text: str) -> Attempt:
        """The attempt that led to a text. A text without blanks is nobody's work."""
        if self._raw:
            self._begin_anew()
        return self.made.get(text, Attempt(0, 0))

    def _begin_anew(self) -> None:
        text = self.template.text(set_fills(self.template, self._raw))
        self.made.setdefault(text, Attempt(self.number, self._tokens))
        self.number, self.window, self._raw, self._tokens = self.number + 1, 0, [], 0
