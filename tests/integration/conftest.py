"""Fillings that several tests look at: one along exact paths, one by a small real network."""

import numpy as np
import pytest
import torch
from commands import SENTENCES

from ddot.core.absorbing import CleanToken
from ddot.core.coupling import couple
from ddot.data.tokenizer import learn_bpe
from ddot.infill.frames import Frame
from ddot.infill.model import Model
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.folder import save_model
from ddot.network.llama import LlamaConfig

WORDS = [" Our", " gardener", " paid", " $", "5", " & <two>", " cents", " to", " Zoë", "."]
GIVEN = [True, False, True, False, False, True, False, True, False, True]


def exact_filling(words, given, slots, steps):
    """Frames along the straight paths of training; pads after the words, everything revealed at some step."""
    n = len(words)
    is_prompt = np.zeros((1, slots), bool)
    is_prompt[0, :n] = given
    z_0, z_T = couple(is_prompt, np.array([n]), 7)
    revealed = np.random.default_rng(1).integers(1, steps + 1, slots)
    pieces = [*words, *[""] * (slots - n)]
    frames = []
    for step in range(steps + 1):
        t = 1 - step / steps
        known = is_prompt[0] | (revealed <= step)
        frames.append(
            Frame(
                t,
                [piece if known[slot] else None for slot, piece in enumerate(pieces)],
                ((1 - t) * z_0[0].astype(float) + t * z_T[0].astype(float)).tolist(),
                is_prompt[0].tolist(),
            )
        )
    return frames


@pytest.fixture
def with_pads():
    return exact_filling(WORDS, GIVEN, slots=24, steps=6)


@pytest.fixture
def without_pads():
    return exact_filling(WORDS, GIVEN, slots=len(WORDS), steps=6)


@pytest.fixture(scope="session")
def streamed():
    """The frames of a network that learnt nothing."""
    torch.manual_seed(0)
    tokenizer = learn_bpe(["the blue door was open and the house was quiet"] * 4, 300)
    trunk = LlamaConfig(width=32, blocks=1, heads=2, key_heads=1, inner_width=32, vocabulary=tokenizer.vocabulary.rows)
    config = DenoiserConfig(trunk=trunk, vocabulary=tokenizer.vocabulary, score=CleanToken(elbo=False), time=True)
    model = Model(Denoiser(config).eval(), tokenizer)
    return list(model.stream("the blue ___ was quiet", steps=3))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A small model that was never trained."""
    where = tmp_path_factory.mktemp("model") / "tiny"
    where.mkdir()
    torch.manual_seed(0)
    tokenizer = learn_bpe(SENTENCES, 320)
    trunk = LlamaConfig(32, 1, 2, 1, 64, tokenizer.vocabulary.rows)
    config = DenoiserConfig.extended(trunk, tokenizer.vocabulary)
    save_model(Denoiser(config).state_dict(), config, tokenizer, {"recipe": "none"}, where)
    return where
