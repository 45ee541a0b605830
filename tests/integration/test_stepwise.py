"""Filling step by step: the same answers as at once, stopped at any step, hurried, and literal text kept literal."""

from dataclasses import replace

import pytest
import torch

from ddot.data.tokenizer import learn_bpe
from ddot.infill.engine import Looks, Sample, Shape
from ddot.infill.frames import frame_of
from ddot.infill.model import Model
from ddot.infill.template import between
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

SENTENCES = ["The lamp in the hall was lit, and the door stood open.", "Nobody answered at first; then a dog barked."]


def network(tokenizer):
    trunk = LlamaConfig(32, 2, 4, 2, 64, tokenizer.vocabulary.rows)
    torch.manual_seed(3)
    denoiser = Denoiser(DenoiserConfig.extended(trunk, tokenizer.vocabulary)).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return denoiser


@pytest.fixture(scope="module", params=["alone", "in batches"])
def toy(request):
    tokenizer = learn_bpe(SENTENCES * 4, 360)
    shape = None if request.param == "alone" else Shape(rows=4, multiple=16, portion=32)
    return Model(network(tokenizer), tokenizer, "toy", shape=shape)


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
    steps, found = driven(toy.stepwise(toy.way(text, steps=3, **settings)))
    assert found == toy.infill(text, steps=3, **settings)
    samples = {id(step.task): step.task for step in steps if isinstance(step.task, Sample)}
    assert sum(step.state is not None for step in steps) == sum(1 + sample.steps for sample in samples.values())
    frames = [
        frame_of(step.state, step.task.view, toy.filler.alphabet, toy.tokenizer.vocabulary)
        for step in steps
        if step.state is not None
    ]
    assert {len(frame.pieces) for frame in frames if frame.t == 0}
    assert all(None not in frame.pieces for frame in frames if frame.t == 0)


def test_stopping_between_steps_leaves_torch_as_it_is(toy):
    steps = toy.stepwise(toy.way("The ___{3} hall", steps=3))
    next(steps)
    assert not torch.is_inference_mode_enabled()
    steps.close()
    assert toy.infill("The ___{3} hall", steps=3)


def test_a_task_may_be_changed_on_its_way(toy):
    def hurry(task):
        return replace(task, choice=replace(task.choice, steps=1)) if isinstance(task, Sample) else task

    way = toy.way("The ___{4} hall", steps=8)
    steps, found = driven(toy.stepwise(way, hurry))
    assert found == toy.infill("The ___{4} hall", steps=1)
    assert sum(isinstance(step.task, Looks) for step in steps) == 1


def test_text_around_a_blank_is_literal_whatever_it_looks_like(toy):
    before, after = "a ___ b \\___{2} <mask> ", " [blank] {c"
    _, (found,) = driven(toy.stepwise(toy.way(between(before, after, most=3), steps=2)))
    assert found.text == before + found.fills[0] + after
    assert len(found.fills) == 1
    assert len(found.fills[0].split()) <= 3
    with pytest.raises(ValueError, match="half a character"):
        between("a", "\ud800")
