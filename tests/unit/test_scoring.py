"""Scores against their definition: tokens when they were revealed, and the length of the gap."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.codes import AFTER, BEFORE
from ddot.core.gap_lengths import CLASSES
from ddot.core.records import Example, Prompt, Vocabulary
from ddot.core.rng import row_keys
from ddot.core.sampling import Leap, MostCertainFirst
from ddot.infill.scoring import Recorder, length_log_probs, score_of
from ddot.infill.view import View
from ddot.methods.fixed_length import FixedLength
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

V = Vocabulary(30)


def network():
    trunk = LlamaConfig(width=16, blocks=2, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
    config = DenoiserConfig(trunk, V, CleanToken(elbo=False), time=True, surroundings=True, gap_lengths=True)
    net = Denoiser(config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return net.eval()


def view_of(tokens, after):
    n = len(tokens)
    is_open = np.zeros(n + 1, bool)
    is_open[np.array(after) + 1] = True
    prompt = Prompt(Example(np.array(tokens), np.ones(n, bool)), is_open)
    return View(prompt, ("",) * n, tuple(after), (0,) * len(after))


@torch.no_grad()
@pytest.mark.parametrize("reveal", [Leap(), MostCertainFirst()])
def test_recorded_chances_are_those_of_the_passes_that_revealed_the_tokens(reveal):
    net, recorder = network(), Recorder(V.mask)
    lengths = np.array([4, 0, 2, 0])
    example = Example(np.array([1, 2, 3, 4]), np.ones(4, bool), np.array([AFTER, BEFORE, AFTER, BEFORE]), lengths)
    method = FixedLength(reveal=reveal, restrictions=(recorder,))
    states = list(method.sample(net, [example], 10, 4, row_keys(0, 1)))
    found = recorder.settle(states[-1])
    forbidden = [V.mask, V.pad, V.sep]
    total = 0
    for before, after in pairwise(states):
        logits = net.logits(net.read(before)[0][0])[:, : V.size]
        logits[:, forbidden] = -torch.inf
        for slot in ((before.x == V.mask) & (after.x != V.mask))[0].nonzero()[:, 0].tolist():
            row = logits[slot].clone()
            for neighbour in (slot - 1, slot + 1):  # no token beside itself
                if before.x[0, neighbour] < V.base:
                    row[before.x[0, neighbour]] = -torch.inf
            expected = torch.log_softmax(row, -1)[after.x[0, slot]]
            assert found[0, slot].item() == pytest.approx(expected.item(), abs=1e-4)
            total += 1
    assert total == 6
    assert (found != 0).sum() == 6


def test_the_length_of_a_gap_counts_for_each_of_its_blanks():
    chances = torch.softmax(torch.randn(4, CLASSES), -1)
    chances[2, 6] = 0.0
    view = view_of([1, 2, 3, 4], [0, 2, 2])  # two blanks share the gap after token 2
    found = length_log_probs(view, chances, [np.array([1]), np.array([1, 2]), np.array([3, 4, 5])])
    shared = math.log(chances[2, 5])
    assert found.tolist() == pytest.approx([math.log(chances[0, 1]), shared, shared], rel=1e-5)
    impossible = length_log_probs(view, chances, [np.array([1]), np.array([1, 2, 3]), np.array([3, 4, 5])])
    assert np.isfinite(impossible).all()
    assert impossible[1] < -20
    assert length_log_probs(view, None, [np.array([1])] * 3).tolist() == [0, 0, 0]


def test_scores_do_not_favour_short_fills_and_mind_the_length():
    assert score_of([-1.0, -1.0, -1.0], 0.0) == score_of([-1.0], 0.0)
    assert score_of([-1.0], -5.0) < score_of([-1.0], -1.0)
    assert score_of([], -1.0) < 0
