"""Tokens revealed in reading order, and lengths planned from the prompt read as a text: what a model may ask for."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from ddot.core.records import UNKNOWN_LENGTH, Prediction, State, Vocabulary
from ddot.core.sampling import LeftToRight, time_grid
from ddot.data.tokenizer import learn_bpe
from ddot.infill.answers import Attempt
from ddot.infill.engine import Shape
from ddot.infill.lengths import TextPlanner, choose_lengths, conditioned
from ddot.infill.model import Model
from ddot.infill.settings import Settings
from ddot.infill.template import parse
from ddot.infill.view import view
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(3)
TOKENIZER = learn_bpe(["The lamp in the hall was lit, and the door stood open."] * 4, 330)


@pytest.fixture(scope="module", params=["alone", "in batches"])
def model(request):
    trunk = LlamaConfig(32, 2, 4, 2, 64, TOKENIZER.vocabulary.rows)
    config = DenoiserConfig.extended(trunk, TOKENIZER.vocabulary)
    torch.manual_seed(3)
    denoiser = Denoiser(dataclasses.replace(config, planner="text", order="left-to-right")).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(denoiser, TOKENIZER, shape=None if request.param == "alone" else Shape(4, 16, 8))


@pytest.mark.parametrize(
    ("steps", "revealed"),
    [
        # Runs of 5, 1 and 2 masked slots around prompt tokens.
        (5, ["a....|a|a.", "aa...|a|aa", "aaa..|a|aa", "aaaa.|a|aa", "aaaaa|a|aa"]),
        (2, ["aaa..|a|a.", "aaaaa|a|aa"]),
        (1, ["aaaaa|a|aa"]),
    ],
)
@pytest.mark.parametrize("shuffled", [False, True])
def test_each_run_is_revealed_from_its_left(steps, revealed, shuffled):
    text = ".....|.|.."
    order = np.random.default_rng(0).permutation(len(text)) if shuffled else np.arange(len(text))
    x = torch.tensor([[1 if letter == "|" else V.mask for letter in text]])
    place = torch.linspace(-1, 1, len(text))[None]
    x, z = x[:, order], place[:, order]
    seen = []
    for t, s in zip(time_grid(steps), time_grid(steps)[1:], strict=False):
        at = x == V.mask
        scores = torch.zeros(int(at.sum()), V.size)
        state = State(x, z, torch.where(at, 0, 1), torch.full_like(x, UNKNOWN_LENGTH), torch.tensor([t]))
        prediction = Prediction(at, scores, torch.zeros_like(z))
        x = LeftToRight()(state, prediction, s, torch.rand_like(z), V)
        row = x[0, torch.from_numpy(np.argsort(order))].tolist()
        letters = zip(text, row, strict=True)
        seen.append("".join("|" if given == "|" else "." if token == V.mask else "a" for given, token in letters))
    assert seen == revealed


TEXTS = ["The ___ hall ___{2} open", "___", "The ___{4}, and ___{1,3} ___{0,}.", "lamp ___ ___ door"]


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


@torch.no_grad()
def test_as_many_passes_as_the_longest_blank_has_tokens_and_two(model):
    """One for the lengths, one for the token after each blank; blanks lose a token each at every other."""
    request = model.request("The ___{5} hall ___{2} open", Settings(steps=64))
    window = Attempt(request, 0).window(TOKENIZER)
    steps = list(model.engine.fill([window]))
    states = [step.state for step in steps if step.state is not None]
    assert len(steps) == 1 + len(states) + 1
    masked = [(state.x[0] == TOKENIZER.vocabulary.mask).sum().item() for state in states]
    assert masked[-1] == 0
    both, one = [a - b for a, b in pairwise(masked)].count(2), [a - b for a, b in pairwise(masked)].count(1)
    assert both >= 2  # the shorter blank has at least two tokens
    assert both + one == len(states) - 1 >= 5


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
