"""`ddot bench methods`: the cost of sampling steps for each method, relative to left context, interleaved in one run.

All texts have the same number of slots; left context reads twice as many. Weights do not affect speed: all methods run
on those of the model.
"""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddot.core.rng import row_keys
from ddot.evaluation.speed.infill import seconds, varied
from ddot.infill.lengths import roomy
from ddot.infill.model import load
from ddot.infill.template import parse
from ddot.infill.view import view
from ddot.methods.ddot import DDOT
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.devices import device_name

METHODS: dict[str, Method] = {"lc": LeftContext(), "pop": PositionPrediction(), "ddot-u": DDOT(projections=())}


def measure(
    model: str | Path | None = None,
    steps: Sequence[int] = (2, 4, 8, 16),
    texts: int | None = None,
    rounds: int = 3,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Rows: milliseconds per text, and the speed-up over left context in the same round; medians over rounds.

    `texts`: the batch (default: one, or 512 on a GPU).
    """
    for name, number in (*(("steps", K) for K in steps), ("texts", texts), ("rounds", rounds)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; at least 1 is wanted")
    loaded = load(model, device)
    count = texts or (512 if loaded.device.type == "cuda" else 1)
    # The words alone, not where any are missing.
    prompts = [view(parse(text), loaded.tokenizer, located=False).prompt.example for text in varied(count)]
    times: dict[tuple[int, str], list[float]] = {}

    def sample(name: str, steps: int) -> None:
        for _ in METHODS[name].sample(loaded.denoiser, prompts, roomy(0), steps, row_keys(0, count)):
            pass

    with torch.inference_mode(), loaded.denoiser.half_precision():
        for turn, K, name in product(range(rounds + 1), steps, METHODS):
            if turn:  # the first round warms up
                print(f"ddot: round {turn} of {rounds}, {name}, {K} steps", file=sys.stderr)
            spent = seconds(partial(sample, name, K if turn else 1), loaded.device)
            times.setdefault((K, name), []).extend([spent] * bool(turn))
    rows = []
    for (K, name), some in times.items():
        faster = float(np.median(np.divide(times[K, "lc"], some)))  # within a round: the speed of a machine varies
        rows.append({
            "sampler": name, "device": device_name(loaded.denoiser.device), "texts_at_once": count, "steps": K,
            "ms_a_text": 1000 * float(np.median(some)) / count, "times_lc": faster,
        })  # fmt: skip
    return rows
