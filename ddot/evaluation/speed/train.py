"""`ddot bench train`: slots per second, share of the device's matrix peak, and time lost to data and couplings.

Runs the real training loop on a corpus of random tokens.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ddot.core.absorbing import ScoreEntropy
from ddot.core.positions import random_terminal
from ddot.core.records import Vocabulary
from ddot.data.shards import pack
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.rows import refuse_unknown
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.method import Method
from ddot.network.denoiser import DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig
from ddot.training import recipes
from ddot.training.batches import Plan, Windows
from ddot.training.config import Data, Run, Training
from ddot.training.loop import train


def _sedd(size: Callable[[int], DiTConfig], vocabulary: Vocabulary) -> DenoiserConfig:
    return DenoiserConfig(size(Vocabulary(50_257).rows), vocabulary, ScoreEntropy(states=50_258))


# With their public vocabulary sizes.
NETWORKS: dict[str, Callable[[Vocabulary], DenoiserConfig]] = {
    "sedd-small": partial(_sedd, DiTConfig.small),
    "sedd-medium": partial(_sedd, DiTConfig.medium),
    "smollm2": lambda v: DenoiserConfig.extended(LlamaConfig.smollm2_135m(Vocabulary(49_152).rows), v),
    "toy": recipes.toy().network,
}


def measure(
    names: Sequence[str], lengths: Sequence[int], device: str, slots: int, steps: int, workers: int
) -> list[dict[str, Any]]:
    """One row for each network, length and layout: with couplings (DDOT), and without (fixed positions)."""
    rows, cuda = [], device.startswith("cuda")
    refuse_unknown("unknown network", names, NETWORKS)
    training = Training(
        steps=steps, slots=slots, device=device, bf16=cuda, compile=cuda, log_every=max(1, steps // 2), save_every=0
    )
    layouts: dict[bool, Method] = {True: DDOT(terminal=random_terminal), False: FixedLength()}
    with tempfile.TemporaryDirectory() as folder:
        _random_corpus(Path(folder) / "data")
        data = Data(folder=folder, sources=(("data", 1.0),), workers=workers)
        for name, L, (coupled, method) in product(names, lengths, layouts.items()):
            plans = (Plan(method, recipes.ALL_MASKS, Windows(0.5), lengths=(L,)),)
            run = Run(f"{name} L={L}", NETWORKS[name], data, plans, training)
            figures = train(run, Path(folder, f"{name}-{L}-{coupled}"))
            rows.append({
                "network": name, "L": L, "couplings": coupled, "slots_per_second": figures["slots_per_second"],
                "of_matrix_peak": figures["utilisation"], "waiting_for_data": figures["waiting"],
            })  # fmt: skip
    return rows


def _random_corpus(folder: Path) -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(300)]
    documents = [[" ".join(rng.choice(words, 24)) for _ in range(12)] for _ in range(3_000)]
    pack(documents, learn_bpe(words, 600), folder)
