"""Ways of filling a benchmark, by the names that rows carry, and which training each of them wants."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ddot.core.annealing import greedy, greedy_words
from ddot.core.coupling import couple_independently
from ddot.core.positions import AsText, Terminal, grid_terminal, random_terminal, starts_of
from ddot.core.records import Prompt
from ddot.core.sampling import Leap, MostCertainFirst, Reveal
from ddot.evaluation.items import Prompted
from ddot.infill.engine import Settings
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction


def _told_true_lengths(prompt: Prompted) -> Prompt:
    return prompt.prompt.with_gap_lengths(prompt.gap_lengths)


def _told_a_guess(prompt: Prompted) -> Prompt:
    """Every text is made as long as usual; what is missing is shared out evenly among the open gaps."""
    is_open = prompt.prompt.is_open[1:]
    gap_length = np.zeros(len(prompt.prompt), np.int64)
    places = np.flatnonzero(is_open)
    missing = max(len(places), prompt.guess - len(prompt.prompt))
    if len(places):
        gap_length[places] = missing // len(places)
        gap_length[places[: missing % len(places)]] += 1
    return prompt.prompt.with_gap_lengths(gap_length)


@dataclass(frozen=True)
class Way:
    """A way of filling, under the name its rows carry.

    `tell` gives the network the lengths of gaps beforehand; with `plans` they are those it expects itself.
    With a `method` of its own the whole text is read as it comes out: nothing makes sure that it holds the prompt.
    """

    name: str
    settings: Settings = field(default_factory=Settings)
    tell: Callable[[Prompted], Prompt] | None = None
    plans: bool = False
    method: Method | None = None

    @property
    def hears(self) -> bool:
        """Whether the network is told where words are missing, when that is known."""
        return not isinstance(self.method, LeftContext)

    def learnt_by(self, trained: Method) -> bool:
        """Whether a model that was trained by a method has learnt to fill so: the same one, from such starts."""
        mine = self.method or (FixedLength() if self.settings.still else DDOT(self.settings.terminal))
        if not isinstance(mine, DDOT):
            return isinstance(trained, type(mine))
        return (
            isinstance(trained, DDOT)
            and trained.couple is mine.couple
            and starts_of(mine.terminal) <= starts_of(trained.terminal)
        )


def ways() -> dict[str, Way]:
    """The ways there are, by name.

    ddot-u, ddot-r     grid or random start, the likeliest tokens, surest first; pads decide the length, and nothing but
                       the network keeps the prompt in order
    ddot-t             as ddot-u, but the prompt starts as a text, neighbours side by side; for a model trained so
    no-ot, no-ot-u     as ddot-r and ddot-u, for a model trained without optimal transport
    lc, pop            the paper's baselines, for models trained so; lc cannot be told where words are missing
    …-leap             each of these with the paper's τ-leaps, which end in too many pads (docs/log.md)
    …-drawn            each of these with [pad]s drawn as the model says: likeliest words, but no likeliest length
    …-kept             ddot-u, -r and -t with the prompt's order and its whole words kept by projection; -kept-drawn too
    ddot-u-planned, ddot-r-planned   as -kept, and the network first says how long each gap is
    planned            planned lengths, slots that stay where they belong: `ddot infill` without its rules of spelling
                       and its taste for short fills
    fixed-guessed, fixed-oracle      plain masked diffusion at a guessed and at the true length
    autoregressive     left to right after the prompt, for a model trained so; takes a look a token, whatever the steps
    insertion          a token into every gap that wants one, again and again, for a model trained so
    """
    still = Settings(still=True)
    reveals: dict[str, Reveal] = {
        "": MostCertainFirst(greedy),
        "-leap": Leap(greedy),
        "-drawn": MostCertainFirst(greedy_words),
    }
    starts: dict[str, Terminal] = {"ddot-u": grid_terminal, "ddot-r": random_terminal, "ddot-t": AsText()}
    moving = {name: DDOT(terminal=terminal, projections=()) for name, terminal in starts.items()}
    by_pads: dict[str, DDOT | LeftContext | PositionPrediction] = {
        **moving,
        "no-ot": replace(moving["ddot-r"], couple=couple_independently),
        "no-ot-u": replace(moving["ddot-u"], couple=couple_independently),
        "lc": LeftContext(),
        "pop": PositionPrediction(),
    }
    made = [
        *(
            Way(name + suffix, method=replace(method, reveal=reveal))
            for suffix, reveal in reveals.items()
            for name, method in by_pads.items()
        ),
        *(
            Way(f"{name}-kept{suffix}", Settings(terminal=terminal, reveal=reveals[suffix]))
            for suffix in ("", "-drawn")
            for name, terminal in starts.items()
        ),
        Way("ddot-u-planned", Settings(terminal=grid_terminal), plans=True),
        Way("ddot-r-planned", Settings(terminal=random_terminal), plans=True),
        Way("planned", still, plans=True),
        Way("fixed-guessed", still, _told_a_guess),
        Way("fixed-oracle", still, _told_true_lengths),
        Way("autoregressive", method=Autoregressive()),
        Way("insertion", method=Insertion()),
    ]
    return {way.name: way for way in made}
