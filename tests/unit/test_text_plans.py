"""Lengths planned from the prompt read as a text: what a model may ask for."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from ddot.data.tokenizer import learn_bpe
from ddot.infill.engine import Shape
from ddot.infill.model import Model
from ddot.infill.planned_lengths import TextPlanner, choose_lengths, conditioned
from ddot.infill.template import parse
from ddot.infill.view import view
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

TOKENIZER = learn_bpe(["The lamp in the hall was lit, and the door stood open."] * 4, 330)


@pytest.fixture(scope="module", params=["alone", "in batches"])
def model(request):
    trunk = LlamaConfig(32, 2, 4, 2, 64, TOKENIZER.vocabulary.rows)
    config = DenoiserConfig.extended(trunk, TOKENIZER.vocabulary)
    torch.manual_seed(3)
    denoiser = Denoiser(dataclasses.replace(config, planner="text")).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(denoiser, TOKENIZER, shape=None if request.param == "alone" else Shape(4, 16, 8))


TEXTS = ["The ___ hall ___{2} open", "___", "The ___{4}, and ___{1,3} ___{0,}.", "lamp ___ ___ door"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"steps": 2}, {"n": 2, "temperature": 0.9}, {"terminal": "grid"}], ids=str)
def test_answers_keep_bounds_and_are_the_same_in_any_list(model, settings):
    together = model.infill(TEXTS, **settings)
    assert together == [model.infill(text, **settings) for text in TEXTS]
    for text, found in zip(TEXTS, together, strict=True):
        blanks = model.template(text).blanks
        assert list(blanks) == list(parse(text).blanks)
        for each in found:
            assert math.isfinite(each.score)
            assert each.score <= 0
            assert all(blank.holds(fill) for blank, fill in zip(blanks, each.fills, strict=True))


def test_lengths_that_cannot_hold_the_words_have_no_chance(model):
    template = model.template("The ___ hall ___{3,} open ___{0,}")
    assert [blank.least for blank in template.blanks] == [1, 3, 0]
    seen = view(template, TOKENIZER, located=True)
    uniform = torch.full((len(seen.prompt), 41), 1 / 41)
    chances = conditioned(seen, template.blanks, uniform, TextPlanner())
    assert torch.allclose(chances.sum(-1), torch.ones(len(chances)))
    for after, impossible in zip(seen.after, (1, 3, 0), strict=True):
        assert (chances[after] == 0).sum() == impossible
    key = np.zeros(1, np.uint64)
    for draw in range(40):
        lengths = choose_lengths(seen, template.blanks, uniform, key, draw, TextPlanner())
        assert all(length >= least for length, least in zip(lengths, (1, 3, 0), strict=True))


def test_a_plan_reads_one_placeholder_in_each_open_gap(model):
    """The plan of a prompt does not depend on who shares its batch."""
    windows = [model.request(text).template for text in TEXTS]
    prompts = [view(template, TOKENIZER, located=True).prompt for template in windows]
    alone = [TextPlanner().chances(model.denoiser, [prompt], 32)[0] for prompt in prompts]
    together = TextPlanner().chances(model.denoiser, prompts, 32)
    for prompt, one, other in zip(prompts, alone, together, strict=True):
        assert one.shape[0] == len(prompt)
        assert torch.allclose(one, other, atol=1e-5)
