"""The engine: what the network is told while it fills, how blanks get their lengths, and whose words they are."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from ddot.core.codes import NOT_PROMPT, UNKNOWN_LENGTH
from ddot.core.gap_lengths import CLASSES, class_lengths
from ddot.core.rng import row_keys
from ddot.data.tokenizer import learn_bpe
from ddot.infill.engine import CPU, Engine, Sample, Shape, Window, gap_tokens
from ddot.infill.model import Model
from ddot.infill.planned_lengths import choose_lengths, within_bounds
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings
from ddot.infill.template import Blank, parse
from ddot.infill.view import SLOTS, view
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

TOKENIZER = learn_bpe(["The lamp in the hall was lit, and the door stood open for us."] * 4, 360)
V = TOKENIZER.vocabulary
KEY = row_keys(0, 1)


def engine(shape=CPU, gap_lengths=True):
    trunk = LlamaConfig(16, 1, 2, 1, 32, V.rows)
    torch.manual_seed(1)
    net = Denoiser(dataclasses.replace(DenoiserConfig.extended(trunk, V), gap_lengths=gap_lengths)).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Engine(net, TOKENIZER, shape)


def window(text, located=True, **settings):
    template = parse(text)
    return Window(view(template, TOKENIZER, located), template.blanks, KEY, Settings(**settings))


@pytest.mark.parametrize("terminal", [None, "grid", "random"])
@pytest.mark.parametrize("shape", [CPU, Shape(rows=3, multiple=8)], ids=["alone", "in batches"])
@torch.no_grad()
def test_the_network_is_told_the_lengths_that_were_chosen(terminal, shape):
    """At every look while tokens are sampled: after each given token as many slots as it is told, and no others."""
    machine, seen = engine(shape), []
    one = window("The ___{2,5} hall ___{1} lit ___{3}", terminal=terminal, steps=3)
    lengths = [4, 1, 3]
    machine.model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    states = list(machine.states([Sample(one, lengths)]))
    assert len(seen) == len(states) - 1
    told = np.zeros(len(one.view.prompt), int)
    told[list(one.view.after)] = lengths
    for state in seen:
        given = state.hint[0] != NOT_PROMPT
        assert state.gap_length[0, given].tolist() == told.tolist()
        assert (state.gap_length[0, ~given] == UNKNOWN_LENGTH).all()
        assert state.x[0, given].tolist() == one.view.prompt.example.tokens.tolist()
    last = states[-1]
    words = last.x[0, last.z[0].argsort(stable=True)]
    given = (last.hint[0] != NOT_PROMPT)[last.z[0].argsort(stable=True)]
    after = given.long().cumsum(0)[~given & (words < V.base)] - 1
    assert torch.bincount(after, minlength=len(told)).tolist() == told.tolist()  # and they end where they belong


@torch.no_grad()
def test_windows_of_a_batch_are_filled_as_alone():
    first = window("The ___{2} hall", steps=2, temperature=1.0)
    other = window("The lamp ___ was ___{1,3} lit", steps=2, temperature=1.0)
    windows = [first, other, dataclasses.replace(first, key=row_keys(5, 1)), window("___ open", steps=2)]
    alone = [result_of(engine().fill([one]))[0] for one in windows]
    for one, other in zip(result_of(engine().fill(windows)), alone, strict=True):
        assert [tokens.tolist() for tokens in one.tokens] == [tokens.tolist() for tokens in other.tokens]
        assert one.scores == other.scores


@torch.no_grad()
def test_a_prompt_whose_plan_is_known_is_not_read_again():
    machine, plans = engine(), {}
    windows = [window("The ___{2,5} hall"), window("The lamp ___ was lit")]
    first = result_of(machine.length_chances(windows[:1], plans))
    steps = machine.length_chances(windows, plans)
    assert len(list(steps)) == 1  # the other one's
    again, other = result_of(machine.length_chances(windows, plans))
    assert torch.equal(again, first[0])
    assert torch.equal(other, result_of(machine.length_chances(windows[1:]))[0])


def test_locked_fills_stay_whatever_is_found_for_the_others():
    model = Model(engine().model, TOKENIZER)
    (best,) = model.infill("The ___ hall ___{1} lit ___{0,}", fills=["old  lamp", None, ""], steps=1)
    assert (best.fills[0], best.fills[2]) == ("old  lamp", "")
    assert best.text == f"The old  lamp hall {best.fills[1].strip()} lit "


def test_attempts_at_a_text_draw_from_keys_of_their_own():
    keys = [int(Sample(dataclasses.replace(window("a ___"), draw=draw), None).key[0]) for draw in range(6)]
    assert len(set(keys)) == 6
    assert keys[0] == KEY[0]


@torch.no_grad()
def test_blanks_keep_their_bounds_where_the_network_cannot_tell_lengths():
    for seed in range(4):
        one = window("The ___{2,3} hall ___{1} lit ___{0,1}", steps=2, temperature=1.0, seed=seed)
        (filled,) = result_of(engine(gap_lengths=False).fill([dataclasses.replace(one, key=row_keys(seed, 1))]))
        texts = [engine().alphabet.spell(tokens) for tokens in filled.tokens]
        assert all(blank.holds(text) for blank, text in zip(one.blanks, texts, strict=True))


@torch.no_grad()
def test_words_are_found_in_the_gap_they_lie_in():
    machine = engine(gap_lengths=False)
    one = window("The ___ hall ___ lit", steps=2)
    *_, last = machine.states([Sample(one, None)])
    order = last.z[0].argsort(stable=True).tolist()
    by_hand, gap = {}, 0
    for slot in order:
        if last.is_prompt[0, slot]:
            gap += 1
        elif int(last.x[0, slot]) not in (V.pad, V.mask):
            by_hand.setdefault(gap, []).append(int(last.x[0, slot]))
    (found,) = gap_tokens(last, [one.view.prompt], V)
    assert {gap: tokens.tolist() for gap, tokens in enumerate(found) if len(tokens)} == by_hand


def certain(one, **lengths):
    """Chances that are sure of a length for the gaps of some blanks (by number, as b0, b1, …), and of 0 elsewhere."""
    chances = torch.zeros(len(one.view.prompt), CLASSES)
    chances[:, 0] = 1.0
    for name, length in lengths.items():
        row = chances[one.view.after[int(name[1:])]]
        row[0], row[length] = 0.0, 1.0
    return chances


def test_lengths_are_those_the_network_is_sure_of_within_bounds():
    one = window("The ___ hall ___{2,4} lit ___{5}")
    for draw in (0, 1, 7):
        assert choose_lengths(one.view, one.blanks, certain(one, b0=3, b1=3, b2=9), KEY, draw) == [3, 3, 5]
        assert choose_lengths(one.view, one.blanks, certain(one, b0=0, b1=9, b2=1), KEY, draw) == [1, 4, 5]


def test_blanks_that_share_a_gap_share_its_length():
    one = window("The ___ ___ ___ hall")
    assert choose_lengths(one.view, one.blanks, certain(one, b0=7), KEY) == [3, 2, 2]


def test_short_lengths_are_favoured_where_gaps_are_told():
    """Chances of 1 and 11 alike: tilted by e^(−length/10) the mean is (1 + 11/e)/(1 + 1/e)."""
    one = window("The ___ hall")
    chances = (certain(one, b0=1) + certain(one, b0=11)) / 2
    assert choose_lengths(one.view, one.blanks, chances, KEY) == [round((1 + 11 / np.e) / (1 + 1 / np.e))]
    free = window("The ___ hall", located=False)
    assert choose_lengths(free.view, free.blanks, chances, KEY) == [6]


def test_draws_of_a_key_have_the_chances_of_each_length_and_of_another_key_another_order():
    one = window("The ___ hall ___ lit")
    tilt = torch.exp(class_lengths() / 10)
    chances = certain(one)
    for after in one.view.after:
        chances[after] = 0.0
        chances[after, 1:4] = torch.tensor([0.2, 0.3, 0.5])
    chances = chances * tilt / (chances * tilt).sum(-1, keepdim=True)
    drawn = {
        seed: [tuple(choose_lengths(one.view, one.blanks, chances, row_keys(seed, 1), draw)) for draw in range(1, 101)]
        for seed in (0, 1)
    }
    for lengths in drawn.values():
        for blank in (0, 1):
            counts = Counter(length[blank] for length in lengths)
            assert [counts[n] for n in (1, 2, 3)] == pytest.approx([20, 30, 50], abs=3)
        assert len(set(lengths)) > 6  # of nine pairs: the two blanks do not go together
    assert drawn[0] != drawn[1]


def test_bounds_in_words_hold_in_tokens_and_all_fit_into_the_slots():
    one = window("The ___{4,9} hall ___{,2} lit ___")
    room = SLOTS - len(one.view.prompt)
    assert within_bounds(one.view, one.blanks, [0, 9, 3]) == [4, 2, 3]
    assert within_bounds(one.view, one.blanks, [30, 0, 0]) == [9, 0, 1]
    wide = within_bounds(one.view, [Blank(), Blank(2), Blank()], [90, 0, 90])
    assert sum(wide) == room
    assert wide[1] >= 2
    assert wide[0] == pytest.approx(wide[2], abs=1)
    most = [Blank(64, 64), Blank(64, 64), Blank(0, 0)]
    assert within_bounds(one.view, most, [1, 1, 5]) == [64, 64, 0]  # what must be held is held
