"""Who decides lengths: the planned distribution, conditioned on what blanks ask for."""

import numpy as np
import torch

from ddot.core.gap_lengths import CLASSES, class_lengths
from ddot.core.rng import row_keys
from ddot.data.tokenizer import learn_bpe
from ddot.infill.planned_lengths import PLANNERS, choose_lengths
from ddot.infill.template import parse
from ddot.infill.view import view

TOKENIZER = learn_bpe(["The ferry left at seven, half empty, and nobody waved from the old pier."] * 4, 400)


def chosen(text, weights, draw=0, planner="text"):
    """Lengths where every gap has the same distribution: weights of the lengths 0, 1, 2, …"""
    template = parse(text)
    seen = view(template, TOKENIZER, located=True)
    chances = torch.zeros(len(seen.prompt), CLASSES)
    chances[:, : len(weights)] = torch.tensor(weights) / sum(weights)
    return choose_lengths(seen, template.blanks, chances, row_keys(0, 1), draw, PLANNERS[planner])


def test_a_blank_holds_a_word_however_likely_nothing_is():
    nothing = [1.0, 1e-9]
    for planner in PLANNERS:
        assert chosen("a ___ b", nothing, planner=planner) == [1]
        assert chosen("a ___{0,} b", nothing, planner=planner) == [0]


def test_bounds_in_words_leave_room_for_marks_and_long_words():
    flat = [1.0] * 15
    for draw in range(8):
        (length,) = chosen("a ___{4} b", flat, draw)
        assert 4 <= length <= PLANNERS["text"].most_tokens(4) == 5
        (length,) = chosen("a ___{3,} b", flat, draw)
        assert length >= 3
        assert chosen("a ___{0} b", flat, draw) == [0]


def test_later_draws_follow_the_distribution():
    weights = np.array([0.0, 0.5, 0.3, 0.2])
    found = np.array([chosen("a ___ b", weights.tolist(), draw)[0] for draw in range(2, 202)])
    shares = np.array([(found == length).mean() for length in range(4)])
    assert np.abs(shares - weights).max() < 0.03  # evenly spread draws: closer than chance would be
    assert class_lengths()[3] == 3
