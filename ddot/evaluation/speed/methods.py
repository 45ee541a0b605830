"""`ddot bench methods`: the cost of sampling steps for each method, relative to left context, interleaved in one run.

All texts have the same number of slots; left context reads twice as many. Weights do not affect speed: all methods run
on those of the model.
"""

import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddot.evaluation.speed.infill import prompt_of, sample, varied
from ddot.infill.model import load
from ddot.methods.ddot import DDOT
from ddot.methods.left_context import LeftContext
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.devices import called

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
    on_gpu = loaded.denoiser.device.type == "cuda"
    count = texts or (512 if on_gpu else 1)
    prompts = [prompt_of(loaded, text) for text in varied(count)]

    def seconds(method: Method, K: int) -> float:
        start = time.perf_counter()
        sample(method, loaded, prompts, K)
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    times: dict[tuple[int, str], list[float]] = {}
    with torch.inference_mode(), loaded.denoiser.quickly():
        for turn, K, name in product(range(rounds + 1), steps, METHODS):
            if turn == 0:  # warm-up
                seconds(METHODS[name], 1)
                continue
            print(f"ddot: round {turn} of {rounds}, {name}, {K} steps", file=sys.stderr)
            times.setdefault((K, name), []).append(seconds(METHODS[name], K))
    rows = []
    for (K, name), some in times.items():
        faster = float(np.median(np.divide(times[K, "lc"], some)))  # within a round: the speed of a machine varies
        rows.append({
            "sampler": name, "device": called(loaded.denoiser.device), "texts_at_once": count, "steps": K,
            "ms_a_text": 1000 * float(np.median(some)) / count, "times_lc": faster,
        })  # fmt: skip
    return rows
