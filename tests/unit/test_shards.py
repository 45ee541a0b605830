"""A packed corpus gives back the encoding of its documents; half-written, damaged and foreign ones are refused."""

import json
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Encoder
from tokenizers import models, pre_tokenizers

from ddot.data.shards import LONGEST, Corpus, fingerprint, pack
from ddot.data.tokenizer import Tokenizer, learn_bpe

DOCUMENTS = [
    ["The kettle sang.", "Nobody heard it."],
    ["Rain again."],
    ["Two owls live behind the barn.", "They come out at dusk.", "We count them from the wall."],
]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_bpe(["the kettle sang and nobody heard the owls behind the barn"] * 3, 300)


@pytest.fixture
def packed(tokenizer, tmp_path):
    pack(DOCUMENTS, tokenizer, tmp_path / "packed")
    return tmp_path / "packed"


def direct(documents, tokenizer):
    """The ids of each sentence of each document, encoded one by one, as they stand inside a text."""
    coded = [[tokenizer.encode(" " + s.strip()).tolist() for s in document if s.strip()] for document in documents]
    return [[ids for ids in document if len(ids) <= LONGEST] for document in coded if document]


def unpacked(corpus):
    """The same, read back through `passage` alone."""
    documents, sentence = [], 0
    while sentence < len(corpus):
        tokens, ends = corpus.passage(sentence, 1 << 40)
        documents.append([ids.tolist() for ids in np.split(tokens, ends[:-1])])
        assert ends[-1] == len(tokens)
        sentence += len(ends)
    return documents


texts = st.lists(st.lists(st.text(max_size=20), max_size=5), max_size=12)


@settings(max_examples=60)
@given(documents=texts, shard_bytes=st.integers(1, 300), letters=st.integers(1, 80))
def test_what_is_read_back_is_the_direct_encoding(tokenizer, documents, shard_bytes, letters):
    wanted = direct(documents, tokenizer)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddot.data.shards._GROUP", letters)  # documents encoded together must not matter
        if not wanted:
            with pytest.raises(ValueError, match="no text"):
                pack(documents, tokenizer, Path(folder, "packed"))
            return
        meta = pack(documents, tokenizer, Path(folder, "packed"), shard_bytes)
        corpus = Corpus(Path(folder, "packed"))
        assert unpacked(corpus) == wanted
        flat = [token for document in wanted for ids in document for token in ids]
        assert (meta["documents"], meta["sentences"], meta["tokens"]) == (
            len(wanted),
            sum(map(len, wanted)),
            len(flat),
        )
        assert corpus.counts().tolist() == np.bincount(flat, minlength=tokenizer.vocabulary.base).tolist()
        sizes = [2 * shard["tokens"] + 2 * shard["sentences"] for shard in meta["shards"]]
        alone = [shard["documents"] == 1 for shard in meta["shards"]]
        assert all(size <= shard_bytes or one for size, one in zip(sizes, alone, strict=True))
        # No shard was begun before it was needed.
        first = [shard_documents(wanted, meta["shards"], i)[0] for i in range(len(sizes))]
        for before, document in zip(sizes, first[1:], strict=False):
            assert before + 2 * sum(map(len, document)) + 2 * len(document) > shard_bytes


def shard_documents(documents, shards, number):
    start = sum(shard["documents"] for shard in shards[:number])
    return documents[start : start + shards[number]["documents"]]


@given(sentence=st.integers(0, 5), longest=st.integers(1, 40))
def test_passages_stay_in_their_document_and_know_its_sentence_ends(tokenizer, sentence, longest):
    with tempfile.TemporaryDirectory() as folder:
        pack(DOCUMENTS, tokenizer, Path(folder, "packed"), shard_bytes=60)
        tokens, ends = Corpus(Path(folder, "packed")).passage(sentence, longest)
    places = [(d, s) for d, document in enumerate(DOCUMENTS) for s in range(len(document))]
    document, first = places[sentence]
    rest = direct(DOCUMENTS, tokenizer)[document][first:]
    whole = [token for ids in rest for token in ids]
    assert tokens.tolist() == whole[:longest]
    assert ends.tolist() == [end for end in np.cumsum([len(ids) for ids in rest]).tolist() if end <= longest]


def word_tokenizer(size):
    """One token a word w0, w1, …"""
    encoder = Encoder(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(encoder)


@pytest.mark.parametrize(("size", "dtype"), [((1 << 16) - 3, "uint16"), ((1 << 16) - 2, "uint32")])
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path, size, dtype):
    meta = pack([[f"w1 w{size - 1}"]], word_tokenizer(size), tmp_path / "packed")
    assert meta["dtype"] == dtype
    assert (tmp_path / "packed" / "tokens-00000.bin").stat().st_size == 2 * np.dtype(dtype).itemsize
    assert Corpus(tmp_path / "packed").passage(0, 5)[0].tolist() == [1, size - 1]


def test_an_overlong_first_sentence_does_not_join_two_documents(tmp_path):
    words = word_tokenizer(10)
    longest = " ".join(["w1"] * LONGEST)
    meta = pack([["w2"], [longest + " w1", "w3"], [longest]], words, tmp_path / "packed")
    assert unpacked(Corpus(tmp_path / "packed")) == [[[2]], [[3]], [[1] * LONGEST]]
    assert meta["documents"] == 3


def test_a_corpus_travels_by_its_folder(packed):
    sent = pickle.dumps(Corpus(packed))
    assert len(sent) < 500
    assert pickle.loads(sent).passage(0, 99)[0].tolist() == Corpus(packed).passage(0, 99)[0].tolist()


def test_packing_that_fails_leaves_nothing(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("ddot.data.shards._GROUP", 1)

    def breaking(error):
        yield ["A first document."]
        raise error

    for error in (KeyboardInterrupt(), ValueError("the source broke")):
        with pytest.raises(type(error)):
            pack(breaking(error), tokenizer, tmp_path / "packed")
        assert list(tmp_path.iterdir()) == []


ENDLESS = """
import sys
from pathlib import Path
from ddot.data.shards import pack
from ddot.data.tokenizer import Tokenizer

def documents():
    while True:
        yield ["word " * 1000] * 50
        print("more", flush=True)

pack(documents(), Tokenizer.load(sys.argv[1]), Path(sys.argv[2]))
"""


def test_packing_that_is_killed_makes_no_folder_and_can_be_repeated(packed, tokenizer, tmp_path):
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", ENDLESS, str(packed / "tokenizer.json"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(12):  # past the first group
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match="no packed corpus"):
        Corpus(folder)
    pack(DOCUMENTS, tokenizer, folder)
    assert unpacked(Corpus(folder)) == direct(DOCUMENTS, tokenizer)
    assert not folder.with_name("killed.unfinished").exists()


def test_what_exists_is_not_overwritten(packed, tokenizer):
    before = {file.name: file.read_bytes() for file in packed.iterdir()}
    with pytest.raises(ValueError, match="exists already"):
        pack([["something else"]], tokenizer, packed)
    assert {file.name: file.read_bytes() for file in packed.iterdir()} == before


def test_a_place_that_cannot_be_written_gets_a_sentence(tokenizer, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=r"cannot write to .*: Not a directory"):
        pack(DOCUMENTS, tokenizer, tmp_path / "file" / "packed")


def cut(file):
    file.write_bytes(file.read_bytes()[:-2])


def grow(file):
    file.write_bytes(file.read_bytes() + b"\0\0")


def with_token(file, token):
    tokens = np.fromfile(file, np.uint16)
    tokens[0] = token
    tokens.tofile(file)


def without(name):
    def change(file):
        meta = json.loads(file.read_text())
        del meta[name]
        file.write_text(json.dumps(meta))

    return change


def read_all(folder):
    corpus = Corpus(folder)
    return corpus.rarity(), unpacked(corpus)


@pytest.mark.parametrize(
    ("name", "harm", "sentence"),
    [
        ("tokens-00000.bin", cut, "missing or truncated"),
        ("tokens-00000.bin", grow, "missing or truncated"),
        ("tokens-00000.bin", Path.unlink, "missing or truncated"),
        ("lengths-00000.bin", cut, "missing or truncated"),
        ("lengths-00000.bin", lambda file: with_token(file, 1), "lengths and tokens disagree"),
        ("tokens-00000.bin", lambda file: with_token(file, 5000), "token id 5000"),
        ("counts.npy", cut, "missing or damaged"),
        ("counts.npy", Path.unlink, "missing or damaged"),
        ("counts.npy", lambda file: np.save(file, np.ones(3, np.uint64)), "missing or damaged"),
        ("meta.json", cut, "is damaged"),
        ("meta.json", without("dtype"), "is damaged"),
        ("meta.json", without("shards"), "is damaged"),
        ("meta.json", without("tokenizer"), "is damaged"),
        ("meta.json", lambda file: file.write_text("[]"), "is damaged"),
    ],
)
def test_a_damaged_corpus_gets_a_sentence(packed, name, harm, sentence):
    harm(packed / name)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_all(packed)
    assert str(packed) in str(caught.value)


def test_rarity_prefers_rare_tokens(packed, tokenizer):
    corpus = Corpus(packed)
    weight, counts = corpus.rarity(), corpus.counts()
    assert weight.shape == (tokenizer.vocabulary.size,)
    order = np.argsort(counts, kind="stable")
    assert (np.diff(weight[:-3][order]) <= 0).all()
    assert (weight > 0).all()
    assert (weight <= 1).all()


def test_fingerprints_tell_tokenizers_apart(tokenizer, packed):
    assert fingerprint(Tokenizer.load(packed)) == fingerprint(tokenizer)
    assert fingerprint(word_tokenizer(5)) != fingerprint(word_tokenizer(6))
