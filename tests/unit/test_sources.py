"""Readers give back what was written, bad files get one sentence, sentences and benchmark forms by hand."""

import ast
import gzip
import json
import lzma
import textwrap

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddot.data.forms import functions, in_news_form, in_review_form, sentences
from ddot.data.sources import read

DOCUMENTS = [
    "The kettle sang. Nobody heard it.",
    'He wrote "no" twice, then "yes".',
    "Été à Orléans: 21 °C, 詩 and 🦉.",
    "A tab\tinside,  two spaces, and a back\\slash.",
]
PACKED = {"": lambda data: data, ".xz": lzma.compress, ".gz": gzip.compress}


def as_lines(documents):
    return "".join(text + "\n" for text in documents).encode()


def as_jsonl(documents, field="text"):
    return "".join(json.dumps({"id": i, field: text}) + "\n" for i, text in enumerate(documents)).encode()


def write_parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize(("kind", "write"), [(".txt", as_lines), (".jsonl", as_jsonl)])
def test_every_kind_of_file_gives_the_same_documents(tmp_path, kind, write, suffix):
    path = tmp_path / f"some{kind}{suffix}"
    path.write_bytes(PACKED[suffix](write(DOCUMENTS)))
    assert list(read(str(path))) == DOCUMENTS


def test_parquet_gives_the_same_documents(tmp_path):
    write_parquet(tmp_path / "some.parquet", number=list(range(6)), text=[*DOCUMENTS, None, "  "])
    assert list(read(str(tmp_path / "some.parquet"))) == DOCUMENTS
    large = pyarrow.array(DOCUMENTS, pyarrow.large_string())
    write_parquet(tmp_path / "large.parquet", body=large)
    assert list(read(str(tmp_path / "large.parquet"), "body")) == DOCUMENTS


def test_line_ends_marks_and_empty_lines(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes("\ufeffFirst.\r\n\r\n  \r\nSecond.\r\nno end of line".encode())
    assert list(read(str(path))) == ["First.", "Second.", "no end of line"]


def test_fields_are_named(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_bytes(as_jsonl(DOCUMENTS, "content") + b'\n{"content": null}\n{"content": ""}\n')
    assert list(read(str(path), "content")) == DOCUMENTS


def some_file(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


BAD = {
    "empty": ("empty.txt", b"", "holds no text"),
    "blank": ("blank.txt", b" \n\t\n", "holds no text"),
    "nul": ("binary.txt", b"fine\n\x7fELF\0\0\n", "line 2: a NUL byte"),
    "latin": ("latin.txt", b"fine\n" * 5000 + "château\n".encode("latin-1"), "line 5001: not UTF-8"),
    "cut xz": ("cut.txt.xz", lzma.compress(as_lines(DOCUMENTS * 50))[:-20], "cannot be decompressed"),
    "no xz": ("no.txt.xz", as_lines(DOCUMENTS), "cannot be decompressed"),
    "cut gz": ("cut.txt.gz", gzip.compress(as_lines(DOCUMENTS))[:-12], "cannot be decompressed"),
    "no gz": ("no.jsonl.gz", as_jsonl(DOCUMENTS), "cannot be decompressed"),
    "broken gz": ("bad.txt.gz", gzip.compress(b"a" * 100)[:10] + b"\xff" * 60, "cannot be decompressed"),
    "no json": ("bad.jsonl", as_jsonl(["fine"]) + b"{no json}\n", 'line 2: expected a JSON object with "text"'),
    "no field": ("bad.jsonl", b'{"text": "fine"}\n\n{"texts": "no"}\n', 'line 3: expected a JSON object with "text"'),
    "no object": ("bad.jsonl", b'["text"]\n', 'line 1: expected a JSON object with "text"'),
    "deep": ("bad.jsonl", b"[" * 100_000 + b"\n", 'line 1: expected a JSON object with "text"'),
    "no text": ("bad.jsonl", b'{"text": 12}\n', 'line 1: "text" is 12'),
    "no parquet": ("some.parquet", as_lines(DOCUMENTS), "not a parquet file"),
    "other kind": ("some.pdf", b"%PDF", r"\.parquet"),
    "packed parquet": ("some.parquet.gz", b"", "unknown type"),
    "no kind": ("README", b"text\n", "unknown type"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_sentence(tmp_path, case):
    name, data, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        list(read(some_file(tmp_path, name, data)))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_bad_parquet_gets_one_sentence(tmp_path):
    path = tmp_path / "some.parquet"
    write_parquet(path, text=DOCUMENTS * 300, number=list(range(1200)))
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="no column 'body'; there are text, number"):
        list(read(str(path), "body"))
    with pytest.raises(ValueError, match="'number' holds 0"):
        list(read(str(path), "number"))
    for damaged in (whole[: len(whole) // 2], whole[:4] + b"\xff" * 200 + whole[204:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read"):
            list(read(str(path)))


def test_missing_files_are_told_before_anything_is_read(tmp_path):
    for missing in (tmp_path / "no.txt", tmp_path):
        with pytest.raises(FileNotFoundError, match="no text at"):
            read(str(missing))


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Wu met J. R. Tolland at 3 p.m. on Friday. | They left at once.",
        'She said, "I am late." | Then she ran. | "Why?" he asked. | (Nobody knew.) | It cost $3.50.',
        "The U.S. Navy came. | Mrs. Okafor and Sgt. Pell did not.",
        "It is No. 1 in the list. | In 1999. | 17 people saw it, e.g. Ann, i.e. my aunt.",
        "Wait... | What?! | Yes! | “Come in.” | He sat down.",
        "Version 2.0 is out. | Élodie likes it, etc. and so on.",
        "Is 3.14 enough? | 'No.' | [Laughter.] | The Smith Co. said so on Jan. 5.",
        "one sentence without an end",
    ],
)
def test_sentences_by_hand(text):
    wanted = text.split(" | ")
    assert sentences(" ".join(wanted)) == wanted
    assert sentences("\n".join(wanted) + "\n") == wanted


def test_a_forgotten_space_between_sentences():
    assert sentences("It ended.Then it began.") == ["It ended.", "Then it began."]
    assert sentences("  \n ") == []


@given(st.text(alphabet="aB c.!?\"'(1)\n“”…", max_size=60))
def test_splitting_loses_no_letter(text):
    pieces = sentences(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece.strip() == piece and piece for piece in pieces)


@pytest.mark.parametrize(
    ("plain", "news"),
    [
        ("I won't go, and you can't make me.", "I won 't go , and you can 't make me ."),
        ("Obama's plan costs $1,000 in the U.S.", "Obama 's plan costs $ 1,000 in the U.S."),
        ("The U.S. Navy sold 1,234,567.89 tons.", "The U.S. Navy sold 1,234,567.89 tons ."),
        ('"Yes," he said, "it\'s late."', '" Yes , " he said , " it \'s late . "'),
        ("“Don’t,” she said—“not now.”", '" Don \'t , " she said -- " not now . "'),
        ("The dogs' owner, a 'nice' man, left (fast)...", "The dogs ' owner , a ' nice ' man , left ( fast ) ..."),
        ("Prices rose 3.5% at 10:30; why?!", "Prices rose 3.5 % at 10 : 30 ; why ? !"),
        ("Ms. O'Hara said: 'Go home.'", "Ms. O 'Hara said : ' Go home . '"),
        ("It cost 3.50.", "It cost 3.50 ."),
        ("We're open 24/7 until 9 p.m.", "We 're open 24 / 7 until 9 p.m."),
        ("a well-known R&B singer", "a well-known R & B singer"),
    ],
)
def test_news_form_by_hand(plain, news):
    assert in_news_form(plain) == news


@pytest.mark.parametrize(
    ("plain", "review"),
    [
        ("I won't go back!", "i won 't go back !"),
        ("We do n't tip, but Anna's pie is GREAT.", "we don 't tip , but anna 's pie is great ."),
        ("Open 24/7, the girls' favourite (5:30 too).", "open 24/7 , the girls' favourite ( 5 : 30 too ) ."),
        ('"Best" soup for $1,000...', '" best " soup for $ 1,000 ...'),
    ],
)
def test_review_form_by_hand(plain, review):
    assert in_review_form(plain) == review


@given(st.lists(st.sampled_from(["I", "won't", "Ann's", "1,000", "U.S.", '"so"', "(no)", "3:30", "end.", "why?"])))
def test_forms_are_stable_and_lose_no_letter(words):
    plain = " ".join(words)
    for form in (in_news_form, in_review_form):
        once = form(plain)
        assert form(once) == once
        assert "".join(once.split()).lower() == "".join(plain.split()).lower()


PROGRAM = '''
import os


@cache
def first(a, *, b=1):
    """Two
    lines."""
    def inner():
        return a
    return inner() + b

class Shelf:
    size = 3

    class Board:
        async def wait(self):
            await self

    @property
    def empty(self): return not self.size
'''


def test_functions_stand_alone():
    found = functions(PROGRAM)
    assert sorted(ast.parse(one).body[0].name for one in found) == ["empty", "first", "wait"]
    assert all(one in PROGRAM or textwrap.indent(one, "    ") in PROGRAM or "async" in one for one in found)
    assert functions(PROGRAM.replace("\n", "\r\n")) == found
    assert found[0].startswith("@cache\ndef first(")
    assert "return inner() + b" in found[0]


@pytest.mark.parametrize("text", ["print 'two'", "def f(:", "x = 1", "\0", "é = '\\d'", ""])
def test_what_has_no_functions_gives_none(text):
    assert functions(text) == []
