"""A request: a text to fill and how, checked before anything is loaded. Imports no network."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ddot.infill.mistakes import Mistake
from ddot.infill.settings import Settings, whole_number
from ddot.infill.template import Template, counted, lock, parse
from ddot.infill.template import free as words_in_order

Fills = Sequence[str | None]
ROLLOUTS = 16  # quick fillings in which lengths are counted
_MOST_ROLLOUTS = 10_000


@dataclass(frozen=True)
class Request:
    """A text to fill: its template with locked blanks as literal text, the `whole` template, the locked fills, and how.

    `located`: the network is told where the blanks are. `seconds`: a time limit, kept by fewer words.
    `max_tokens`: of each blank. `fill_prefix`: the letters that the first fill begins with.
    """

    template: Template
    whole: Template
    locked: tuple[str | None, ...]
    settings: Settings = field(default_factory=Settings)
    located: bool = True
    seconds: float | None = None
    max_tokens: int | None = None
    fill_prefix: str = ""

    @property
    def n_attempts(self) -> int:
        """How many attempts are made at each temperature."""
        n = self.settings.n
        return 2 * n if n > 1 and any(blank.most != 0 for blank in self.template.blanks) else 1


def request(
    text: str | Template,
    settings: Settings | None = None,
    free: bool = False,
    fills: Fills | None = None,
    seconds: float | None = None,
) -> Request:
    """A text to fill, checked: mistakes raise a ValueError here, before any work is done."""
    if fills is not None and not isinstance(fills, list | tuple):
        raise Mistake(
            lambda say: f"fills is {say.value(fills)}; wanted a list with a string or {say.open} for each blank"
        )
    template = template_of(text, free)
    locked = (None,) * len(template.blanks) if fills is None else tuple(fills)
    return Request(lock(template, locked), template, locked, settings or Settings(), not free, seconds)


def to_score(text: str, fills: Sequence[str], settings: Settings | None = None) -> Request:
    """A request to score these fills, one for each blank and within its bounds."""
    asked = request(text, settings)
    blanks = len(asked.template.blanks)
    if isinstance(fills, list | tuple) and (None in fills or len(fills) != blanks):
        given = f"{counted(len(fills), 'fill')} for {counted(blanks, 'blank')}"
        missing = f"the fill of blank {[*fills, None].index(None) + 1} is missing"
        raise ValueError(f"{missing if len(fills) == blanks else given}; give the fill of every blank")
    request(asked.template, fills=fills)
    return asked


def to_count(text: str, seed: int = 0, rollouts: int = ROLLOUTS, steps: int = 4) -> Request:
    """A request for fills drawn in this many rollouts, to count their words."""
    whole_number("rollouts", rollouts, 1, _MOST_ROLLOUTS)
    return request(text, Settings(seed=seed, steps=steps, temperature=1.0))


def template_of(text: str | Template, free: bool = False) -> Template:
    """The template of a text: its literals and blanks."""
    if isinstance(text, Template):
        return text
    if not isinstance(text, str):
        raise Mistake(lambda say: f"text is {say.value(text)}; wanted a string")
    return words_in_order(text) if free else parse(text)
