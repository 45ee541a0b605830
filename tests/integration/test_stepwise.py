"""Filling step by step: the same answers as at once, stopped at any step, hurried, and literal text kept literal."""

from dataclasses import replace

import pytest
import torch

from ddot.data.tokenizer import learn_bpe
from ddot.infill.engine import Shape
from ddot.infill.frames import frame_of
from ddot.infill.model import Model
from ddot.infill.settings import Settings
from ddot.infill.template import between
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

SENTENCES = ["The lamp in the hall was lit, and the door stood open.", "Nobody answered at first; then a dog barked."]


def network(tokenizer, order):
    trunk = LlamaConfig(32, 2, 4, 2, 64, tokenizer.vocabulary.rows)
    torch.manual_seed(3)
    config = replace(DenoiserConfig.extended(trunk, tokenizer.vocabulary), order=order)
    denoiser = Denoiser(config).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return denoiser


@pytest.fixture(scope="module", params=["alone", "in batches", "written"])
def toy(request):
    tokenizer = learn_bpe(SENTENCES * 4, 360)
    shape = Shape(rows=4, multiple=16, logit_chunk=32) if request.param == "in batches" else None
    order = "outline" if request.param == "written" else "surest"
    return Model(network(tokenizer, order), tokenizer, "toy", shape=shape)


def driven(steps):
    """(the steps, the result)."""
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            return seen, end.value


@pytest.mark.parametrize("settings", [{}, {"n": 3}, {"terminal": "grid"}, {"temperature": 1.0, "seed": 4}], ids=str)
def test_the_answer_is_that_of_infill(toy, settings):
    text = "The lamp ___{1,4} open, " + "and the dog barked " * 20 + "___{2} at first."  # two windows
    steps, found = driven(toy.watched(toy.request(text, Settings(steps=3, **settings))))
    assert [each.infill for each in found.best] == toy.infill(text, steps=3, **settings)
    sampled = {id(step.samples): step.samples for step in steps if step.samples}
    assert sum(step.state is not None for step in steps) == sum(1 + batch[0].steps for batch in sampled.values())
    windows = {(sample.window.draw, sample.window.number) for batch in sampled.values() for sample in batch}
    # Attempts that agree on all lengths are sampled once, as the first of them; that of every answer is there.
    assert windows >= {(each.attempt, number) for each in found.best for number in range(2)}
    frames = [
        frame_of(step.state, sample.window.view, toy.engine.alphabet, toy.tokenizer.vocabulary, row)
        for step in steps
        for row, sample in enumerate(step.samples)
    ]
    assert {len(frame.pieces) for frame in frames if frame.t == 0}
    assert all(None not in frame.pieces for frame in frames if frame.t == 0)


def test_stopping_between_steps_leaves_torch_as_it_is(toy):
    steps = toy.steps(toy.request("The ___{3} hall", Settings(steps=3)))
    next(steps)
    assert not torch.is_inference_mode_enabled()
    steps.close()
    assert toy.infill("The ___{3} hall", steps=3)


def test_a_time_limit_leaves_three_steps_at_least(toy):
    if toy.engine.writes_left_to_right:
        _, found = driven(toy.steps(toy.request("The ___ hall", seconds=1e-6)))
        assert 1 <= found.best[0].tokens <= 3
        return
    steps, found = driven(toy.steps(toy.request("The ___{4} hall", Settings(steps=8), seconds=1e-6)))
    assert found.best[0].infill.text == toy.infill("The ___{4} hall", steps=3)[0].text
    assert [step.number for step in steps] == [0, 0, 1, 2, 3]  # lengths, the start, three steps


def test_text_around_a_blank_is_literal_whatever_it_looks_like(toy):
    before, after = "a ___ b \\___{2} <mask> ", " [blank] {c"
    _, answers = driven(toy.steps(toy.request(between(before, after, most=3), Settings(steps=2))))
    found = answers.best[0].infill
    assert found.text == before + found.fills[0] + after
    assert len(found.fills) == 1
    assert len(found.fills[0].split()) <= 3
    with pytest.raises(ValueError, match="half a character"):
        between("a", "\ud800")
