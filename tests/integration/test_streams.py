"""Where texts come from and where answers go: files, packed files, pipes, devices, stdin and stdout."""

import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, ddot, mistake

QUICK = ("--steps", 1)
TEXTS = ["The boat ___{1} at dawn.", "It ___{2}.", "My ___ sings."]


def lines_of(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(text: str) -> list[dict]:
    return [{**json.loads(line), "seconds": 0} for line in text.splitlines()]


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text(lines_of({"id": i, "text": text} for i, text in enumerate(TEXTS)))
    return file


def test_other_fields_are_carried_and_locks_are_kept(folder, tmp_path):
    asked = [
        {"custom_id": "a", "text": "I like ___ and ___.", "fills": ["tea", None], "label": {"nested": [1.5, None]}},
        {"id": 7, "custom_id": "b", "text": "no blank", "label": "ß"},
        {"text": "My ___{1} sings.", "fills": None, "seed": 3},
        {"id": 9, "text": "I like ___.", "fills": ["tea", "milk"]},
        {"id": 10, "text": "I like ___.", "fills": "tea"},
        {"id": 11, "text": "I like ___.", "fills": [3]},
    ]
    done = ddot("infill", "--input", "-", "--model", folder, *QUICK, stdin=lines_of(asked))
    assert done.returncode == 1
    rows = read(done.stdout)
    assert [row["id"] for row in rows] == ["a", 7, 3, 9, 10, 11]
    assert rows[0]["fills"][0] == "tea"
    assert rows[0]["text"].startswith("I like tea and")
    assert [row.get("label") for row in rows] == [{"nested": [1.5, None]}, "ß", None, None, None, None]
    assert [row.get("custom_id") for row in rows[:2]] == ["a", "b"]
    assert [bool(row.get("error")) for row in rows] == [False, True, False, True, True, True]


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_packed_files_are_read_written_and_resumed(packing, folder, source, tmp_path):
    unpack = {".gz": gzip, ".xz": lzma}[packing]
    packed, plain, output = tmp_path / f"in.jsonl{packing}", tmp_path / "out.jsonl", tmp_path / f"out.jsonl{packing}"
    with unpack.open(packed, "wb") as file:
        file.write(source.read_bytes())
    assert ddot("infill", "--input", source, "--output", plain, "--model", folder, *QUICK).returncode == 0
    command = ["infill", "--input", packed, "--output", output, "--model", folder, *QUICK]
    for _ in range(2):
        assert ddot(*command).returncode == 0
        assert read(unpack.open(output, "rt").read()) == read(plain.read_text())
    # What a kill leaves: the beginning of an answer.
    output.unlink()
    Path(f"{output}.part").write_bytes(plain.read_bytes()[:-30])
    assert ddot(*command).returncode == 0
    assert read(unpack.open(output, "rt").read()) == read(plain.read_text())
    assert not Path(f"{output}.part").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [source.name, packed.name, plain.name, output.name]
    )


def test_a_packed_file_of_somebody_else_is_left_alone(folder, source, capsys, monkeypatch, tmp_path):
    output = tmp_path / "out.jsonl.gz"
    for content in (gzip.compress(b'{"mine": 1}\n'), b"no gzip"):
        output.write_bytes(content)
        told = mistake(capsys, monkeypatch, "infill", "--input", source, "--output", output, "--model", folder)
        assert "choose another --output" in told
        assert output.read_bytes() == content
        assert sorted(file.name for file in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl.gz"]


def test_a_pipe_with_a_reader_is_written_to_and_one_without_is_refused(folder, source, capsys, monkeypatch, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ("infill", "--input", source, "--output", pipe, "--model", folder, *QUICK)
    assert "nobody reads" in mistake(capsys, monkeypatch, *command)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        while mistake_or_done := ddot(*command).returncode:  # until `cat` has opened the pipe
            assert mistake_or_done == 2
        told, _ = reader.communicate(timeout=60)
    assert [row["id"] for row in read(told)] == [0, 1, 2]


def test_devices_stream_or_are_refused(folder, source, capsys, monkeypatch, tmp_path):
    command = ("infill", "--model", folder, *QUICK, "--input", source, "--output")
    done = ddot(*command, "/dev/stdout")
    assert [row["id"] for row in read(done.stdout)] == [0, 1, 2]
    assert ddot(*command, "/dev/null").returncode == 0
    full = ddot(*command, "/dev/full")
    assert (full.returncode, full.stdout) == (2, "")
    assert "No space left" in full.stderr.splitlines()[-1]
    for endless in ("/dev/zero", "/dev/full", "/dev/urandom"):
        assert "is a device" in mistake(capsys, monkeypatch, "infill", "--input", endless, "--output", "-")
    assert ddot("infill", "--input", "/dev/null", "--output", "-", "--model", folder).returncode == 0


def test_a_file_from_a_stream_is_resumed(folder, source, tmp_path):
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    command = ("infill", "--input", "-", "--model", folder, *QUICK, "--output")
    assert ddot(*command, whole, stdin=source.read_text()).returncode == 0
    output.write_bytes(whole.read_bytes()[:-20])
    assert ddot(*command, output, stdin=source.read_text()).returncode == 0
    assert read(output.read_text()) == read(whole.read_text())


def test_bad_lines_of_stdin_are_told_by_number_and_the_others_filled(folder):
    given = b"\xef\xbb\xbfThe boat ___{1}.\r\n\nno blank\n\xe9t\xe9 ___\nIt ___{2}"
    done = ddot("infill", "--model", folder, *QUICK, stdin=given)
    assert done.returncode == 1
    first, second = done.stdout.split("\n")[:-1]
    assert first.startswith("The boat ")
    assert first.endswith(".\r")
    assert second.startswith("It ")
    told = done.stderr.splitlines()
    assert [line.split(":")[1] for line in told] == [" line 3", " line 4"]
    assert "not UTF-8" in told[1]
    rows = read(ddot("infill", "--json", "--model", folder, *QUICK, stdin=given).stdout)
    assert [(row["id"], "error" in row) for row in rows] == [(1, False), (3, True), (4, True), (5, False)]


def test_a_text_file_among_json_lines_is_told_once_and_one_bad_line_is_not_a_text_file(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("The boat ___.\n\nIt ___ today.\n" * 20)
    done = ddot("infill", "--model", folder, "--input", "texts.txt", "--output", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "The boat ___." in done.stderr
    assert "cat texts.txt | ddot infill" in done.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "good.jsonl").write_text('The boat ___.\n{"text": "It ___{1} today."}\n')
    done = ddot("infill", "--quiet", "--model", folder, "--input", "good.jsonl", "--output", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert [sorted(json.loads(line))[0] for line in (tmp_path / "out").read_text().splitlines()] == ["error", "fills"]


def test_alternatives_say_which_text_they_belong_to(folder):
    given = ("infill", *TEXTS, "--model", folder, *QUICK, "--n", 2, "--temperature", 1)
    plain = ddot(*given).stdout.splitlines()
    rows = read(ddot(*given, "--json").stdout)
    assert plain == [f"{row['id']}\t{row['text']}" for row in rows]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert {row["id"] for row in rows} == {1, 2, 3}
    assert ddot("infill", TEXTS[0], "--model", folder, *QUICK, "--n", 2).stdout.startswith("The boat")


def test_options_reach_the_model(folder, source):
    given = ("infill", TEXTS[0], "--model", folder, *QUICK, "--device", "cpu", "--precision", "float32")
    done = ddot(*given, "--threads", 1, "--quiet", "--lock", "sails ")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The boat sails  at dawn.\n", "")
    file = ("infill", "--input", source, "--output", "-", "--quiet", "--model", folder, *QUICK)
    assert ddot(*file).stderr == ""


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [("<&-", 2, "nothing to fill"), ("'a ___' >&-", 2, "stdout is closed"), ("'a ___{1}' >/dev/full", 2, "no space")],
)
def test_closed_and_full_streams_are_one_sentence(redirection, status, said, folder):
    command = f"{sys.executable} -m ddot infill --model {folder} --steps 1 {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    command = f"{sys.executable} -m ddot infill --model {folder} --steps 1 | head -1"
    texts = "".join(f"Line {i} ___{{1}}\n" for i in range(3000))
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, input=texts, capture_output=True, text=True)
    assert done.stdout.startswith("Line 0 ")
    assert done.stderr == ""
