"""Planning: answers are the true lengths, the network sees only placeholders, inference has the same layout."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core import gap_lengths
from ddot.core.codes import NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.gaps import gap_hints, missing_after, open_gaps
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import row_keys
from ddot.methods.layout import with_placeholders
from ddot.methods.method import Method, Trainable
from ddot.methods.planning import Planning
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(40)


def example(is_prompt, located=True, decoys=()):
    is_prompt = np.array([True, *is_prompt, True])
    is_open = open_gaps(is_prompt)
    is_open[list(decoys)] = True
    tokens = np.arange(len(is_prompt)) % 40
    return Example(tokens, is_prompt, gap_hints(is_prompt, is_open) if located else None)


def prepared(examples, L=24):
    return Planning().prepare(examples, L, np.full(len(examples), 0.3, np.float32), row_keys(0, len(examples)), V)


def test_placeholders_by_hand():
    row = with_placeholders(example([True, False, False, False, True, True, False, True], decoys=[6]))
    assert row.is_prompt.tolist() == [True, True, False, True, False, True, False, True, True]
    assert row.tokens[row.is_prompt].tolist() == [0, 1, 5, 6, 8, 9]
    assert row.gap_length[row.is_prompt].tolist() == [0, 3, 0, 1, 0, 0]
    # Where there is no room for all placeholders, empty gaps go without.
    assert with_placeholders(row, most=8).is_prompt.sum() == 6


@settings(max_examples=60)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=4), st.booleans())
def test_answers_are_the_true_lengths(rows, located):
    examples = [example(row, located) for row in rows]
    slots = prepared(examples)
    assert (slots.t == 1).all()
    for row, one in enumerate(examples):
        kind, length = slots.kind[row], slots.gap_length[row]
        given = kind == PROMPT
        assert slots.x_0[row][given].tolist() == one.tokens[one.is_prompt].tolist()
        assert length[given].tolist() == missing_after(one.is_prompt)[one.is_prompt].tolist()
        # One placeholder in a gap that holds text, none in a closed one; nothing is said where gaps are not located.
        after = torch.cat([kind[1:] == RESPONSE, torch.tensor([False])])
        assert (after[given] == (length[given] > 0)).all() if located else not (kind == RESPONSE).any()
        assert (slots.u[row][kind == PAD] > 1).all()


def network(seed=0, **more):
    torch.manual_seed(seed)
    trunk = LlamaConfig(32, 2, 4, 2, 64, V.rows)
    model = Denoiser(dataclasses.replace(DenoiserConfig.extended(trunk, V), **more))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def test_the_loss_is_the_cross_entropy_of_open_gaps():
    model = network()
    examples = [example([True, False, True, True]), example([False, True, False, False], located=False)]
    slots = prepared(examples)
    losses = Planning(factor=0.5).loss(model, slots, 10.0)
    logits = model.gap_length_logits(Planning().start(examples[:1], 24, V))[0]
    # Of the located text only the gap after slot 1 is open: [edge] a ___ b c [edge].
    first = -torch.log_softmax(logits[1], -1)[gap_lengths.length_class(torch.tensor(1))]
    logits = model.gap_length_logits(Planning().start(examples[1:], 24, V))[0]
    true = gap_lengths.length_class(torch.tensor([1, 2, 0]))
    others = -torch.log_softmax(logits[:3], -1).gather(1, true[:, None])[:, 0]
    expected = torch.cat([first[None], others]).mean()
    torch.testing.assert_close(losses.gap_length, expected)
    torch.testing.assert_close(losses.total, 0.5 * expected)
    assert losses.token == losses.position == losses.nats == 0
    losses.total.backward()
    assert model.room_head.weight.grad.abs().sum() > 0


def test_answers_do_not_leak():
    """Texts that differ in their missing tokens alone are read alike."""
    short, long = example([True, False, True]), example([True, False, False, False, False, True])
    a, b = (Planning().start([one], 24, V) for one in (short, long))
    keep = a.hint != NOT_PROMPT
    assert torch.equal(keep, b.hint != NOT_PROMPT)
    assert torch.equal(a.z, b.z)
    assert (a.gap_length == UNKNOWN_LENGTH).all()
    assert (a.x == V.mask).sum() == 1
    model, slots = network(), prepared([short])
    other = dataclasses.replace(slots, gap_length=torch.where(slots.gap_length > 0, 7, slots.gap_length))
    with torch.no_grad():
        logits = model.gap_length_logits(a)[0, 1]
        for batch, length in ((slots, 1), (other, 7)):
            found = Planning(1.0).loss(model, batch, 0.0).total
            torch.testing.assert_close(found, -torch.log_softmax(logits, -1)[length])


def test_a_start_that_does_not_fit_is_refused():
    crowded = example([True, False] * 6)
    with pytest.raises(ValueError, match="L = 13"):
        Planning().start([crowded], 13, V)
    assert (Planning().start([crowded], 14, V).hint != UNKNOWN).all()


def test_planning_trains_and_fills_nothing():
    assert isinstance(Planning(), Trainable)
    assert not isinstance(Planning(), Method)
    with pytest.raises(ValueError, match="no length head"):
        Planning().loss(network(gap_lengths=False), prepared([example([False])]), 1.0)
