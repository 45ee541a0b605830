"""Every method through the one training loop: tiny networks learn eight sentences by heart and write them anew."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import jaxtyping
import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.positions import grid_terminal, random_terminal
from ddot.core.records import Example
from ddot.core.rng import row_keys
from ddot.core.sampling import MostCertainFirst
from ddot.data.masks import Block, Independent, Mix
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.expand_delete import ExpandDelete
from ddot.methods.flexible import Flexible
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.losses import TokenUnitWeight
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import DenoiserConfig
from ddot.network.folder import load_model
from ddot.network.llama import LlamaConfig
from ddot.training.batches import Plan, with_edges
from ddot.training.config import Data, Run, Training
from ddot.training.loop import train

SENTENCES = [
    "my cousin collects old stamps from distant islands",
    "snow melts",
    "we heard the bells long before the village",
    "her bicycle needs new brakes",
    "someone left an umbrella under my desk",
    "three foxes crossed our garden yesterday",
    "bring back those library books",
    "uncle never learned how to whistle",
]
L = 12
ROWS = 48


def network(vocabulary, gap_lengths=False):
    trunk = LlamaConfig(width=64, blocks=3, heads=4, key_heads=2, inner_width=176, vocabulary=vocabulary.rows)
    score = CleanToken(elbo=False)
    return DenoiserConfig(
        trunk, vocabulary, score, predict_clean=True, time=True, surroundings=True, gap_lengths=gap_lengths
    )


def run(method, steps, texts):
    mask = Mix((2.0, Block(8)), (1.0, Independent(0.3, 0.9)))
    return Run(
        name="eight sentences",
        network=partial(network, gap_lengths=isinstance(method, Flexible | ExpandDelete)),
        data=Data(texts=(str(texts),), tokens=1024),  # every word is one token
        plans=(Plan(method, mask, lengths=(L,)),),
        training=Training(
            steps=steps,
            slots=ROWS * L,
            rate=3e-3,
            matrix_rate=1e-2,
            warmup=50,
            decay=0.6,
            average=0.0,
            position_factor=0.2,
            save_every=steps,
        ),
    )


@contextmanager
def unchecked():
    """Shapes and types are checked in other tests; in hundreds of steps that takes half as long again."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def every_blank(tokenizer):
    """Each sentence with each span of up to five words missing, as long as two words are left to know it by."""
    for sentence in SENTENCES:
        tokens = tokenizer.encode(" " + sentence)
        for start in range(len(tokens)):
            for length in range(min(5, len(tokens) - start) + 1):
                is_prompt = np.ones(len(tokens), bool)
                is_prompt[start : start + length] = False
                if is_prompt.sum() >= 2:
                    yield Example(*with_edges(tokens, is_prompt, True, True, tokenizer))


SURE = MostCertainFirst()
UNITS = TokenUnitWeight()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps", "bars"),
    [
        (LeftContext(reveal=SURE), 120, {None: 0.8}),
        (Autoregressive(), 160, {None: 0.8}),
        (Insertion(), 340, {None: 0.8}),
        (Flexible(), 420, {None: 0.65}),
        (ExpandDelete(), 420, {None: 0.65}),
        (PositionPrediction(position_weight=UNITS, reveal=SURE), 270, {None: 0.5}),
        (DDOT(random_terminal, position_weight=UNITS, reveal=SURE), 400, {grid_terminal: 0.75, random_terminal: 0.5}),
    ],
    ids=[
        "left context",
        "left to right",
        "insertion",
        "learned counts",
        "expand and delete",
        "position prediction",
        "ddot",
    ],
)
def test_a_tiny_network_learns_eight_sentences_and_infills_them(method, steps, bars, tmp_path):
    texts = tmp_path / "sentences.txt"
    texts.write_text("\n".join(SENTENCES))
    with unchecked():
        train(run(method, steps, texts), tmp_path / "run")
    model, tokenizer = load_model(tmp_path / "run")
    prompts = list(every_blank(tokenizer))
    for terminal, bar in bars.items():
        way = method if terminal is None else replace(method, terminal=terminal)
        with torch.no_grad():
            *_, last = way.sample(model, prompts, L, 16, row_keys(1, len(prompts)))
        found = [text.tolist() for text in way.texts(last, model.vocabulary)]
        right = np.mean([text == prompt.tokens.tolist() for text, prompt in zip(found, prompts, strict=True)])
        assert right >= bar, f"{right:.2f} of {len(prompts)} blanks filled with the one text that fits"
