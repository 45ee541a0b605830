"""The embedded model and a toy, as users call them: answers alone and in lists, alternatives, streams, lengths."""

import itertools
import math

import pytest
import torch

import ddot
from ddot.core.gap_lengths import CLASSES
from ddot.core.rng import row_keys
from ddot.data.tokenizer import learn_bpe
from ddot.infill import answers
from ddot.infill.answers import Answer, Infill
from ddot.infill.frames import Frame
from ddot.infill.model import Model
from ddot.infill.planned_lengths import choose_lengths
from ddot.infill.template import free, parse
from ddot.infill.view import view
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig

TEXTS = [
    "The baker opened ___{1,4} before sunrise.",
    "We took the early train ___{2} the mountains and ___{1,6}.",
    "___{1,3} neighbours’ cat sleeps on our roof.",
    "Naïve café — 漢字 🙂:\n\n\t___{1,2}  (שלום)",
]
SENTENCES = [
    "The lamp in the hall was lit, and the door stood open.",
    'Nobody answered at first; then a dog barked: " - & "',
]


@pytest.fixture(scope="module")
def embedded():
    return ddot.load(threads=2)


@pytest.fixture(scope="module")
def toy():
    tokenizer = learn_bpe(SENTENCES * 4, 360)
    v = tokenizer.vocabulary
    trunk = LlamaConfig(width=32, blocks=2, heads=4, key_heads=2, inner_width=64, vocabulary=v.rows)
    torch.manual_seed(3)
    denoiser = Denoiser(DenoiserConfig.extended(trunk, v)).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(denoiser, tokenizer, "toy", threads=2)


def check(text, infill):
    template = parse(text)
    assert infill.text == template.text(infill.fills)
    assert math.isfinite(infill.score)
    assert infill.score <= 0
    for blank, fill in zip(template.blanks, infill.fills, strict=True):
        assert blank.holds(fill)
        assert bool(fill) or blank.least == 0


@pytest.mark.slow
def test_the_embedded_model_fills_blanks(embedded):
    for text, (infill,) in zip(TEXTS, embedded.infill(TEXTS, steps=2), strict=True):
        check(text, infill)


@pytest.mark.slow
def test_the_embedded_model_knows_english(embedded):
    tea = embedded.infill("He drank a cup ___{1} tea.", steps=1)[0]
    assert tea.fills == ["of"]
    assert embedded.infill("She was born in 1985 and died ___{1} 2010.", steps=1)[0].fills == ["in"]
    assert tea.score > embedded.infill("Tea cup a drank he ___{1} of.", steps=1)[0].score


def same(a, b):
    return [[(each.text, each.fills, each.score) for each in some] for some in a] == [
        [(each.text, each.fills, each.score) for each in some] for some in b
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "n"), [("embedded", 1), ("toy", 3)])
def test_an_answer_is_the_same_alone_and_in_any_list(which, n, request):
    model = request.getfixturevalue(which)
    a, b, c = TEXTS[:3]
    settings = {"steps": 2, "temperature": 0.9, "n": n, "seed": 5}
    alone = {text: model.infill(text, **settings) for text in (a, b, c)}
    for texts in [(a, b, c), (c, a, c)]:
        assert same(model.infill(list(texts), **settings), [alone[text] for text in texts])


@pytest.mark.slow
def test_alternatives_of_the_embedded_model_differ_best_first(embedded):
    text = "On Sundays my grandmother ___{2,5} in the garden."
    found = embedded.infill(text, n=3, steps=2)
    assert len({each.text for each in found}) == 3
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    for each in found:
        check(text, each)
    locked = embedded.infill(text + " ___{1,3}", steps=2, fills=[found[1].fills[0], None])[0]
    assert locked.fills[0] == found[1].fills[0]
    assert locked.text.startswith(found[1].text)


@pytest.mark.slow
def test_free_words_of_the_embedded_model_stay_in_order(embedded):
    words = "storm harbour boats morning"
    infill = embedded.infill(words, free=True, steps=4)[0]
    assert infill.text == free(words).text(infill.fills)
    assert len(infill.text.split()) > len(words.split())  # the model adds something of its own
    place = 0
    for word in words.split():
        place = infill.text.index(word, place) + len(word)


def test_promises_hold_whatever_way_is_taken(toy):
    for text, (terminal, temperature, seed) in itertools.product(
        TEXTS, [("grid", 0.0, 1), ("random", 0.0, 2), ("random", 1.0, 3), (None, 1.0, 4)]
    ):
        check(text, toy.infill(text, steps=2, terminal=terminal, temperature=temperature, seed=seed)[0])


def test_the_same_seed_gives_the_same_answer_and_others_do_not(toy):
    text = "The lamp ___{3,6} first."
    answers = {seed: toy.infill(text, temperature=1.0, seed=seed, steps=3)[0].text for seed in range(8)}
    assert toy.infill(text, temperature=1.0, seed=3, steps=3)[0].text == answers[3]
    assert len(set(answers.values())) > 4


def test_one_answer_where_there_is_only_one(toy):
    assert [each.text for each in toy.infill("a ___{0} b", n=5, steps=1)] == ["a  b"]
    (only,) = toy.infill("a ___ b", n=5, fills=[" c  d "])
    assert (only.text, only.fills, only.score) == ("a  c  d  b", [" c  d "], 0.0)
    assert toy.infill([]) == []


def test_long_texts_are_filled_window_by_window(toy):
    words = [f"word{number}" + " ___{1,2}" * (number % 5 == 0) for number in range(120)]
    text = " ".join(words)
    (infill,) = toy.infill(text, steps=1)
    check(text, infill)
    assert len(infill.fills) == 24


@pytest.mark.parametrize("settings", [{}, {"terminal": None}, {"terminal": "random"}, {"free": True}], ids=str)
@pytest.mark.parametrize("text", ["Naïve 漢字 ___{1,4} 🙂, she ___{3}said\n\n(no) ___.", "___{2}"])
def test_streams_end_in_a_text_that_holds_the_literals(toy, text, settings):
    words = text.replace("_", "x") if settings.get("free") else text
    template = free(words) if settings.get("free") else parse(words)
    frames = list(toy.stream(words, steps=3, **settings))
    assert frames[0].t == 1
    assert frames[-1].t == 0
    for frame in frames:
        assert len(frame.pieces) == len(frame.positions) == len(frame.given) == len(frames[0].pieces)
        assert frame.given == frames[0].given
    assert None not in frames[-1].pieces
    # The words given are there, whole, in order, and each blank holds what its bounds ask for.
    last = frames[-1]
    order = sorted(range(len(last.pieces)), key=lambda slot: (last.positions[slot], slot))
    given = "".join(last.pieces[slot] for slot in order if last.given[slot])
    assert "".join(given.split()) == "".join("".join(template.literals).split())
    rest = last.text
    for literal in (" ".join(each.split()) for each in template.literals if each.split()):
        _, found, rest = rest.partition(literal)
        assert found == literal
    (infill,) = toy.infill(words, **{"steps": 3, "terminal": "grid", **settings})
    assert "".join(infill.text.split()) == "".join(last.text.split())  # what is watched is what is got


def test_streams_leave_the_callers_torch_as_it_is(toy):
    frames = toy.stream("The ___{2} hall", steps=2)
    assert isinstance(next(frames), Frame)
    assert not torch.is_inference_mode_enabled()
    weight = torch.ones(1, requires_grad=True)
    (weight * 2).backward()
    assert weight.grad == 2


def test_frames_read_with_marks_for_what_is_masked():
    frame = Frame(0.5, ["", " We", None, " sea", "", " the"], [-1.0, -0.5, 0.5, 0.4, 1.0, 0.1], [True] * 6)
    assert frame.text == "We the sea ░"


@pytest.fixture
def scripted(toy, monkeypatch):
    """A model whose attempts are known: (fill, score) for each, the last again and again; and their numbers."""

    def scripted(*script):
        asked = []

        def filled(attempts, engine, plans):
            yield from ()
            asked.extend(attempt.number for attempt in attempts)
            known = [(attempt, script[min(attempt.number, len(script) - 1)]) for attempt in attempts]
            return [
                Answer(Infill(attempt.request.template.text([fill]), [fill], score), attempt.number, 0)
                for attempt, (fill, score) in known
            ]

        monkeypatch.setattr(answers, "fill_attempts", filled)
        return toy, asked

    return scripted


@pytest.mark.parametrize(
    ("script", "n", "fills", "asked"),
    [
        # The first is kept though it is the worst; of the others the best, none of them empty.
        ([("a", -9.0), ("b", -3.0), ("", -0.1), ("c", -2.0), ("d", -5.0), ("e", -1.0)], 3, ["e", "c", "a"], 6),
        ([("a", -1.0), ("b", -3.0), ("a", -1.0), ("a", -1.0)], 2, ["a", "b"], 4),  # enough: it does not warm up
        ([("a", -1.0), ("", -3.0)], 2, ["a", ""], 16),  # nothing but an empty one, at four temperatures
        ([("a", -1.0)], 3, ["a"], 24),
        ([("a", -1.0)], 1, ["a"], 1),
    ],
)
def test_alternatives_are_the_one_alone_and_the_best_of_twice_as_many(scripted, script, n, fills, asked):
    model, attempts = scripted(*script)
    found = model.infill("The ___ hall", n=n)
    assert [each.fills[0] for each in found] == fills
    assert attempts == list(range(asked))


def test_a_blank_that_must_stay_empty_is_filled_once(scripted):
    model, attempts = scripted(("", 0.0))
    assert [each.fills for each in model.infill("The ___{0} hall", n=3)] == [[""]]
    assert attempts == [0]


@pytest.mark.parametrize("seed", range(6))
def test_a_mark_alone_is_no_word_where_words_are_counted(toy, seed):
    for text in ("The ___{3} lamp ___{1,4}", "___{5} stood open ___{2}"):
        for each in toy.infill(text, n=2, seed=seed, temperature=1.5, steps=3):
            words = [word for fill in each.fills for word in fill.split()]
            assert all(any(letter.isalnum() for letter in word) for word in words), words


def test_shares_of_lengths_sum_to_one_within_bounds(toy):
    shares = toy.lengths("The ___{2,4} hall ___ open ___{1}", rollouts=6, steps=1)
    assert [sum(share.values()) for share in shares] == pytest.approx([1, 1, 1])
    assert set(shares[0]) <= {2, 3, 4}
    assert shares[2] == pytest.approx({1: 1.0})
    assert all(list(share) == sorted(share) for share in shares)


@pytest.mark.parametrize("seed", [0, 3])
def test_drawn_lengths_are_spread_as_the_chances_say(toy, seed):
    """Of a hundred draws each length has its share within three; independent ones would miss by five and more."""
    template = parse("The ___ hall")
    seen = view(template, toy.tokenizer, located=True)
    chances = torch.zeros(len(seen.prompt), CLASSES)
    chances[:, 1:5] = torch.tensor([0.1, 0.2, 0.3, 0.4]) * torch.exp(torch.arange(1, 5) / 10)  # a taste for short
    chances /= chances.sum(-1, keepdim=True)
    key = row_keys(seed, 1)
    drawn = [choose_lengths(seen, template.blanks, chances, key, draw)[0] for draw in range(1, 101)]
    for length, share in zip(range(1, 5), (10, 20, 30, 40), strict=True):
        assert abs(drawn.count(length) - share) <= 3


@pytest.mark.slow
def test_the_embedded_model_can_be_watched(embedded):
    *_, last = embedded.stream("The ferry ___{2,4} the island, my sister’s 🙂 ___.", steps=4)
    place = 0
    for literal in ("The ferry", "the island, my sister’s 🙂"):
        place = last.text.index(literal, place) + len(literal)
    assert last.text.endswith(".")
    assert "░" not in last.text


@pytest.mark.slow
def test_shares_of_lengths_of_the_embedded_model(embedded):
    (shares,) = embedded.lengths("He put the kettle ___ and waited.", rollouts=4, steps=2)
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares) >= 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.infill("no gap"), "there is no blank"),
        (lambda model: model.infill(["a ___", " "]), "the text is empty"),
        (lambda model: model.infill("a ___", n=0), "n is 0; it must be between 1 and 100"),
        (lambda model: model.infill("a ___", steps=0), "steps is 0"),
        (lambda model: model.infill("a ___", steps=1001), "steps is 1001"),
        (lambda model: model.infill("a ___", temperature=-1.0), "temperature is -1.0"),
        (lambda model: model.infill("a ___", top_p=0.0), "top_p is 0.0"),
        (lambda model: model.infill("a ___", terminal="left"), "terminal is 'left'; there are grid, random"),
        (lambda model: model.infill(["a ___"], fills=["b"]), "give one text"),
        (lambda model: model.infill("a ___ b ___", fills=["b"]), "1 fill for 2 blanks"),
        (lambda model: model.request("a ___ b ___", fills=["b"]), "1 fill for 2 blanks"),  # before any work
        (lambda model: model.infill("a ___ b ___", fills="bc"), "fills is 'bc'; wanted a list"),
        (lambda model: model.infill(" ", free=True), "give the words"),
        (lambda model: model.stream("no gap"), "there is no blank"),  # at once, not when the first frame is asked for
        (lambda model: model.stream("long " * 400 + "___"), "can be watched: shorten it"),
        (lambda model: model.lengths("a ___", rollouts=0), "rollouts is 0"),
        (lambda model: ddot.load(precision="int4"), "precision is 'int4'; there are auto, int8, float32"),
    ],
)
def test_mistakes_are_told_in_a_sentence(toy, call, says):
    with pytest.raises(ValueError, match=says):
        call(toy)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_the_number_of_threads_changes_nothing(precision):
    """A sum over two halves is another number; one seed gives one answer all the same, and the number is left alone."""
    model, before = ddot.load(precision=precision), torch.get_num_threads()
    answers = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model.threads = threads
            answers.append(model.infill(TEXTS[1:3], steps=4, temperature=0.8, seed=7))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1]


def test_given_words_stay_words(toy):
    for words in ("_x_ cat- (dog", "lamp door", '\'tis "quoted" a/b'):
        text = toy.infill(words, free=True, steps=3, temperature=1.0)[0].text
        rest = iter(text.split())
        for word in words.split():
            # Only a mark may touch a given word.
            assert any(found == word or (found.startswith(word) and not found[len(word)].isalnum()) for found in rest)
