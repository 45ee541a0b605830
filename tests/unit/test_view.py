"""Spaces around fills against a table made by hand; which tokens may stand where; bounds under any scores."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import ddot
from ddot.core.annealing import Tempered, greedy
from ddot.core.codes import BOTH, GLUED, NOT_PROMPT, UNKNOWN
from ddot.core.projections import without, without_echo
from ddot.core.records import Prediction, State
from ddot.core.rng import row_keys
from ddot.core.sampling import Leap, MostCertainFirst, reverse, time_grid
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.infill.alphabet import FIRST_AFTER_WORD, FIRST_APART, FIRST_GLUED, LATER, Alphabet
from ddot.infill.spacing import set_fill, set_fills
from ddot.infill.template import Blank, free, parse
from ddot.infill.view import Span, lay_out, view
from ddot.infill.word_rules import Pieces, WithinWords

SENTENCES = [
    "The ferry left at 7.40, half empty, and nobody waved.",
    "Her brother's boat (the blue one) wasn't sold , they said !",
    "A well-kept garden: roses, beans, two old chairs; “quiet” is the word.",
    "Où est l'école? Das Mädchen weiß es nicht.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(SENTENCES * 4, 420)


@pytest.fixture(scope="module")
def alphabet(tokenizer):
    return Alphabet(tokenizer)


@pytest.mark.parametrize(
    ("before", "raw", "after", "text"),
    [
        ("The ", " cat", " sat", "The cat sat"),
        ("", " cat", " sat", "cat sat"),
        ("", "cat", "", "cat"),
        ("The\n", " cat", "\tsat", "The\ncat\tsat"),
        ("The ", "", " sat", "The  sat"),  # an empty fill changes nothing
        ("The ", "  ", " sat", "The  sat"),
        ("The ", " old   cat ", " sat", "The old cat sat"),
        ("The", " cat", "sat", "The cat sat"),  # between words: spaces on both sides
        ("The", "", "sat", "Thesat"),
        ("(", " see below", ")", "(see below)"),
        ("[", " 3", "]", "[3]"),
        ('He said "', " no", '" again', 'He said "no" again'),
        ("He said “", " no", "” again", "He said “no” again"),
        ("'", " no", "'", "'no'"),
        ('x="', " red", '"', 'x="red"'),
        ('"Yes"', " he said", ".", '"Yes" he said.'),  # after a closing quote: a space
        ("well-", " known", " face", "well-known face"),
        ("twenty", " odd", "-year-old", "twenty odd-year-old"),
        ("and/", " or", " not", "and/or not"),
        ("paid $", " 5", " for", "paid $5 for"),
        ("at 5", " per cent", "% of", "at 5 per cent% of"),
        ("The ", " end", ".", "The end."),
        ("Well", ",", " yes", "Well, yes"),  # a mark the model glued on
        ("Well", " yes", ", no", "Well yes, no"),
        ("Well", " ,", " yes", "Well , yes"),  # one that it set apart, as tokenised text does
        ("The ", " teacher", "'s desk", "The teacher's desk"),
        ("The", "'s", " desk", "The's desk"),
        ("The ", " teacher", "’s desk", "The teacher’s desk"),
        ("So ", " said", '"Stop" he', 'So said "Stop" he'),  # before an opening quote: a space
        ("So ", " said (", "they", "So said (they"),
        ("So ", ' said "', "they", 'So said "they'),
        ("a=", " 5", ";", "a=5;"),
        ("<b>", " bold", "</b>", "<b>bold</b>"),
        ("**", " bold", "** text", "**bold** text"),
        ("Wait…", " what", "…", "Wait… what…"),
        ("我", " 喜欢", "你。", "我喜欢你。"),
        ("قال", " نعم", "، ثم", "قال نعم، ثم"),
        ("¿", " Dónde", "?", "¿Dónde?"),
    ],
)
def test_spaces_are_set_as_a_careful_typist_would(before, raw, after, text):
    assert before + set_fill(raw, before, after) + after == text


@pytest.mark.parametrize(
    ("source", "raw", "text"),
    [
        ("a ___{1}___{2} b", [" x", " y z"], "a x y z b"),
        ("a ___{1}___{0}b", [" x", ""], "a x b"),  # the empty blank between is no border
        ("a ___{1}___{0}___{0}.", [" x", "", " "], "a x."),
        ("a___{0}___{1}b", ["", " x"], "a x b"),
        ('"___{1}"___{1}', [" x", " y"], '"x" y'),  # the second quote closes
        ("___{1}-___{1}", [" x", " y"], "x-y"),
        ("___{1}___{1}", [" well", "-known"], "well-known"),
    ],
)
def test_neighbouring_fills_are_set_together(source, raw, text):
    template = parse(source)
    fills = set_fills(template, raw)
    assert template.text(fills) == text
    for known in range(len(raw)):  # what was set before more was known never joins words that belong apart
        assert [fill.split() for fill in set_fills(template, raw[:known])] == [f.split() for f in fills[:known]]


@pytest.fixture(scope="module")
def embedded():
    return Tokenizer.load(Path(ddot.__file__).parent / "model")


@pytest.mark.parametrize("which", ["tokenizer", "embedded"])
def test_allowed_tokens_are_printable_text_without_inner_space(which, request):
    tokenizer = request.getfixturevalue(which)
    alphabet = Alphabet(tokenizer)
    assert alphabet.allowed.shape == (16, tokenizer.vocabulary.rows)
    anywhere = alphabet.allowed.any(0).numpy()
    assert anywhere.sum() > 100
    assert not anywhere[tokenizer.vocabulary.base :].any()
    assert not anywhere[tokenizer.edge]
    assert set(np.flatnonzero(anywhere)) | set(alphabet.non_text) == set(range(tokenizer.vocabulary.base))
    a = tokenizer.encode("a").tolist()
    for token in np.flatnonzero(anywhere).tolist():
        text = tokenizer.decode([*a, token])[1:]  # another way than the alphabet's own
        assert text == alphabet.pieces[token]
        assert text.isprintable()
        assert "\ufffd" not in text
        assert len(text.split()) == (text != " ")
        assert " " not in text[1:]
        assert alphabet.begins[token] == (text[0] == " " and text != " ")


@pytest.mark.parametrize("which", ["tokenizer", "embedded"])
def test_rules_let_stand_what_fits_there(which, request):
    alphabet = Alphabet(request.getfixturevalue(which))
    allowed = alphabet.allowed.numpy()
    for rule, counted in itertools.product((FIRST_APART, FIRST_AFTER_WORD, FIRST_GLUED, LATER), (False, True)):
        pieces = [alphabet.pieces[token] for token in np.flatnonzero(allowed[rule + 4 * counted])]
        assert (" " in pieces) == (not counted and rule != FIRST_GLUED)
        words = [piece for piece in pieces if piece != " "]
        assert all(len(piece.split()) == 1 for piece in words)
        if rule == FIRST_APART:
            assert all(piece[0] == " " for piece in words)
        if rule == FIRST_GLUED:
            assert all(piece[0].isalnum() for piece in words)
        if rule == FIRST_AFTER_WORD:
            assert all(not piece[0].isalnum() for piece in words)
    for mark in alphabet.detached_marks:
        assert alphabet.pieces[mark].startswith(" ")


def test_ordinary_text_has_no_clitic_after_a_space(embedded):
    alphabet = Alphabet(embedded)
    apart = {" '", " ’", " 's", " n't", " 'll"} & set(alphabet.pieces)
    assert apart
    assert all(alphabet.detached[alphabet.pieces.index(piece)] for piece in apart)


def test_spelling_is_decoding(embedded):
    alphabet = Alphabet(embedded)
    tokens = np.flatnonzero(alphabet.allowed[LATER].numpy())
    some = np.random.default_rng(0).choice(tokens, 500)
    assert alphabet.spell(some) == embedded.decode(some)


def test_a_vocabulary_without_words_is_refused():
    with pytest.raises(ValueError, match="no tokens that begin a word"):
        Alphabet(learn_bpe(["xy" * 9], 260))


@pytest.mark.parametrize(
    "source", ["The ___ sea.", "___", "a ___ ___{2} 漢字 🙂___é", "-___-", "  a\n\n b ___ 'c' ___"]
)
def test_the_network_sees_the_text_with_single_spaces(tokenizer, source):
    template = parse(source)
    seen = view(template, tokenizer, located=True)
    tokens = seen.prompt.example.tokens
    v = tokenizer.vocabulary
    assert tokens[0] == tokens[-1] == tokenizer.edge
    assert len(tokens) == len(seen.pieces) == len(seen.prompt)
    assert "".join(seen.pieces) == tokenizer.decode(tokens[1:-1])
    # Cut where the blanks are, the tokens spell the literals.
    cuts = [1, *(after + 1 for after in seen.after), len(tokens) - 1]
    found = ["".join(seen.pieces[start:stop]).split() for start, stop in itertools.pairwise(cuts)]
    assert found == [literal.split() for literal in template.literals]
    assert seen.prompt.is_open.nonzero()[0].tolist() == sorted({after + 1 for after in seen.after})
    assert set(seen.prompt.example.hint.tolist()) <= set(range(GLUED, BOTH + 1))
    untold = view(template, tokenizer, located=False, begins=False, ends=False)
    assert (untold.prompt.example.hint == UNKNOWN).all()
    assert untold.prompt.example.tokens[0] == untold.prompt.example.tokens[-1] == v.sep
    assert untold.prompt.free
    assert not seen.prompt.free


@pytest.mark.parametrize(
    ("source", "alone"),
    [
        ("Dear Sam,\n\n___\n\nBest", [True]),
        ("Dear Sam,\n___ \n  \nBest", [True]),
        ("Hello. ___\n\nBest", [False]),  # the last sentence of a paragraph
        ("___\n\nHow to bake", [False]),  # a title, perhaps
        ("- eggs\n- ___\n- salt", [False]),
        ("One.\n\n___\n\n___", [True, False]),
        ("Dear Sam,\n\n___\nBest", [False]),
    ],
)
def test_a_blank_between_empty_lines_is_a_paragraph(tokenizer, source, alone):
    assert list(view(parse(source), tokenizer, True).own_paragraph) == alone


@pytest.mark.parametrize(
    ("source", "between"),
    [
        ("He left. ___ Then it rained.", [True]),
        ("“He left.” ___ “Then it rained.”", [True]),
        ("He left. ___ then it rained.", [False]),
        ("He left ___ Then it rained.", [False]),
        ("He left. ___", [False]),
        ("___ Then it rained.", [False]),
        ("He left. ___ ___ Then it rained.", [False, False]),
        ("He left. ___ 3 days later.", [False]),
    ],
)
def test_a_blank_is_between_sentences_where_one_ends_and_another_begins(tokenizer, source, between):
    assert list(view(parse(source), tokenizer, True).between_sentences) == between


def test_free_words_leave_every_gap_between_words_open(tokenizer):
    seen = view(free("boats wasn't  nicht"), tokenizer, located=False)
    is_open = seen.prompt.is_open
    words = "".join("|" * bool(opened) + piece for piece, opened in zip(seen.pieces, is_open[1:], strict=False))
    assert is_open.sum() == 4
    assert not is_open[0]
    assert not is_open[-1]
    assert words.replace(" ", "").count("|") == 4


def test_lay_out_gives_each_blank_its_slots(tokenizer):
    template = parse("The ___ ferry ___{2}___ left")
    seen = view(template, tokenizer, located=True)
    lengths = [3, 2, 4]
    prompt, spans = lay_out(seen, template.blanks, lengths)
    row = []  # the slots written out: prompt tokens by number, blanks by letter
    for number in range(len(prompt)):
        row.append(str(number))
        for letter, after, length in zip("abc", seen.after, lengths, strict=True):
            row += [letter] * length if after == number else []
    for letter, span in zip("abc", spans, strict=True):
        assert [i for i, each in enumerate(row) if each == letter] == list(range(span.start, span.stop))
    assert prompt.example.gap_length.sum() == sum(lengths)
    assert [span.first for span in spans] == [FIRST_APART] * 3


class AnyScores:
    """Scores that have nothing to do with the text: random ones, or always the same few tokens."""

    def __init__(self, tokenizer, seed, spread, favourites=()):
        self.rng = torch.Generator().manual_seed(seed)
        self.vocabulary, self.spread, self.favourites = tokenizer.vocabulary, spread, list(favourites)

    def __call__(self, state):
        at = state.x == self.vocabulary.mask
        score = torch.randn(int(at.sum()), self.vocabulary.rows, generator=self.rng) * self.spread
        score[:, self.favourites] += 1000.0
        score[:, self.vocabulary.size :] = -torch.inf
        return Prediction(at, score, torch.zeros_like(state.z))


def sample(alphabet, tokenizer, spans, L, reveal, model, steps):
    v = tokenizer.vocabulary
    x = torch.full((len(spans), L), 5)
    hint = torch.full((len(spans), L), GLUED)
    for row, some in enumerate(spans):
        for span in some:
            x[row, span.start : span.stop], hint[row, span.start : span.stop] = v.mask, NOT_PROMPT
    z = torch.linspace(-1, 1, L).expand(len(spans), L)
    start = State(x, z, hint, torch.full_like(x, -1), torch.ones(len(spans)))
    restrictions = (
        without(v.pad, v.sep),
        without_echo(v),
        Pieces(alphabet, spans, L),
        without(*alphabet.detached_marks),
    )
    within = WithinWords(reveal, alphabet, spans)
    keys = row_keys(steps, len(spans))
    return list(reverse(model, start, time_grid(steps), v, keys, within, restrictions=restrictions))


REVEALS = {
    "surest": MostCertainFirst(greedy),
    "surest, drawn": MostCertainFirst(Tempered(1.0)),
    "surest, all but greedy": MostCertainFirst(Tempered(0.01, top_p=0.5)),
    "surest, neighbours at once": MostCertainFirst(Tempered(5.0), apart=False),
    "leaps": Leap(greedy),
    "leaps, drawn": Leap(Tempered(2.0), exact=False),
}


@pytest.mark.parametrize("name", REVEALS)
@pytest.mark.parametrize("sort", ["random", "begins", "goes on", "one word"])
def test_bounds_hold_for_every_length_and_any_scores(alphabet, tokenizer, name, sort):
    begins, goes_on = (np.flatnonzero(some).tolist() for some in (alphabet.begins, alphabet.continues))
    favourites = {"random": [], "begins": begins, "goes on": goes_on, "one word": begins[:1]}[sort]
    first = itertools.cycle((FIRST_APART, FIRST_AFTER_WORD, FIRST_GLUED))
    # Every pair of bounds and every number of tokens that the planner may give to it, two blanks a row.
    cases = [
        (Blank(least, most), length)
        for most in (1, 2, 3, 5, None)
        for least in range(1 + (5 if most is None else most))
        for length in range(max(least, 1), 1 + (8 if most is None else most))
    ]
    spans = [
        [Span(1, 1 + n, next(first), a), Span(10, 10 + m, next(first), b)]
        for (a, n), (b, m) in zip(cases, cases[::-1], strict=True)
    ]
    model = AnyScores(tokenizer, len(name), 5.0, favourites)
    states = sample(alphabet, tokenizer, spans, 20, REVEALS[name], model, 3)
    last = states[-1]
    for row, some in enumerate(spans):
        for span in some:
            tokens = last.x[row, span.start : span.stop].numpy()
            assert (tokens < tokenizer.vocabulary.base).all()  # nothing is left masked
            words = alphabet.spell(tokens).split()
            assert span.blank.least <= len(words) <= (span.blank.most or len(tokens))
            assert not set(tokens.tolist()) & {*alphabet.non_text, *alphabet.detached_marks}
            rules = [span.first + 4] + [LATER + 4 * span.blank.counted] * (len(tokens) - 1)
            if span.blank.counted:
                assert all(alphabet.allowed[rule, token] for rule, token in zip(rules, tokens, strict=True))
    for earlier, later in itertools.pairwise(states):  # what is revealed stays
        known = earlier.x != tokenizer.vocabulary.mask
        assert torch.equal(earlier.x[known], later.x[known])


def test_words_are_only_changed_where_bounds_want_it(alphabet, tokenizer):
    spans = [[Span(0, 6, FIRST_APART, Blank(0, 6))], [Span(0, 6, FIRST_APART, Blank())]]
    for seed in range(5):
        bounded, plain = (
            sample(alphabet, tokenizer, [some], 6, MostCertainFirst(), AnyScores(tokenizer, seed, 1.0), 6)[-1]
            for some in spans
        )
        if " " not in {alphabet.pieces[token] for token in plain.x[0].tolist()}:
            assert torch.equal(bounded.x, plain.x)


def test_the_only_token_left_is_taken_even_beside_itself(tokenizer):
    alphabet = Alphabet(tokenizer)
    word = int(np.flatnonzero(alphabet.begins & ~alphabet.detached)[0])
    alphabet.allowed = torch.zeros_like(alphabet.allowed)
    alphabet.allowed[:, word] = True
    spans = [[Span(0, 4, FIRST_APART, Blank(4, 4))]]
    last = sample(alphabet, tokenizer, spans, 4, MostCertainFirst(), AnyScores(tokenizer, 0, 1.0), 4)[-1]
    assert last.x[0].tolist() == [word] * 4
