"""Settings from the command line: typed as the fields are, or refused in a sentence that helps."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.training.config import Training, override
from ddot.training.recipes import RECIPES, recipe, toy


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("training.steps=200", 200),
        ("training.steps=none", None),
        ("training.steps=1_000", 1000),
        ("training.seconds=12", 12.0),
        ("training.seconds=", None),
        ("training.rate=1e-4", 1e-4),
        ("training.bf16=true", True),
        ("training.bf16=False", False),
        ("training.betas=0.8,0.95", (0.8, 0.95)),
        ("training.matrix_rate=None", None),
        ("training.device=cuda:1", "cuda:1"),
        ("data.texts=a.txt, b.txt,", ("a.txt", "b.txt")),
        ("data.texts=", ()),
        ("data.texts=a=b.txt", ("a=b.txt",)),
        ("data.sources=news:3, books,", (("news", 3.0), ("books", 1.0))),
        ("data.dev=held-out", "held-out"),
        ("data.dev=none", None),
        (" training.seed = -4 ", -4),
        ("start=runs/base", "runs/base"),
    ],
)
def test_settings_are_typed_as_the_fields_are(setting, value):
    run = toy()
    changed = override(run, [setting])
    *groups, name = setting.partition("=")[0].strip().split(".")
    holder, before = changed, run
    for group in groups:
        holder, before = getattr(holder, group), getattr(before, group)
    assert getattr(holder, name) == value
    assert type(getattr(holder, name)) is type(value)
    assert dataclasses.replace(holder, **{name: getattr(before, name)}) == before


def test_the_last_setting_holds_and_the_recipe_stays_as_it_was():
    run = toy()
    assert override(run, ["training.steps=1", "training.seed=7", "training.steps=3"]).training.steps == 3
    assert override(run, []) is run
    assert toy().training == run.training


@given(rate=st.floats(0, 1e6), steps=st.integers(1, 10**9))
def test_numbers_come_back_exactly(rate, steps):
    training = override(toy(), [f"training.rate={rate!r}", f"training.steps={steps}"]).training
    assert (training.rate, training.steps) == (rate, steps)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("training.steps", "got 'training.steps'"),
        ("training.step=3", "no setting 'training.step'; Training has steps, seconds, slots"),
        ("trainin.steps=3", "no setting 'trainin.steps'; Run has name, network, data, plans, training, start"),
        ("=3", "no setting ''; Run has name"),
        ("training.steps.more=3", "'training.steps.more' goes too deep: steps has no parts"),
        ("plans.mask=3", "'plans.mask' goes too deep: plans has no parts"),
        ("training=3", "'training' is a group of settings; set one of its parts: steps, seconds"),
        ("network=big", "network is code, not a value"),
        ("plans=3", "plans is code, not a value"),
        ("training.steps=many", "training.steps must be a whole number or none, got 'many'"),
        ("training.steps=2.5", "training.steps must be a whole number or none, got '2.5'"),
        ("training.slots=none", "training.slots must be a whole number, got 'none'"),
        ("training.rate=fast", "training.rate must be a number, got 'fast'"),
        ("training.bf16=1", "training.bf16 must be true or false, got '1'"),
        ("training.betas=0.9", "training.betas must be two numbers, A,B, got '0.9'"),
        ("training.betas=0.9,x", "training.betas must be two numbers, A,B, got '0.9,x'"),
        ("training.betas=1,2,3", "training.betas must be two numbers, A,B, got '1,2,3'"),
        ("data.sources=news:much", "data.sources must be NAME:WEIGHT,NAME:WEIGHT,…, got 'news:much'"),
        ("training.steps=0", "training.steps must be at least 1, got 0"),
        ("training.seconds=-1", "training.seconds must be more than 0, got -1"),
        ("training.rate=nan", "training.rate must be 0 or more, got nan"),
        ("training.accumulate=0", "training.accumulate must be at least 1, got 0"),
        ("training.save_every=-1", "training.save_every must be 0 or more"),
        ("training.decay=1.5", "training.decay must be between 0 and 1, got 1.5"),
        ("training.average=1", "training.average must be at least 0 and less than 1, got 1.0"),
    ],
)
def test_mistakes_are_sentences(setting, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as raised:
        override(toy(), [setting])
    assert "\n" not in str(raised.value)


def test_every_recipe_is_whole():
    """Each can be made, has its own name and an end, and its batches divide into rows."""
    for name in RECIPES:
        run = recipe(name)
        assert run.name == name
        assert run.training.steps or run.training.seconds
        assert run.data.texts or run.data.sources
        for plan in run.plans:
            assert all(run.training.slots % L == 0 for L in plan.lengths), name


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'tox'.*toy, smollm2, "):
        recipe("tox")


def test_defaults_are_in_range():
    assert Training() == Training(steps=None)


def test_the_embedded_models_recipe_trains_words_lengths_and_positions():
    """Shares of batches, and what must not change when the compared methods' settings do."""
    run, compared = recipe("smollm2"), recipe("smollm2_ddot")
    share = dict.fromkeys(("Outline", "Planning", "DDOT"), 0.0)
    for plan in run.plans:
        share[type(plan.method).__name__] += plan.weight
    assert share == pytest.approx({"Outline": 0.79, "Planning": 0.06, "DDOT": 0.15})
    rates = (run.training.matrix_rate, run.training.rate, run.training.added_rate, run.training.decay)
    assert rates == (4e-4, 2e-4, 2e-3, 0.7)
    rates = (compared.training.matrix_rate, compared.training.rate, compared.training.added_rate)
    assert rates == (1e-3, 5e-4, 3e-3)
    assert {name for name, _ in compared.data.sources} & {"news-form", "python"} == {"news-form", "python"}
