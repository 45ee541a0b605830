"""Lengths of gaps: classes written out, expectations and draws in closed form, whole numbers that keep their total."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.codes import BOTH, GLUED, UNKNOWN
from ddot.core.gap_lengths import CLASSES, LOWEST, class_lengths, length_class
from ddot.core.records import Example, Prompt
from ddot.infill.planned_lengths import concentrated, drawn_length, expected_gap_lengths, mean_length, rounded

lengths = st.lists(st.floats(0, 20), min_size=1, max_size=12).map(np.array)


def test_a_class_holds_the_lengths_from_its_lower_bound_to_the_next():
    by_hand = [max(i for i, low in enumerate(LOWEST) if low <= n) for n in range(300)]
    assert length_class(torch.arange(300)).tolist() == by_hand
    assert by_hand[:16] == list(range(16))  # short gaps are told exactly
    middles = class_lengths()
    for which, (low, high) in enumerate(pairwise(LOWEST)):
        assert middles[which].item() == np.mean(range(low, high))


def random_chances(gaps, seed=0):
    return torch.softmax(torch.randn(gaps, CLASSES, generator=torch.Generator().manual_seed(seed)) * 2, -1)


def test_the_mean_length_is_the_expectation():
    chances = random_chances(5)
    by_hand = [sum(p * m for p, m in zip(row, class_lengths().tolist(), strict=True)) for row in chances.tolist()]
    assert mean_length(chances, torch.zeros(5)).tolist() == pytest.approx(by_hand, rel=1e-5)


def test_drawn_lengths_follow_the_chances():
    chances, n = random_chances(1)[0], 20_000
    u = (torch.arange(n) + 0.5) / n
    drawn = drawn_length(chances.expand(n, -1), u)
    for which, middle in enumerate(class_lengths().tolist()):
        assert (drawn == middle).float().mean().item() == pytest.approx(chances[which].item(), abs=2e-4)
    certain = torch.zeros(2, CLASSES)
    certain[:, 3] = 0.999999  # rounded chances may sum to less than u
    assert set(drawn_length(certain, torch.tensor([1e-7, 1 - 1e-8])).tolist()) <= {3.0, class_lengths()[-1].item()}


def prompt(is_open, free=False):
    n = len(is_open) - 1
    hint = np.full(n, UNKNOWN) if free else np.where(is_open[1:], BOTH, GLUED)
    return Prompt(Example(np.arange(n), np.ones(n, bool), hint), is_open)


def test_closed_gaps_get_nothing_and_the_others_what_is_expected():
    is_open = np.array([False, True, False, True, True, False])
    chances = random_chances(5)
    found = expected_gap_lengths(prompt(is_open), chances, torch.zeros(5), mean_length)
    np.testing.assert_allclose(found, mean_length(chances, torch.zeros(5)).numpy() * is_open[1:], rtol=1e-5)
    for most in (3, 1000):
        bounded = expected_gap_lengths(prompt(is_open), chances, torch.zeros(5), mean_length, at_most=most)
        np.testing.assert_allclose(bounded, found * min(1, most / found.sum()), rtol=1e-5)


def test_free_prompts_gather_what_is_expected():
    is_open = np.array([False, True, True, True, True, True])
    chances = random_chances(5, seed=2)
    spread = mean_length(chances, torch.zeros(5)).double().numpy()
    found = expected_gap_lengths(prompt(is_open, free=True), chances, torch.zeros(5), mean_length)
    np.testing.assert_allclose(found, concentrated(spread, 1 - chances[:, 0].double().numpy()))
    assert found.sum() == pytest.approx(spread.sum())


@given(lengths, st.data())
def test_gathering_keeps_the_total_and_takes_the_likeliest_gaps(length, data):
    chance = np.array(data.draw(st.lists(st.floats(0.05, 1), min_size=len(length), max_size=len(length))))
    found = concentrated(length, chance)
    assert found.sum() == pytest.approx(length.sum())
    taken, left = length[found > 0], length[found == 0]
    if length.sum() > 0:
        assert len(taken) == 0 or len(left) == 0 or taken.min() >= left.max()
        # Each open gap has the length it has when it is open, all scaled alike.
        when_open = (length / chance)[found > 0]
        if len(taken) and (when_open > 0).all() and len(taken) > 1:
            ratio = found[found > 0] / when_open
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)


def test_gathering_by_hand():
    # Expected 2.4 in all; open, the gaps hold 4, 2 and 2. The first half of 4 fits into 2.4, then 4 + 1 does not.
    np.testing.assert_allclose(concentrated(np.array([1.6, 0.4, 0.4]), np.array([0.4, 0.2, 0.2])), [2.4, 0, 0])
    np.testing.assert_allclose(concentrated(np.array([0.2, 3.0, 1.0]), np.array([0.1, 1.0, 1.0])), [0, 3.15, 1.05])


@given(lengths)
def test_rounding_keeps_the_total_and_moves_each_length_by_less_than_one(length):
    whole = rounded(length)
    assert whole.sum() == round(float(length.sum()))
    assert (np.abs(whole - length) < 1).all()
    up = whole > length
    part = length - np.floor(length)
    down = (whole < length) & (part > 0)
    assert not up.any() or not down.any() or part[up].min() >= part[down].max() - 1e-9  # the largest remainders
