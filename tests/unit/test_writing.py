"""Blanks written from left to right: what a plain loop without a cache writes, within bounds, alone and in batches."""

import dataclasses
import gc
import itertools
import re
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddot.core.codes import NOT_PROMPT
from ddot.core.gaps import missing_after
from ddot.core.records import Example, State
from ddot.core.rng import row_keys
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.items import Prompted
from ddot.evaluation.nats import after_outline
from ddot.infill import answers as answering
from ddot.infill import writing
from ddot.infill.answers import Attempt, _best, answer_requests
from ddot.infill.draft import fluency, gaps
from ddot.infill.engine import CPU, Engine, Filled, Shape, Window
from ddot.infill.model import Model
from ddot.infill.passes import (
    Candidate,
    ContinuousBatch,
    Pruning,
    Rows,
    SharedWork,
    _prune,
    candidates_for_one,
    sample,
)
from ddot.infill.reading import AsyncCopy, Graph, Reader, Slot
from ddot.infill.scheduler import result_of
from ddot.infill.settings import Settings
from ddot.infill.template import parse
from ddot.infill.view import view
from ddot.infill.writing import fill_log_probs, score_fills, write
from ddot.methods.layout import in_line
from ddot.methods.outline import Outline
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig
from ddot.network.trunk import left_to_right

pytestmark = pytest.mark.usefixtures("few_candidates")
SENTENCES = ["The lamp in the hall was lit, and the door stood open.", "Nobody answered at first; then a dog barked."]
TOKENIZER = learn_bpe(SENTENCES * 4, 360)
V = TOKENIZER.vocabulary
EIGHT = Shape(rows=8, multiple=16, logit_chunk=8)  # of which two are read at a time
TEXTS = [
    "The lamp ___ open.",
    "Nobody ___{2,5} at first; ___ barked ___{1}.",
    "___",
    "a ___{0} b ___{4}",
    "the door , it ___ open .",
    "The ___ ___{2} ___ hall",
    '___{0,} stood (___) open "___{3,}"',
    " ".join(f"hall{i} ___{{1,2}}" for i in range(9)),  # two windows
]


def network(seed=3, std=0.3):
    trunk = LlamaConfig(width=32, blocks=2, heads=4, key_heads=2, inner_width=64, vocabulary=V.rows)
    torch.manual_seed(seed)
    net = Denoiser(dataclasses.replace(DenoiserConfig.extended(trunk, V), order="outline")).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return net


NETWORK = network()
ALPHABET = Engine(NETWORK, TOKENIZER).alphabet
MODELS = {shape: Model(NETWORK, TOKENIZER, "toy", shape=shape) for shape in (CPU, EIGHT)}


def model(shape=CPU):
    return MODELS[shape]


def window(text, located=True, n=2, **how):
    """By default every candidate is written to its end, as several are wanted."""
    template = parse(text)
    return Window(view(template, TOKENIZER, located), template.blanks, row_keys(0, 1), Settings(n=n), **how)


def bits(found):
    return [(each.text, each.fills, each.score, each.scores) for each in found]


def whole_pass(slots):
    """Hidden vectors of a row read in one pass, laid out as training does."""
    x, length, hint = (
        torch.tensor([column]) for column in zip(*[(s.token, s.length, s.hint) for s in slots], strict=True)
    )
    z = torch.from_numpy(in_line(hint.numpy() != NOT_PROMPT, np.zeros(1, np.uint64)))
    return NETWORK.read(State(x, z, hint, length, torch.zeros(1)), left_to_right)[0][0]


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_reading_with_the_cache_is_reading_at_once(masked):
    """Rows of different lengths in passes of different widths, with padding, a row doubled, and a part taken back."""
    candidates = [Candidate(window(text), Engine(NETWORK, TOKENIZER)) for text in TEXTS[:2]]
    rows = [[*each.outline, *map(Slot, each.draft.given)] for each in candidates]
    a, b = (each.offset for each in candidates)
    reader = Reader(NETWORK, 2, masked)
    reader.read([rows[0][: a + 1], rows[1][:b]], [0, 0], b + 4)
    reader.read([rows[0][a + 1 : a + 2], rows[1][b : b + 3]], [a + 1, b], 3)
    reader.select(torch.tensor([1, 0, 1]))
    rows = [rows[1], rows[0], rows[1]]
    reader.read([[Slot(5), Slot(6)], [], []], [b + 3, 0, 0], 2)
    reader.truncate(0, b + 3)
    ends = (b + 3, b + 6), (a + 2, a + 6), (b + 3, b + 5)
    hidden = reader.read([row[slice(*end)] for row, end in zip(rows, ends, strict=True)], [end[0] for end in ends], 4)
    for row, (_, last) in enumerate(ends):
        assert torch.allclose(hidden[row, -1], whole_pass(rows[row][:last])[-1], atol=1e-4)


@torch.no_grad()
def plainly(text):
    """The greedy fills of a text, every token from a pass over the whole row."""
    one = Candidate(window(text), Engine(NETWORK, TOKENIZER))
    cost, rules = one.engine.repetition_penalty.cost, one.engine.rules
    while not one.draft.done:
        draft = one.draft
        told = zip(draft.text, draft.told_lengths, strict=True)
        logits = NETWORK.logits(whole_pass([*one.outline, *itertools.starmap(Slot, told)])[-1:])[0]
        there = [*one.window.view.prompt.example.tokens, *draft.text]
        tired = torch.zeros_like(logits)
        tired[there] = cost[there]
        may = rules[draft.rule()].clone()
        may[draft.forbidden()] = False
        token = int((logits - tired).masked_fill(~may, -torch.inf).argmax())
        draft.n_read = len(draft.text)
        likely = torch.log_softmax(logits, -1)
        draft.take(token, float(likely[token]), float(likely[V.sep]))
    return one.by_blank()


@pytest.mark.parametrize("shape", [CPU, EIGHT], ids=["alone", "in batches"])
@pytest.mark.parametrize("text", TEXTS[:7])
@torch.no_grad()
def test_the_greedy_candidate_is_what_a_plain_loop_writes(text, shape):
    (found,) = result_of(write([window(text)], Engine(NETWORK, TOKENIZER, shape))).values()
    tokens, _ = plainly(text)
    assert [each.tolist() for each in found.tokens] == [each.tolist() for each in tokens]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"n": 3}, {"temperature": 1.0, "n": 2, "seed": 4}, {"avoid": ["lamp", "t"]}], ids=str
)
def test_an_answer_has_the_same_bits_alone_in_any_list_and_again(options):
    texts = [TEXTS[number] for number in (7, 1, 4, 0)]
    together = [bits(found) for found in model(EIGHT).infill(texts, **options)]
    for number in (0, 2):
        assert bits(model(EIGHT).infill(texts[number], **options)) == together[number]
    assert [bits(found) for found in model(EIGHT).infill(texts[::-1], **options)] == together[::-1]
    one_by_one = [[each.text for each in found] for found in model().infill(texts, **options)]
    assert one_by_one == [[text for text, *_ in found] for found in together]


BLANKS = st.sampled_from(["___", "___{0,}", "___{1}", "___{2,4}", "___{5}", "___{0}", "___{3,}", "___{,2}", "___{20}"])
LITERALS = st.sampled_from(
    ["The lamp ", " was", "(", ") ", ' "', '" ', ", and ", ".", " ", "", "\n\n", "漢字", " open . "]
)
PARTS = st.lists(st.tuples(LITERALS, BLANKS), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(parts=PARTS, end=LITERALS, seed=st.integers(0, 9), n=st.sampled_from([1, 3]))
def test_bounds_hold_whatever_the_network_says(parts, end, seed, n):
    text = "".join(literal + blank for literal, blank in parts) + end
    template = parse(text)
    for each in model().infill(text, n=n, seed=seed):
        assert each.text == template.text(each.fills)
        for blank, fill in zip(template.blanks, each.fills, strict=True):
            assert blank.holds(fill)
            assert not blank.least or any(map(str.isalnum, fill)) or "$" in fill
        assert np.isfinite(each.scores).all()


WANTS = {
    "begin": ALPHABET.begins,
    "go on": ALPHABET.continues,
    "marks": ALPHABET.mark | ALPHABET.closes,
    "spaces": ALPHABET.space,
    "end": np.arange(V.rows) == V.sep,
    "anything": np.ones(V.rows, bool),
}


@settings(max_examples=300, deadline=None)
@given(
    parts=PARTS,
    end=LITERALS,
    wants=st.sampled_from(sorted(WANTS)),
    tokens=st.sampled_from([None, 1, 7]),
    rng=st.randoms(use_true_random=False),
)
def test_bounds_hold_for_a_network_that_wants_one_sort_of_tokens(parts, end, wants, tokens, rng):
    """The likelihoods of ends are at random, time is up at any moment."""
    one = Candidate(window("".join(map("".join, parts)) + end, max_tokens=tokens), model().engine)
    draft, rules = one.draft, one.engine.rules.numpy()
    while not draft.done:
        draft.n_read = len(draft.text)
        draft.past_deadline |= rng.random() < 0.02
        allowed = rules[draft.rule()].copy()
        allowed[draft.forbidden()] = False
        liked = np.flatnonzero(allowed & WANTS[wants])
        draft.take(int(rng.choice(liked if len(liked) else np.flatnonzero(allowed))), -1.0, -9 * rng.random())
    fills = one.by_blank()[0]
    assert sum(map(len, fills)) == sum(len(each.tokens) for each in draft.fills)  # nothing is lost on the way
    for blank, fill in zip(one.window.blanks, fills, strict=True):
        assert blank.holds(ALPHABET.spell(fill))
        assert not blank.least or ALPHABET.wordlike[fill].any()


@settings(max_examples=12, deadline=None)
@given(text=st.sampled_from(TEXTS), seconds=st.sampled_from([0.0, 0.002, 0.01]), tokens=st.sampled_from([None, 1, 4]))
def test_bounds_hold_in_a_hurry(text, seconds, tokens):
    request = dataclasses.replace(Model.request(text, seconds=seconds), max_tokens=tokens)
    with torch.inference_mode():
        (found,) = result_of(answer_requests([request], model().engine))
    assert all(
        blank.holds(fill) for blank, fill in zip(request.template.blanks, found.best[0].infill.fills, strict=True)
    )


@pytest.mark.parametrize("text", TEXTS[:7])
@torch.no_grad()
def test_the_score_of_what_is_written_is_that_of_the_same_fills(text):
    windows, engine = [window(text, draw=draw) for draw in range(3)], Engine(NETWORK, TOKENIZER)
    written = result_of(write(windows, engine)).values()
    judged = result_of(score_fills(windows, [each.tokens for each in written], engine))
    for one, other in zip(written, judged, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)
        assert all(V.sep not in tokens for tokens in one.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [CPU, EIGHT], ids=["alone", "in batches"])
@torch.no_grad()
def test_a_candidate_gives_up_where_one_that_is_written_can_hardly_be_beaten(shape):
    """Those that do are the ones found by applying the rule, token by token, to candidates written to their end."""
    given_up = 0
    for seed, text in ((0, TEXTS[0]), (14, TEXTS[0]), (20, "Nobody ___ barked.")):
        engine = Engine(network(seed), TOKENIZER, shape)
        whole = [Candidate(window(text, draw=draw), engine) for draw in range(6)]
        result_of(writing._write(whole, engine))
        chances = [each.draft.fills[0].all_log_probs for each in whole]
        if [each.draft.n_draws for each in whole] != list(map(len, chances)):
            continue  # one was cut
        alive = set(range(6))
        for now in range(1, max(map(len, chances))):
            ended = [sum(chances[i]) + 0.75 * len(chances[i]) for i in alive if len(chances[i]) <= now]
            alive -= {
                i
                for i in alive
                if len(chances[i]) > now and sum(chances[i][:now]) + 0.75 * now < max(ended, default=-np.inf) - 3
            }
        one = dataclasses.replace(whole[0].window, settings=Settings())
        windows = [dataclasses.replace(one, draw=draw) for draw in range(6)]
        found = result_of(write(windows, engine))
        assert set(found) == alive
        given_up += 6 - len(alive)
        for number, each in found.items():
            assert [tokens.tolist() for tokens in each.tokens] == [t.tolist() for t in whole[number].by_blank()[0]]
        for how in (Settings(avoid=("never",)), Settings(n=6)):
            assert len(result_of(write([dataclasses.replace(each, settings=how) for each in windows], engine))) == 6
    assert given_up


@torch.no_grad()
def test_candidates_race_where_one_place_is_written():
    engine = Engine(NETWORK, TOKENIZER)
    for text, races in ((TEXTS[0], True), (TEXTS[1], False), ("a ___{0} b ___", True)):
        for how, wanted in ((Settings(), races), (Settings(n=3), races), (Settings(avoid=("never",)), False)):
            one = dataclasses.replace(window(text), settings=how)
            candidates = [Candidate(dataclasses.replace(one, draw=draw), engine) for draw in range(8)]
            writing._enable_pruning(candidates)
            assert [each.pruning is not None for each in candidates] == [wanted] * 8
    hurried = Candidate(window(TEXTS[0], seconds=1.0), engine)
    writing._enable_pruning([hurried])
    assert hurried.pruning is None


@pytest.mark.parametrize("n", [1, 2])
def test_whoever_is_behind_stays_behind_and_stops_where_one_is_wanted(n):
    engine, shared = Engine(NETWORK, TOKENIZER), Pruning()
    lamp, door = (ALPHABET.token_of[word] for word in (" lamp", " door"))
    good, late = (Candidate(window("The ___ open.", n=n), engine) for _ in range(2))
    good.pruning = late.pruning = shared
    good.draft.take(lamp, -1.0, -1.0)
    good.draft.take(V.sep, -0.5, -0.5)
    late.draft.take(lamp, -9.0, -1.0)
    _prune([late, good])
    assert shared.best == pytest.approx(-1.5 + 2 * 0.75)
    assert (good.trailing, late.trailing, late.pruned, late.draft.done) == (False, True, n == 1, n == 1)
    if n > 1:
        for number in range(20):
            late.draft.take((door, lamp)[number % 2], 0.0, -1.0)
        _prune([late])
        assert late.trailing
        late.draft.take(V.sep, 0.0, 0.0)
        _prune([late])
        assert late.draft.fluency() > shared.best == good.draft.fluency()


def test_an_answer_that_one_would_not_get_is_not_taken_for_it():
    nothing = np.zeros(0, np.int64)
    lamp, door = (np.array([ALPHABET.token_of[word]]) for word in (" lamp", " door"))
    found = {0: Filled([nothing], [-3.0], 0.0), 1: Filled([lamp], [-2.0], 0.0), 2: Filled([door], [-1.0], 0.0, True)}
    best = [number for number, _ in _best(found, window("The ___ open."), Engine(NETWORK, TOKENIZER))]
    assert best == [1, 2]


@pytest.mark.parametrize(("n", "chosen"), [(1, [0]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 2, 3, 1])])
def test_alternatives_that_repeat_a_better_one_come_last(n, chosen):
    fills = [(" the lamp lit", -1.0), (" the lamp", -1.2), (" door", -3.0), (" the hall", -3.1)]
    found = {number: Filled([TOKENIZER.encode(fill)], [score], 0.0) for number, (fill, score) in enumerate(fills)}
    best = [number for number, _ in _best(found, window("We saw ___ open.", n=n), Engine(NETWORK, TOKENIZER))]
    assert best == chosen  # " the lamp" loses 5 · 4/5 nats, " the hall" 5 · 2/5


@pytest.mark.parametrize(("before", "chosen"), [((), 0), ((" the lamp",), 2), ((" the lamp lit", " door"), 3)])
def test_a_continuation_differs_from_what_the_answers_before_it_have_there(before, chosen):
    fills = [(" the lamp lit", -1.0), (" the lamp", -1.2), (" door", -3.0), (" the hall", -3.1)]
    found = {number: Filled([TOKENIZER.encode(fill)], [score], 0.0) for number, (fill, score) in enumerate(fills)}
    later = dataclasses.replace(window("We saw ___ open.", n=3), number=1)
    engine, others = Engine(NETWORK, TOKENIZER), [answering._words([fill]) for fill in before]
    assert [number for number, _ in _best(found, later, engine, others)] == [chosen]


@torch.no_grad()
def test_each_answer_is_compared_with_those_before_it_in_the_same_gap():
    seen, best = [], answering._best

    def recorded(by_number, part, engine, before=()):
        chosen = best(by_number, part, engine, before)
        seen.append((part.number, [*before], [answering._words(answering._spell(each, engine)) for _, each in chosen]))
        return chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answering, "_best", recorded)
        found = model().infill(TEXTS[1], n=3)
    assert len(found) == 3
    for gap in {number for number, *_ in seen}:
        of_gap = [(before, chosen) for number, before, chosen in seen if number == gap]
        so_far = list[Counter]()
        for before, chosen in of_gap:
            assert before == so_far
            so_far += chosen


@torch.no_grad()
@pytest.mark.parametrize(("seed", "text"), [(0, TEXTS[0]), (5, "Nobody ___ barked."), (2, TEXTS[1])])
def test_at_a_temperature_too_the_answer_that_one_gets_is_among_several(seed, text):
    toy = Model(network(seed), TOKENIZER)
    (one,) = toy.infill(text, temperature=1.0, seed=seed)
    assert one.fills in [each.fills for each in toy.infill(text, n=3, temperature=1.0, seed=seed)]


@pytest.mark.parametrize(("temperature", "keys"), [(0.0, 1), (0.5, 3)])
def test_answers_that_are_sampled_draw_their_later_blanks_anew(temperature, keys):
    attempt = Attempt(Model.request(TEXTS[1], Settings(temperature=temperature)), 0)
    answers = [attempt.branch(number) for number in (0, 1, 2)]
    assert len({int(answer.window(TOKENIZER).key[0]) for answer in answers}) == keys
    assert answers[0].window(TOKENIZER).key == attempt.window(TOKENIZER).key  # what n = 1 draws


@pytest.mark.slow
@torch.no_grad()
def test_the_answer_that_one_gets_is_among_several_though_others_give_up():
    for seed, text in ((0, TEXTS[0]), (14, TEXTS[0]), (20, "Nobody ___ barked."), (21, "Nobody ___ barked.")):
        toy = Model(network(seed), TOKENIZER)
        (one,) = toy.infill(text)
        for n in (2, 3, 7):
            assert one.fills in [each.fills for each in toy.infill(text, n=n)]


@pytest.mark.parametrize(
    ("text", "fills", "then"),
    [
        ("The ___ stood ___ open.", [" lamp"], "The lamp stood ___ open."),
        ("The ___ ___{2} ___ hall ___{1}", [" door", " lamp lit", " at"], "The door lamp lit at hall ___{1}"),
        ("a ___{0} b ___{4} c ___", ["", " in the hall was"], "a  b in the hall was c ___"),
    ],
)
def test_a_place_is_filled_at_a_time_and_later_ones_see_what_was_written(text, fills, then):
    attempt = Attempt(Model.request(text), 0)
    first = attempt.window(TOKENIZER, one_gap=True)
    assert (first.n_filled, len(first.blanks)) == (len(fills), text.count("___"))
    attempt.take(Filled([TOKENIZER.encode(fill) for fill in fills], [0.0] * len(fills), 0.0), fills)
    second = attempt.window(TOKENIZER, one_gap=True)
    whole = view(parse(then), TOKENIZER, True)
    assert second.view.prompt.example.tokens.tolist() == whole.prompt.example.tokens.tolist()
    assert second.view.after == whole.after


@torch.no_grad()
def test_fills_of_several_places_are_written_in_turn_and_their_scores_are_those_of_own_fills(monkeypatch):
    written, take = {}, Attempt.take
    for text in (TEXTS[1], TEXTS[5], TEXTS[6]):
        with monkeypatch.context() as patch:

            def record(attempt, filled, fills):
                written.update(zip(fills, filled.tokens, strict=True))
                take(attempt, filled, fills)

            patch.setattr(Attempt, "take", record)
            found = model().infill(text, n=3)
        # Words spelt with other tokens than the tokenizer's have another score.
        usual = {fill.strip() for fill, tokens in written.items() if TOKENIZER.encode(fill).tolist() == tokens.tolist()}
        for one in found:
            own = model().scored(text, one.fills)
            for fill, score, expected in zip(one.fills, own.scores, one.scores, strict=True):
                assert score == pytest.approx(expected, abs=1e-3) or fill.strip() not in usual
            assert own.score == pytest.approx(one.score, abs=1e-3) or not usual.issuperset(map(str.strip, one.fills))
        assert sum(usual.issuperset(map(str.strip, one.fills)) for one in found) >= 2


def test_near_rivals_go_on_equal_texts_count_once_and_further_candidates_do_not_set_the_pace():
    engine = Engine(NETWORK, TOKENIZER)
    lamp, door = (ALPHABET.token_of[word] for word in (" lamp", " door"))
    good, twin, further, near, late = (Candidate(window("The ___ open.", n=2), engine) for _ in range(5))
    further.window = dataclasses.replace(further.window, draw=20)
    race = Pruning()
    for each in (good, twin, further, near, late):
        each.pruning = race
    for each, token, chance in ((good, lamp, -1.0), (twin, lamp, -1.0), (near, door, -2.0), (late, door, -9.0)):
        each.draft.take(token, chance, -1.0)
    for each in (good, twin):
        each.draft.take(V.sep, -0.5, -0.5)
    _prune([good, twin, near, late])
    assert (near.trailing, late.trailing, late.pruned) == (False, True, False)  # only one text is ahead of it
    further.draft.take(door, 5.0, -1.0)
    further.draft.take(V.sep, -0.5, -0.5)
    _prune([further, near, late])
    assert race.best == pytest.approx(0.0)
    assert (near.trailing, late.pruned) == (False, True)


def test_what_follows_a_place_counts_once():
    one = window("The ___ ___ hall ___ open.")
    fills = [TOKENIZER.encode(" lamp"), TOKENIZER.encode(" in"), TOKENIZER.encode(" was")]
    with torch.no_grad():
        ((first, second, third),) = result_of(writing._lookahead([one], [fills], Engine(NETWORK, TOKENIZER)))
    assert (len(first), len(second), len(third)) == (0, 1, 2)


def test_a_fill_whose_surroundings_are_not_scored_is_scored_by_itself():
    one, engine = window("The lamp ___ was lit."), Engine(NETWORK, TOKENIZER)
    with torch.no_grad():
        filled = result_of(write([one], engine, scored=False))[0]
        (log_probs,) = result_of(fill_log_probs(one, filled.tokens, engine))
    assert filled.scores == pytest.approx([fluency(log_probs, is_sentence=False)], abs=1e-4)


def test_a_fill_is_drawn_at_a_temperature_and_chosen_without():
    for how, wanted in ((Settings(), 6), (Settings(temperature=1.0), 1)):
        assert candidates_for_one(dataclasses.replace(window(TEXTS[0]), settings=how)) == wanted


def test_more_candidates_have_numbers_of_their_own(monkeypatch):
    """However many of the first have given up."""
    draws, original = [], answering.write
    monkeypatch.setattr(
        answering,
        "write",
        lambda windows, *rest: draws.extend(each.draw for each in windows) or original(windows, *rest),
    )
    more = 0
    for seed in range(6):
        draws.clear()
        Model(network(seed, 0.9), TOKENIZER).infill("The ___{1} open.", n=6)
        assert len(draws) == len(set(draws))
        more += len(draws) > 12
    assert more


def test_what_follows_a_place_is_known_up_to_the_next_one():
    one = window("The ___ hall ___ open.", n_filled=1)
    (hall,) = TOKENIZER.encode(" hall").tolist()
    text = writing._filled_text(one, [np.array([5, 6])], V.sep)
    assert [token for _, token, _ in text.targets] == [hall]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_whoever_gives_up_would_not_have_been_among_the_best(n):
    """With the rule of the race applied to candidates that were written to their end."""
    engine, one = Engine(network(14), TOKENIZER), window(TEXTS[0], n=n)
    windows = [dataclasses.replace(one, draw=draw) for draw in range(20)]
    with torch.no_grad():
        whole = [Candidate(each, engine) for each in windows]
        result_of(writing._write(whole, engine))
        left = result_of(write(windows, engine))
    fluency = {number: each.draft.fluency() for number, each in enumerate(whole)}
    bar = sorted({tuple(whole[i].draft.fills[0].tokens): fluency[i] for i in left}.values())[-n:][0]
    partly = {i: min(itertools.accumulate(c + 0.75 for c in whole[i].draft.fills[0].all_log_probs)) for i in fluency}
    assert n <= len(left) < 20
    assert all(partly[i] < bar - 3 for i in fluency if i not in left)


def together(engine, requests, after=1):
    """Answer requests in turns; the answers, and the most under way at once.

    Another joins every `after` turns; with 0, all at once.
    """
    found, most, waiting = {}, 0, list(enumerate(requests))
    under_way = {}
    for turn in itertools.count():
        while waiting and (after == 0 or turn % after == 0):
            number, request = waiting.pop(0)
            under_way[number] = answer_requests([request], engine)
            if after:
                break
        for number, steps in list(under_way.items()):
            try:
                next(steps)
            except StopIteration as end:
                found[number] = end.value[0].best
                del under_way[number]
        most = max(most, len(under_way))
        if not under_way and not waiting:
            return [found[number] for number in range(len(requests))], most


@pytest.mark.slow
def test_requests_that_join_a_continuous_batch_get_the_bits_they_get_alone(monkeypatch):
    requests = [model(EIGHT).request(text, Settings(n=n, seed=n)) for text in TEXTS for n in (1, 2)]
    passes, read = [], NETWORK.read
    monkeypatch.setattr(type(NETWORK), "read", lambda self, *given: passes.append(1) or read.__func__(self, *given))
    with torch.inference_mode():
        alone = [result_of(answer_requests([request], model(EIGHT).engine))[0].best for request in requests]
        one_by_one = len(passes)
        for after in (1, 3, 7):
            passes.clear()
            found, most = together(Engine(NETWORK, TOKENIZER, EIGHT), requests, after)
            assert found == alone
            assert most > 1
            assert len(passes) < 0.7 * one_by_one  # a batch has rows for four of them


def test_whoever_leaves_a_continuous_batch_frees_its_rows():
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    requests = [model(EIGHT).request(text) for text in TEXTS[:2]]
    with torch.inference_mode():
        leaving, staying = (answer_requests([request], engine) for request in requests)
        for _ in range(3):
            next(leaving), next(staying)
        leaving.close()
        (batch,) = engine.shared_work.batches.values()
        rows = {id(each.window.view) for each in batch.rows if each is not None}
        assert len(rows) == 1
        assert result_of(staying)[0].best == result_of(answer_requests([requests[1]], model(EIGHT).engine))[0].best


@pytest.mark.parametrize("where", ["written", "judged"])
def test_steps_that_end_in_the_middle_of_a_pass_of_others_stop_nobody(where, monkeypatch):
    """As those that nobody holds end when Python searches for cycles, which it may do in any line."""
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    requests = [model(EIGHT).request(text) for text in ("The lamp ___{1} open.", "The dog ___{5} open.")]
    alone = result_of(model(EIGHT).steps(requests[1])).best
    leaving = answer_requests([requests[0]], engine)
    done, choose, plainly = [], ContinuousBatch.choose, writing._score_texts

    def fill():
        with torch.inference_mode():
            next(leaving)
            while where == "judged" and not engine.shared_work.pending:
                next(leaving)
            if where == "written":
                monkeypatch.setattr(ContinuousBatch, "choose", lambda *given: leaving.close() or choose(*given))
            else:
                monkeypatch.setattr(writing, "_score_texts", lambda *given: leaving.close() or plainly(*given))
            done.append(result_of(answer_requests([requests[1]], engine))[0].best)

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    thread.join(60)
    assert done == [alone]
    assert not engine.shared_work.busy
    assert engine.shared_work.pending == []


def test_a_continuous_batch_that_fails_is_replaced():
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    requests = [model(EIGHT).request(text) for text in TEXTS[:3]]
    with torch.inference_mode():
        first, second = (answer_requests([request], engine) for request in requests[:2])
        for _ in range(3):
            next(first), next(second)
        (batch,) = engine.shared_work.batches.values()
        batch.read_slots, kept = None, weakref.ref(batch)
        with pytest.raises(TypeError):
            result_of(first)
        with pytest.raises(RuntimeError, match="has failed"):
            result_of(second)
        del batch, first, second
        again = result_of(answer_requests([requests[2]], engine))[0].best
        assert kept() is None  # its rows may be needed for those of the new one
        assert again == result_of(answer_requests([requests[2]], model(EIGHT).engine))[0].best


def test_families_get_rows_in_the_order_in_which_they_came(monkeypatch):
    """One that needs most of the rows is not kept waiting by small ones that come after it."""
    came, begun, add, read = [], [], ContinuousBatch.add, ContinuousBatch._prefill
    monkeypatch.setattr(ContinuousBatch, "add", lambda batch, family: came.append(family[0]) or add(batch, family))
    monkeypatch.setattr(
        ContinuousBatch,
        "_prefill",
        lambda batch, some, *rest: begun.extend(each[0] for each in some) or read(batch, some, *rest),
    )
    requests = [model(EIGHT).request("The lamp ___{4} open.", Settings(n=20 if i == 9 else 1)) for i in range(30)]
    with torch.inference_mode():
        together(Engine(NETWORK, TOKENIZER, EIGHT), requests, after=2)
    assert list(map(id, begun)) == list(map(id, came))


def test_small_families_do_not_take_the_rows_that_a_large_one_waits_for(monkeypatch):
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    batch, admitted = SharedWork(engine).batch(1), []
    monkeypatch.setattr(ContinuousBatch, "_prefill", lambda batch, families, *rest: admitted.extend(families))
    two, four, one = (
        [Candidate(window("The lamp ___{4} open.", draw=draw), engine) for draw in range(size)] for size in (2, 4, 1)
    )
    batch.rows = [None, None, None, *four]  # three rows are free
    batch.waiting, batch.passes_waited = [two, four, one], 1000
    batch._admit()
    assert list(map(len, admitted)) == [2]
    assert list(map(len, batch.waiting)) == [4, 1]


@torch.no_grad()
def test_content_words_given_or_written_become_dearer_in_their_row_alone():
    engine = Engine(NETWORK, TOKENIZER)
    rows = Rows(engine, [None, *(Candidate(window("The lamp ___{9} open.", draw=draw), engine) for draw in range(3))])
    generator = torch.Generator().manual_seed(1)
    for _ in range(6):
        counts = [0, *(len(each.unread_slots) for each in rows.rows[1:])]
        rows.choose(3 * torch.randn(4, 32, generator=generator), counts)
    for row, each in enumerate(rows.rows):
        there = torch.zeros_like(engine.repetition_penalty.cost, dtype=torch.bool)
        there[each.draft.given + each.draft.text if each else []] = True
        assert torch.equal(rows.penalties[row], engine.repetition_penalty.cost * there)
    assert (rows.penalties[1:] > 0).sum(1).unique().numel() > 1


def test_continuous_batches_of_widths_not_used_for_long_are_forgotten():
    shared = SharedWork(Engine(NETWORK, TOKENIZER, EIGHT))
    busy = shared.batch(1)
    busy.waiting.append([None])
    for columns in range(2, 12):
        shared.batch(columns).passes = 10
        shared.batch(2)
    assert shared.batch(1) is busy
    assert 2 in shared.batches
    assert len(shared.batches) < 7
    shared.batch(11).failed = "no memory"
    new = shared.batch(12)
    assert 11 not in shared.batches  # whatever failed is not kept for texts of its width
    new.passes = 10
    assert shared.passes == 110  # a clock, by which others wait: it never goes back


def test_the_rows_of_a_continuous_batch_that_is_forgotten_leave_memory_at_once():
    """Without a search for cycles, which may come much later: a GPU's memory fills up before."""
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    with torch.inference_mode():
        result_of(write([window(TEXTS[0])], engine))
    kept = [weakref.ref(batch.reader) for batch in engine.shared_work.batches.values()]
    gc.disable()
    try:
        engine.shared_work.batches.clear()
        assert [each() for each in kept] == [None]
    finally:
        gc.enable()


def test_texts_of_one_width_share_a_continuous_batch_however_many_widths_a_list_has(monkeypatch):
    made, init = [], ContinuousBatch.__init__
    monkeypatch.setattr(
        ContinuousBatch, "__init__", lambda batch, engine, columns: made.append(columns) or init(batch, engine, columns)
    )
    texts = ["The lamp" + " ___{64} hall" * blanks + " ___{1} open." for blanks in range(7)]
    with torch.inference_mode():
        next(write([window(text) for text in texts * 2], Engine(NETWORK, TOKENIZER, EIGHT)))
    assert len(made) == len(set(made)) == 7


def test_graphs_of_sizes_not_used_for_long_are_forgotten():
    shared = SharedWork(Engine(NETWORK, TOKENIZER, EIGHT))
    often = shared.graph((0,), len)
    for number in range(1, 2_000):
        seldom = shared.graph((number, 16, 6), len)
        assert shared.graph((0,), len) is often
        assert shared.graph((number, 16, 6), len) is seldom
    assert len(shared.graphs) < 100


def test_threads_that_fill_with_one_model_get_the_bits_they_get_alone():
    requests = [model(EIGHT).request(text) for text in TEXTS[:6]]
    alone = [result_of(model(EIGHT).steps(request)).best for request in requests]
    shared = Model(NETWORK, TOKENIZER, "toy", shape=EIGHT)
    with ThreadPoolExecutor(4) as pool:
        assert [found.best for found in pool.map(lambda each: result_of(shared.steps(each)), requests)] == alone


def test_texts_written_in_the_same_pass_are_judged_together(monkeypatch):
    plainly, judged = writing._score_texts, []
    monkeypatch.setattr(
        writing, "_score_texts", lambda families, *rest: judged.append(len(families)) or plainly(families, *rest)
    )
    with torch.inference_mode():
        together(Engine(NETWORK, TOKENIZER, EIGHT), [model(EIGHT).request(TEXTS[0])] * 4, after=0)
    assert judged == [2, 2]


@pytest.mark.slow
def test_others_are_written_while_numbers_are_on_their_way(monkeypatch):
    """As on a GPU; whoever is alone waits for them at once."""
    passed = []  # passes of the batch while numbers were on their way

    class Slow(AsyncCopy):
        def __init__(self, numbers):
            super().__init__(numbers)
            self.asked, self.since = 0, engine.shared_work.passes

        @property
        def ready(self):
            self.asked += 1
            passed.append(engine.shared_work.passes - self.since)
            return self.asked > 4

    monkeypatch.setattr(writing, "AsyncCopy", Slow)
    requests = [model(EIGHT).request(text) for text in TEXTS]
    with torch.inference_mode():
        engine = model(EIGHT).engine
        alone = [result_of(answer_requests([request], engine))[0].best for request in requests]
        assert not passed
        engine = Engine(NETWORK, TOKENIZER, EIGHT)
        found, _ = together(engine, requests, after=2)
    assert found == alone
    assert max(passed) > 1


def test_texts_judged_together_with_one_that_fails_are_judged(monkeypatch):
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    requests = [model(EIGHT).request(text) for text in ("The lamp ___ open.", "The dog ___ open.")]
    plainly, failures = writing._score_texts, [ValueError("no memory")]

    def failing(*given):
        if failures:
            raise failures.pop()
        return plainly(*given)

    monkeypatch.setattr(writing, "_score_texts", failing)
    with torch.inference_mode():
        first, second = (answer_requests([request], engine) for request in requests)
        found, errors = {}, 0
        under_way = {0: first, 1: second}
        while under_way:
            for number, steps in list(under_way.items()):
                try:
                    next(steps)
                    continue
                except StopIteration as end:
                    found[number] = end.value[0].best
                except ValueError:
                    errors += 1
                del under_way[number]
        assert (errors, len(found)) == (1, 1)
        (number,) = found
        assert found[number] == result_of(answer_requests([requests[number]], model(EIGHT).engine))[0].best


def test_nobody_waits_for_one_who_has_stopped_reading():
    """Texts wait for others to be judged with, but not for those whose passes nobody asks for."""
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    with torch.inference_mode():
        stopped = answer_requests([model(EIGHT).request("The lamp ___{30,} open.")], engine)
        for _ in range(3):
            next(stopped)
        steps = answer_requests([model(EIGHT).request(TEXTS[3])], engine)
        assert len(list(itertools.islice(steps, 500))) < 500
        assert engine.shared_work.busy  # the one that has stopped is not done


def test_whoever_leaves_or_fails_takes_its_texts_along(monkeypatch):
    """Texts of one size fail whenever they are judged, and those of another are judged all the same."""
    engine = Engine(NETWORK, TOKENIZER, EIGHT)
    long = model(EIGHT).request(" ".join(["hall"] * 20) + " ___{1} open.")
    plainly, failed = writing._score_texts, []

    def failing(families, size, engine):
        if size[0] > 16:
            failed.append(size)
            raise MemoryError
        return plainly(families, size, engine)

    monkeypatch.setattr(writing, "_score_texts", failing)
    with torch.inference_mode():
        leaving = answer_requests([long], engine)
        while engine.shared_work is None or not engine.shared_work.pending:
            next(leaving)
        leaving.close()
        assert engine.shared_work.pending == []
        first = answer_requests([long], engine)
        while not engine.shared_work.pending:
            next(first)
        beside = result_of(answer_requests([model(EIGHT).request(TEXTS[3])], engine))[0].best
        assert beside == result_of(answer_requests([model(EIGHT).request(TEXTS[3])], model(EIGHT).engine))[0].best
        assert failed == []
        with pytest.raises(MemoryError):
            result_of(first)
        assert engine.shared_work.pending == []


def test_a_computation_gets_its_tensors_on_the_device_it_runs_on():
    where = Graph(lambda *given: [each.device.type for each in given])
    assert where(torch.zeros(2), torch.ones(3), device=torch.device("meta")) == ["meta", "meta"]


@pytest.mark.parametrize("shape", [CPU, EIGHT], ids=["alone", "in batches"])
def test_texts_are_judged_on_the_device_of_the_network(shape, monkeypatch):
    engine = Engine(network(), TOKENIZER, shape)
    engine.model.to("meta")
    text = writing._filled_text(window(TEXTS[0]), [np.array([5, 6])], V.sep)

    def forward(reader, packed):
        raise KeyError(reader.x.device.type, packed.device.type)

    monkeypatch.setattr(Reader, "forward", forward)
    with pytest.raises(KeyError, match="'meta', 'meta'"):
        writing._score_texts([[text]], (16, 16, 6), engine)


@pytest.mark.slow
def test_one_answer_alone_is_among_several_and_best_first():
    for text in TEXTS[1::2]:
        alone = model().infill(text)[0]
        several = model().infill(text, n=4)
        assert alone.text in [each.text for each in several]
        assert len({each.text for each in several}) == len(several)
        assert [each.score for each in several] == sorted((each.score for each in several), reverse=True)


def test_a_paragraph_ends_as_a_sentence_does_wherever_one_ends():
    text, mark = "The lamp\n\n___\n\nNobody answered", re.compile(r"[.!?:…](?= |$)")
    models = [Model(network(seed), TOKENIZER, "toy") for seed in range(6)]
    fills = [each.fills[0] for toy in models for each in toy.infill(text, n=4)]
    assert all(fill[-1] in ".!?:…" for fill in fills if mark.search(fill))
    assert any(map(mark.search, fills))


def test_free_words_stay_in_order_and_something_is_added():
    for shape in MODELS:
        (found,) = model(shape).infill("lamp hall door", free=True)
        assert len(found.text.split()) > 3
        words = iter(re.findall(r"\w+", found.text))  # a fill may begin with a mark
        assert all(any(word == each for each in words) for word in ("lamp", "hall", "door"))


def test_a_row_is_laid_out_as_training_lays_out_a_text_of_that_length():
    """Bounds tell lengths; the outline and the text up to a gap are those of a text with so many tokens missing."""
    one = Candidate(window("The ___{4} hall was ___{8} lit."), model().engine)
    told = {gap.after: gap.told for gap in one.gaps}
    assert list(told.values()) == [5, 10]
    given = one.window.view.prompt.example
    tokens = np.concatenate([[token, *[9] * told.get(place, 0)] for place, token in enumerate(given.tokens)])
    is_prompt = np.concatenate([[True, *[False] * told.get(place, 0)] for place in range(len(given.tokens))])
    hint = np.full(len(tokens), NOT_PROMPT)
    hint[is_prompt] = given.hints
    slots = Outline(3.0).prepare(
        [Example(tokens, is_prompt, hint, missing_after(is_prompt))],
        len(tokens),
        np.zeros(1, np.float32),
        row_keys(0, 1),
        V,
    )
    mine = [*one.outline, *one.unread_slots]
    trained = zip(slots.x_0[0].tolist(), slots.gap_length[0].tolist(), slots.hint[0].tolist(), strict=True)
    assert mine == list(itertools.starmap(Slot, trained))[: len(mine)]


@torch.no_grad()
def test_candidates_draw_numbers_of_their_own():
    engine, texts = model().engine, set()
    for key in (row_keys(0, 1), row_keys(1, 1)):
        windows = [dataclasses.replace(window("The ___{6} hall", draw=draw), key=key) for draw in range(1, 5)]
        texts |= {ALPHABET.spell(each.tokens[0]) for each in result_of(write(windows, engine)).values()}
    assert len(texts) >= 6


def test_a_fill_begins_with_the_letters_given():
    for letters in ("la", "stoo", "Nobo"):
        request = dataclasses.replace(Model.request("The ___{0,} open.", seconds=None), fill_prefix=letters)
        with torch.inference_mode():
            (found,) = result_of(answer_requests([request], model().engine))
        assert found.best[0].infill.fills[0].startswith(letters)


def test_words_are_counted_where_one_of_several_blanks_side_by_side_is_bounded():
    def may_be_spaces(text):
        one = Candidate(window(text), model().engine)
        return bool(one.engine.rules.numpy()[one.draft.rule(), : len(ALPHABET.space)][ALPHABET.space].any())

    assert not may_be_spaces("The ___{0,} ___{,2} open.")  # a word after a bare space would not be counted
    assert may_be_spaces("The ___{0,} ___{0,} open.")


@pytest.mark.parametrize("text", ["Nobody answered. ___{4} Then a dog barked.", "The lamp ___{3} open."])
@torch.no_grad()
def test_no_word_is_glued_to_the_last_that_is_asked_for(text):
    for seed in range(6):
        one = window(text)
        windows = [dataclasses.replace(one, draw=draw) for draw in range(6)]
        (gap,) = gaps(one.view, one.blanks, None)
        for found in result_of(write(windows, Engine(network(seed), TOKENIZER))).values():
            fill = ALPHABET.spell(found.tokens[0])
            assert not re.search(r"[.,;:!?][^\W\d_]", fill.split()[-1]), fill
            if gap.ends_sentence and len(found.tokens[0]) < gap.max_tokens:
                assert fill.rstrip("\"'”’)").endswith((".", "!", "?", "…", ":")), fill
    assert gap.ends_sentence == ("answered" in text)
    engine = Engine(NETWORK, TOKENIZER)
    draft = Candidate(one, engine).draft
    for number in range(gap.bounds.most):
        draft.take(ALPHABET.token_of[" lamp" if number % 2 else " door"], -1.0, -1.0)
    assert engine.rules[draft.rule()].numpy()[ALPHABET.word].any()
    draft.take(ALPHABET.token_of[","], -1.0, -1.0)
    assert not engine.rules[draft.rule()].numpy()[ALPHABET.word].any()


@pytest.mark.parametrize("bounds", ["", "{9,12}"])
@pytest.mark.parametrize(
    ("text", "capital"),
    [
        (" door.", False),
        (" stood open,", False),
        (" door.)", False),
        (" a.", True),  # an initial, as in "U.S.A"
        (" lamp", True),
    ],
)
def test_no_capital_is_glued_to_a_mark(bounds, text, capital):
    engine = Engine(NETWORK, TOKENIZER)
    draft = Candidate(window(f"It rained ___{bounds} at first"), engine).draft
    for token in TOKENIZER.encode(text).tolist():
        draft.take(token, -1.0, -1.0)
    allowed = engine.rules[draft.rule()].numpy()
    capitals = ALPHABET.word & np.array([p[:1].isupper() for p in ALPHABET.pieces] + [False] * (V.rows - V.base))
    assert allowed[capitals].any() == capital
    assert allowed[ALPHABET.begins & ~ALPHABET.mark].any()
    assert allowed[ALPHABET.word & ~capitals].any()  # "2.5", "example.org"


def test_a_sentence_whose_words_are_counted_does_not_end_in_mid_phrase(monkeypatch):
    monkeypatch.setattr("ddot.infill.draft._DANGLING", frozenset(["the", "and", "a"]))
    words = {ALPHABET.token_of[" " + word] for word in ("the", "and")}
    between, within = (window(f"{before} ___{{3}} Then a dog barked.") for before in ("It rained.", "It rained and"))
    for one, ends in ((between, True), (within, False)):
        draft = Candidate(one, Engine(NETWORK, TOKENIZER)).draft
        for number in range(3):
            assert (words <= set(draft.forbidden())) == (ends and number == 2)
            draft.take(ALPHABET.token_of[" lamp" if number % 2 else " door"], -1.0, -1.0)


@pytest.mark.parametrize("letters", ["la", "stoo", "Nobo"])
def test_letters_are_finished_and_something_follows_however_little_time_there_is(letters):
    request = dataclasses.replace(Model.request("The ___{0,} open.", seconds=1e-9), fill_prefix=letters)
    with torch.inference_mode():
        (found,) = result_of(answer_requests([request], model().engine))
    (fill,) = found.best[0].infill.fills
    assert fill.startswith(letters)
    assert len(fill) > len(letters)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (" lamp in the hall", [" lamp", " lamp in the hall"]),
        (" open.The lamp", [" open", " open.", " open.The", " open.The lamp"]),
        (' lit (a "dog', [" lit", ' lit (a "dog']),
        (" stood 7", [" stood"]),
    ],
)
def test_a_text_is_cut_after_whole_words_that_may_end_it(text, ends):
    draft = Candidate(window("The ___ open."), model().engine).draft
    tokens = TOKENIZER.encode(text).tolist()
    found = [TOKENIZER.decode(tokens[:n]) for n in range(1, len(tokens) + 1) if draft._ends_cleanly(tokens, n)]
    assert found == ends


def test_words_to_be_avoided_do_not_come():
    for each in model().infill("The ___ hall ___{3}", n=3, avoid=["a", "lamp", "the", "door"]):
        words = " ".join(each.fills).lower().split()
        assert not {"a", "lamp", "the", "door"} & {word.strip(".,;:!?\"'") for word in words}


def test_a_token_that_repeats_the_last_or_completes_what_is_avoided_is_forbidden():
    one = Candidate(window("The ___ hall"), model().engine, banned=((5, 6), (7,), (6, 5, 8)))
    before = one.draft.text[-1]
    assert {before, 7} <= set(one.draft.forbidden())
    for token, wanted in ((5, {5, 6, 7}), (9, {9, 7}), (6, {6, 7}), (5, {5, 6, 7, 8})):
        one.draft.take(token, -1.0, -1.0)
        assert set(one.draft.forbidden()) == wanted


def test_draws_have_the_chances_of_the_nucleus():
    """Chances 0.5, 0.3, 0.15, 0.05: of the nucleus of 0.9 the first three, in proportion."""
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    u = (torch.arange(2000) + 0.5) / 2000
    for temperature, top_p, wanted in (
        (1.0, 1.0, [0.5, 0.3, 0.15, 0.05]),
        (1.0, 0.9, np.array([0.5, 0.3, 0.15, 0]) / 0.95),
        (0.5, 1.0, np.array([0.5, 0.3, 0.15, 0.05]) ** 2 / 0.365),
    ):
        tokens = sample(scores.expand(2000, 4), temperature, top_p, u)
        assert (torch.bincount(tokens, minlength=4) / 2000).tolist() == pytest.approx(list(wanted), abs=2e-3)


@torch.no_grad()
def test_nats_of_words_and_end_are_what_writing_them_costs():
    """Of a text with one blank: the log-probabilities of its tokens and its end, by the pass that scores own fills."""
    fill = TOKENIZER.encode(" in the hall")
    one = window("The lamp ___ was lit.")
    lengths = np.zeros(len(one.view.prompt), np.int64)
    lengths[one.view.after[0]] = len(fill)
    words, ends = after_outline(NETWORK, [Prompted(one.view.prompt, lengths, fill, 0, (), ())])
    ((chances,),) = [result_of(fill_log_probs(one, [fill], model().engine))]
    assert words[0] + ends[0] == pytest.approx(-sum(chances), rel=1e-4)
    assert (words[1], ends[1]) == (len(fill), 1)
