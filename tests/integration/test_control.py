"""What a user controls and asks: words to avoid, scores of his own fills, candidates for a word."""

import json
import math
import pickle
import re

import jaxtyping
import pytest
import torch
from commands import ddot

import ddot as package
from ddot.core.codes import UNKNOWN
from ddot.core.records import Prediction, State
from ddot.infill.mistakes import COMMAND_LINE, JSON, PYTHON, Mistake, told
from ddot.infill.request import ROLLOUTS, request
from ddot.infill.settings import Settings, whole_number
from ddot.infill.template import avoided
from ddot.infill.word_rules import Avoiding


@pytest.fixture(scope="module")
def embedded():
    return package.load()


@pytest.fixture(scope="module")
def untrained(folder):
    return package.load(folder)


TEXT = "We were so ___ wedding."


@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXT, "It was ___ in ___{1,3}, so we ___.", 'She said "___" and left___{0,2}.'])
def test_own_fills_are_scored_as_the_models_are(text):
    """In one pass instead of many: in float32, since 8-bit activations are rounded otherwise. Where the model wrote a
    word in other tokens than the tokenizer does, the score is that of another spelling."""
    embedded = package.load(precision="float32")
    (found,) = embedded.answers([embedded.request(text, Settings(n=3))])
    usual = 0
    for answer in found.best:
        mine = answer.infill
        again = embedded.scored(text, mine.fills)
        assert again.text == mine.text
        if answer.tokens == sum(len(embedded.tokenizer.encode(" " + fill.strip())) for fill in mine.fills if fill):
            assert again.scores == pytest.approx(mine.scores, abs=1e-3)
            assert embedded.score(text, mine.fills) == pytest.approx(mine.score, abs=1e-3)
            usual += 1
    assert usual


@pytest.mark.slow
def test_likely_fills_score_higher(embedded):
    likely, odd = (embedded.score("I drank a cup of ___.", [fill]) for fill in ("green tea", "tall envelopes"))
    assert odd < likely < 0


@pytest.mark.slow
def test_what_is_avoided_does_not_come(embedded):
    (usual,) = embedded.infill(TEXT)
    words = usual.fills[0].split()
    answers = embedded.infill(TEXT, n=3, avoid=[words[0].upper(), " ".join(words[1:3])])
    assert len(answers) == 3
    pattern = avoided([words[0], " ".join(words[1:3])])
    assert not any(pattern.search(answer.fills[0]) for answer in answers)


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"terminal": "grid"}, {"terminal": "random"}])
@pytest.mark.parametrize("seed", range(3))
def test_an_untrained_model_avoids_words_too(untrained, settings, seed):
    text = "The boat ___{2,6} and ___{1}."
    for _ in range(2):
        (answer,) = untrained.infill(text, seed=seed, steps=4, **settings)
        avoid = [word.strip(".,") for fill in answer.fills for word in fill.split() if any(map(str.isalnum, word))]
        (other,) = untrained.infill(text, seed=seed, steps=4, avoid=avoid, **settings) or [None]
        if other is not None:
            assert not any(avoided(avoid).search(fill) for fill in other.fills)
            assert [2 <= len(other.fills[0].split()) <= 6, len(other.fills[1].split())] == [True, 1]


def test_sequences_are_forbidden_in_reading_order():
    """After 3 and 4 no 5; 6 nowhere: for slots in any order of positions."""
    x = torch.tensor([[9, 3, 4, 0]])
    z = torch.tensor([[0.9, 0.1, 0.2, 0.3]])  # reads 3 4 0 9
    at = x == 0
    state = State(x, z, torch.full_like(x, UNKNOWN), torch.full_like(x, -1), torch.ones(1))
    found = Avoiding([(3, 4, 5), (6,), (4, 4, 7)])(state, Prediction(at, torch.zeros(1, 10), torch.zeros(1, 4)))
    assert torch.isinf(found.log_score[0]).nonzero()[:, 0].tolist() == [5, 6]


@pytest.mark.slow
def test_candidates_are_words_with_chances(embedded):
    found = embedded.candidates("I like ___{1} tea.", k=10)
    words, chances = zip(*found, strict=True)
    assert len(set(words)) == 10
    assert list(chances) == sorted(chances, reverse=True)
    assert all(chance > 0 for chance in chances)
    assert sum(chances) <= 1
    assert "green" in words
    assert not {"tea", "like"} & set(words)  # no word twice
    assert all(len(word.split()) == 1 for word in words)


def test_chances_of_all_words_of_one_token_sum_to_one(untrained):
    found = untrained.candidates("The ___{1} boat", k=1000)
    assert math.isclose(sum(each.chance for each in found), 1.0, abs_tol=0.2)
    assert sum(each.chance for each in found) <= 1 + 1e-5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: m.score("a ___", []), "0 fills for 1 blank;"),
        (lambda m: m.score("a ___", "tea"), "fills is 'tea'"),
        (lambda m: m.score("a ___", [None]), "every blank"),
        (lambda m: m.score("a ___{2}", ["tea"]), "asks for exactly 2"),
        (lambda m: m.score("a ___", ["tea", 3]), "2 fills"),
        (lambda m: m.score("a ___", ["tea", None]), "2 fills for 1 blank;"),
        (lambda m: m.score("a ___ ___", ["tea", None]), "blank 2 is missing;"),
        (lambda m: m.score("a ___ ___", ["tea", 3]), "a fill is 3"),
        (lambda m: m.infill("a ___ ___", fills=["tea", 3]), "a fill is 3"),
        (lambda m: m.infill("a ___", fills={"tea": 1}), "wanted a list"),
        (lambda m: m.infill({"text": "a ___"}), "wanted a string"),
        (lambda m: m.infill(("a ___",)), "wanted a string"),
        (lambda m: m.lengths(["a ___"]), "text is ['a ___']"),
        (lambda m: m.lengths("a ___", rollouts=1.5), "rollouts is 1.5"),
        (lambda m: m.candidates("a ___"), "___{1}"),
        (lambda m: m.candidates("a ___{1} ___{1}"), "___{1}"),
        (lambda m: m.candidates("a ___{1}", k=0), "k is 0"),
        (lambda m: m.candidates(7), "text is 7"),
        (lambda m: m.stream(None), "text is None"),
        (lambda m: m.infill("a ___", avoid="tea"), "avoid is 'tea'; wanted a list"),
        (lambda m: m.infill("a ___", avoid=["  "]), "avoid"),
        (lambda m: m.infill("a ___", avoid=[3]), "avoid"),
        (lambda m: m.infill("a ___", terminal=["grid"]), "terminal"),
        (lambda m: m.infill("a ___", seed=1.0), "seed is 1.0"),
        (lambda m: m.infill("a ___", n=True), "n is True"),
    ],
)
def test_mistakes_in_python_are_sentences(untrained, call, says):
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # it would be the first to notice a wrong type
    try:
        with pytest.raises(ValueError, match=re.escape(says)):
            call(untrained)
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.parametrize(
    ("wrong", "python", "as_json", "options"),
    [
        (lambda: request("a ___ b ___", fills=["c"]), "None to", "null to", "- to"),
        (lambda: whole_number("n", True), "n is True; ", "n is true; ", "--n is True; "),
        (lambda: request("no blank"), "give free=True", 'give "free"', "give --free"),
        (lambda: Settings(top_p=0.0), "top_p is 0.0", "top_p is 0.0", "--top-p is 0.0"),
        (lambda: Settings(terminal="left"), "terminal is 'left'", 'terminal is "left"', "--terminal is 'left'"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_its_way_in(wrong, python, as_json, options):
    with pytest.raises(Mistake) as caught:
        wrong()
    error = caught.value
    assert python in str(error)
    assert python in str(pickle.loads(pickle.dumps(error)))  # as another process gets it
    for dialect, words in ((PYTHON, python), (JSON, as_json), (COMMAND_LINE, options)):
        assert words in told(error, dialect)


@pytest.mark.parametrize(("name", "says"), [("temprature", "is it temperature?"), ("zzz", "there are n, seed")])
def test_a_misspelt_setting_is_named(name, says, untrained):
    for call in (untrained.infill, untrained.stream):
        with pytest.raises(TypeError, match=f"no setting '{name}'; {re.escape(says)}"):
            call("a ___ b", **{name: 2})


def test_python_and_the_command_line_count_as_many_lengths(folder, untrained):
    text = "The boat ___{1,4}."
    printed = json.loads(ddot("lengths", text, "--model", folder, "--json").stdout)["words"]
    assert [{int(words): share for words, share in printed.items()}] == untrained.lengths(text)
    assert untrained.lengths(text) == untrained.lengths(text, rollouts=ROLLOUTS)


def test_the_commands_print_scores_and_lengths(folder):
    done = ddot("score", "The boat ___ and ___.", "--fills", "leaves", "--fills", "sings", "--model", folder, "--json")
    row = json.loads(done.stdout)
    assert row["fills"] == ["leaves", "sings"]
    assert row["score"] == pytest.approx(sum(row["scores"]) / 2)
    assert [row["text"][start:end] for start, end in row["spans"]] == row["fills"]
    assert float(ddot("score", "The boat ___.", "--fills", "a", "--model", folder).stdout.split()[0]) < 0
    bars = ddot("lengths", "The ___{2,3} boat ___{1}.", "--model", folder, "--rollouts", 4)
    assert bars.stdout.startswith("blank 1\n")
    assert "100%" in bars.stdout
    rows = [
        json.loads(line) for line in ddot("lengths", "The ___{1} a", "--model", folder, "--json").stdout.splitlines()
    ]
    assert rows == [{"blank": 1, "words": {"1": 1.0}}]
