"""The key-value cache: reading some slots again is reading them all, as far as the others have not changed."""

import dataclasses

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.records import Example, Vocabulary
from ddot.core.rng import row_keys
from ddot.core.sampling import Leap, LeftToRight, MostCertainFirst, time_grid
from ddot.methods.fixed_length import FixedLength, Recalling
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig
from ddot.network.trunk import WHOLE, Recall

V = Vocabulary(40)
L = 18
TWO_BLANKS = torch.tensor([3, 4, 5, 11, 12])
TRUNKS = {
    "llama": lambda blocks: LlamaConfig(32, blocks, 4, 2, 48, V.rows),
    "dit": lambda blocks: DiTConfig(32, blocks, 4, V.rows, 16),
}


def network(trunk="llama", blocks=3, time=True):
    config = DenoiserConfig(TRUNKS[trunk](blocks), V, CleanToken(), time=time, surroundings=True, gap_lengths=True)
    torch.manual_seed(5)
    net = Denoiser(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net


def prompts(rows=1):
    """Texts with blanks of three and two tokens, in each row elsewhere and among other words."""
    texts = []
    for row in range(rows):
        lengths = np.zeros(13, np.int64)
        lengths[[2 + row, 7 + 2 * row]] = 3, 2
        words = np.random.default_rng(row).integers(0, V.base, 13)
        texts.append(Example(words, np.ones(13, bool), None, lengths))
    return texts


def start(rows=1):
    return FixedLength().start(prompts(rows), L, row_keys(0, rows), V)


def with_words(state, part, seed):
    x = state.x.clone()
    x[:, part] = torch.from_numpy(np.random.default_rng(seed).integers(0, V.base, (len(x), len(part))))
    return dataclasses.replace(state, x=x)


@pytest.mark.parametrize("trunk", TRUNKS)
@torch.no_grad()
def test_reading_a_part_again_changes_nothing_where_nothing_changed(trunk):
    net, state, recall = network(trunk), with_words(start(2), TWO_BLANKS, 0), Recall()
    plain, velocity = net.read(state)
    whole, _ = net.read(state, recall.reading())
    assert torch.equal(whole, plain)
    for part in (TWO_BLANKS, torch.tensor([16, 0, 7]), slice(2, 9), TWO_BLANKS[:1], WHOLE):
        again, moving = net.read(state, recall.reading(part), part)
        torch.testing.assert_close(again, plain[:, part], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(moving, velocity[:, part], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trunk", TRUNKS)
@torch.no_grad()
def test_with_a_single_block_a_part_is_read_as_if_all_were(trunk):
    """There keys and values of a slot are its own affair, so those of unchanged slots are never old."""
    net, state, recall = network(trunk, blocks=1), start(2), Recall()
    net.read(state, recall.reading())
    for seed, part in enumerate([TWO_BLANKS, TWO_BLANKS[3:], TWO_BLANKS[[2, 0]], torch.tensor([17])]):
        state = with_words(state, part, seed)
        again, _ = net.read(state, recall.reading(part), part)
        torch.testing.assert_close(again, net.read(state)[0][:, part], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_with_more_blocks_the_others_are_seen_as_they_were():
    net, before, recall = network(blocks=2), start(), Recall()
    net.read(before, recall.reading())
    after = with_words(before, TWO_BLANKS, 0)
    again, _ = net.read(after, recall.reading(TWO_BLANKS), TWO_BLANKS)
    assert not torch.allclose(again, net.read(after)[0][:, TWO_BLANKS], atol=1e-3)


REVEALS = {"left to right": LeftToRight(), "surest": MostCertainFirst(), "leap": Leap()}


def sampled(net, reveal, refresh, rows=1, steps=4):
    with torch.no_grad():
        method = FixedLength(reveal=REVEALS[reveal], refresh=refresh)
        return list(method.sample(net, prompts(rows), L, steps, row_keys(3, rows)))


@pytest.mark.parametrize("reveal", REVEALS)
def test_refreshed_at_every_pass_it_is_the_plain_reverse_process(reveal):
    net = network()
    for one, other in zip(sampled(net, reveal, None), sampled(net, reveal, 1), strict=True):
        assert all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("reveal", REVEALS)
def test_where_nothing_gets_old_any_refresh_gives_the_same(reveal, rows):
    net = network(blocks=1, time=False)
    plain = sampled(net, reveal, None, rows)
    for refresh in (1, 2, 3, 100):
        for one, other in zip(plain, sampled(net, reveal, refresh, rows), strict=True):
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.z, other.z)


@pytest.mark.parametrize("reveal", REVEALS)
@torch.no_grad()
def test_scores_are_those_of_the_network_at_the_slots_asked_for(reveal):
    net, state = network(), start()
    times = time_grid(3)
    model = Recalling(net, REVEALS[reveal], times, 3)
    for s in times[1:]:
        found, plain = model(state), net(state)
        assert torch.equal(found.at, REVEALS[reveal].asks(state, s, V))
        assert not (found.at & ~plain.at).any()
        torch.testing.assert_close(found.log_score, plain.log_score[found.at[plain.at]], rtol=1e-4, atol=1e-4)
    masked, asked = (state.x == V.mask).sum(), REVEALS[reveal].asks(state, 2 / 3, V).sum()
    assert asked == 2 if reveal == "left to right" else asked == masked


@torch.no_grad()
def test_between_refreshes_the_slots_of_blanks_and_those_beside_them_are_read():
    net, read = network(), []
    net.register_forward_pre_hook(lambda _, args: read.append(args[3]))
    for _ in FixedLength(reveal=LeftToRight(), refresh=2).sample(net, prompts(), L, 3, row_keys(0, 1)):
        pass
    assert read[::2] == [WHOLE, WHOLE]
    assert read[1].tolist() == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14]
