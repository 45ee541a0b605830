"""Sampling for the tables: slots move, or stay where they belong, and the prompt is kept in order by projection."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import UInt64

from ddot.core.positions import Terminal, grid_terminal
from ddot.core.records import Prompt, State
from ddot.core.sampling import MostCertainFirst, Restriction, Reveal
from ddot.infill.engine import kept
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser


@dataclass(frozen=True)
class Sampling:
    """How to sample. Where lengths are not given, the diffusion itself decides how much text a gap gets (the paper)."""

    steps: int = 16
    slots: int = 64  # L
    terminal: Terminal = grid_terminal
    reveal: Reveal = field(default_factory=MostCertainFirst)
    still: bool = False  # with given lengths: slots start where they belong and do not move
    restrictions: tuple[Restriction, ...] = ()


def fill(model: Denoiser, prompts: Sequence[Prompt], keys: UInt64[np.ndarray, "B"], how: Sampling) -> Iterator[State]:
    """The states of a batch of prompts, from t = 1 to 0. Nothing ever lies in a closed gap."""
    examples = [prompt.example for prompt in prompts]
    if how.still:
        method: FixedLength | DDOT = FixedLength(reveal=how.reveal, restrictions=how.restrictions)
    else:
        projections = kept(model, prompts, how.slots)
        method = DDOT(terminal=how.terminal, reveal=how.reveal, projections=projections, restrictions=how.restrictions)
    return method.sample(model, examples, how.slots, how.steps, keys)
