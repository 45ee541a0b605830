"""The command line as a user meets it: answers on stdout, mistakes as one sentence and exit status 2."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, SENTENCES, ddot, mistake


def test_embedded_model_fills_and_shows_json():
    command = [sys.executable, "-m", "ddot", "infill", "We were so ___{2,4} wedding.", "--json", "--n", "2"]
    done = subprocess.run([*command, "--steps", "4"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert row["text"] == f"We were so {row['fills'][0]} wedding."
        assert 2 <= len(row["fills"][0].split()) <= 4
        assert (row["steps"], row["seed"]) == (4, 0)


def test_texts_from_stdin_and_plain_output(folder):
    done = ddot("infill", "--model", folder, "--steps", 2, stdin="a ___{1} b\n\nc ___{2}\n")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("a ")
    assert first.endswith(" b")
    assert len(second.split()) == 3
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a ___{3 b"], "not closed"),
        (["a ___{9,2} b"], "at least 9 and at most 2"),
        (["a ___{999} b"], "up to 64 words"),
        (["   "], "empty"),
        (["no blank here"], "no blank"),
        (["a ___", "--n", 0], "between 1 and 100"),
        (["a ___", "--n", "three"], "--n is 'three'; wanted a whole number"),
        (["- ___ milk"], "ddot infill -- '- ___ milk'"),
        (["-[blank]x"], "ddot infill -- '-[blank]x'"),
        (["a ___", "--no-such=a b", "--lock", "- b c"], "no such option: --no-such; `ddot infill --help`"),
        (["a ___", "--n", "x", "--lock", "- b c"], "wanted a whole number; `ddot infill --help`"),
        (["a ___", "--temperature=hot"], "--temperature is 'hot'; wanted a number"),
        (["a ___", "--steps", 0], "between 1 and 1000"),
        (["a ___", "--temperature", -1], "between 0"),
        (["a ___", "--terminal", "nowhere"], "grid, random"),
        (["a ___ b", "--free"], "leave out ___ or --free"),
        (["a ___", "--trace", "no/such/trace.json"], "no folder"),
        (["a ___", "--model", "no/such/folder"], "no model at"),
        (["a ___", "--input", "x.jsonl"], "leave out the text"),
        (["a ___", "--compile"], "--compile is for a large file on a GPU"),
        (["--input", "missing.jsonl", "--output", "out.jsonl"], "no file at"),
        (["one;two", "three"], "no blank in 'one;two'; put a text of several words in quotes"),
    ],
)
def test_mistakes_are_one_sentence(arguments, says, capsys, monkeypatch, folder, tmp_path):
    monkeypatch.chdir(tmp_path)
    model = [] if "--model" in arguments else ["--model", folder]
    told = mistake(capsys, monkeypatch, "infill", *arguments, *model)
    assert says in told
    assert told.count("\n") <= 2
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []  # nothing written


def test_unreadable_weights(capsys, monkeypatch, folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "damaged" in mistake(capsys, monkeypatch, "infill", "a ___", "--model", broken)


@pytest.mark.parametrize(("name", "command"), [("a.txt", "ddot infill < a.txt"), ("a.jsonl", "--input a.jsonl")])
def test_a_file_named_as_a_text_gets_the_command_that_fills_it(name, command, capsys, monkeypatch, folder, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("a ___ b\n")
    assert command in mistake(capsys, monkeypatch, "infill", name, "--model", folder)


def test_stdin_that_holds_something_else_is_noticed(folder):
    done = ddot("infill", "--model", folder, stdin="\0\x01\n\0\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "binary" in done.stderr
    done = ddot("infill", "--model", folder, "--steps", 2, stdin='{"text": "a ___{1} b"}\n')
    assert done.returncode == 0
    assert done.stdout.startswith('{"text": "a ')  # filled as it stands
    assert "--input -" in done.stderr


def test_binary_input_is_refused(capsys, monkeypatch, folder, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(bytes(range(256)))
    said = mistake(capsys, monkeypatch, "infill", "--input", source, "--output", tmp_path / "o", "--model", folder)
    assert "binary" in said
    assert not (tmp_path / "o").exists()


def lines(path: Path) -> list[dict]:
    return [{**json.loads(line), "seconds": None} for line in path.read_text().splitlines()]


def write_lines(path: Path, count: int) -> None:
    texts = [{"id": f"n{i}", "text": f"{SENTENCES[i % 3]} ___{{1,3}} and ___."} for i in range(count)]
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


def test_a_file_goes_on_where_it_stopped(folder, tmp_path):
    source, output, again = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    write_lines(source, 6)
    with open(source, "a") as file:
        file.write('not json\n{"id": 8, "text": "no blank"}\n{"id": 9, "free": "boat dawn", "n": 2}\n{"id": 10}\n')
        file.write('{"id": 11, "text": "a ___", "steps": "many"}\n')
    done = ddot("infill", "--input", source, "--output", output, "--model", folder, "--steps", 2)
    assert done.returncode == 1, done.stderr
    rows = lines(output)
    assert [row["id"] for row in rows] == [*(f"n{i}" for i in range(6)), 7, 8, 9, 10, 11]
    assert [i for i, row in enumerate(rows) if "error" in row] == [6, 7, 9, 10]
    assert len(rows[8]["alternatives"]) == 1
    whole = output.read_bytes()
    again.write_bytes(whole[: len(whole) // 2])  # a line cut in two
    assert ddot("infill", "--input", source, "--output", again, "--model", folder, "--steps", 2).returncode == 1
    assert lines(again) == rows
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "somebody else", "text": "x"}\n')
    refused = ddot("infill", "--input", source, "--output", other, "--model", folder)
    assert refused.returncode == 2
    assert "another id" in refused.stderr
    assert other.read_text() == '{"id": "somebody else", "text": "x"}\n'


@pytest.mark.parametrize("precious", ['{"my": "precious"}', "dear diary\ntoday\n", '{"id": 1, "mine": 2}\n', "1\n2\n"])
def test_a_file_of_somebody_else_is_left_alone(precious, capsys, monkeypatch, folder, tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "a ___"}\n' * 4)
    output.write_text(precious)
    said = mistake(capsys, monkeypatch, "infill", "--input", source, "--output", output, "--model", folder)
    assert "choose another --output" in said
    assert output.read_text() == precious


@pytest.fixture(scope="module")
def answered(folder, tmp_path_factory):
    """An answer that was written before: its file."""
    work = tmp_path_factory.mktemp("answered")
    (work / "in.jsonl").write_text('{"text": "a ___{1}"}\n')
    command = ["infill", "--input", work / "in.jsonl", "--output", work / "out.jsonl", "--steps", 1, "--model", folder]
    assert ddot(*command).returncode == 0
    return work / "out.jsonl"


@pytest.mark.parametrize(
    ("line", "options", "other"),
    [
        ({"text": "b ___{1}"}, (), "text"),
        ({"free": "a"}, (), "text"),
        ({"text": "a ___{1}", "n": 2}, (), "n"),
        ({"text": "a ___{1}"}, ("--n", 2), "n"),
        ({"text": "a ___{1}"}, ("--temperature", 1), "temperature"),
        ({"text": "a ___{1}"}, ("--temperature", 0.5, "--top-p", 0.5), "temperature"),
        ({"text": "a ___{1}", "terminal": "grid"}, (), "terminal"),
        ({"text": "a ___{1}"}, ("--seed", 1), "seed"),
        ({"text": "a ___{1}"}, ("--model", "copy"), "model"),
        ({"text": "a ___{1}"}, (), None),
        ({"text": "a  ___{1}"}, (), "text"),
    ],
)
def test_answers_to_other_questions_are_not_taken_for_these(
    line, options, other, answered, capsys, monkeypatch, folder, tmp_path
):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    shutil.copy(answered, output)
    command = ["infill", "--input", source, "--output", output, "--steps", 1]
    before = output.read_text()
    source.write_text(json.dumps(line) + "\n")
    if "copy" in options:
        shutil.copytree(folder, tmp_path / "copy")
        options = ("--model", tmp_path / "copy")
    else:
        options = ("--model", folder, *options)
    if other is None:
        assert ddot(*command, *options).returncode == 0
    else:
        assert f"line 1 has another {other}; choose another" in mistake(capsys, monkeypatch, *command, *options)
    assert output.read_text() == before


def test_odd_lines_become_errors_and_the_run_goes_on(folder, tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    odd = [
        "[" * 100_000,
        '{"id": "\\ud800", "text": "a ___{1}"}',
        '{"id": NaN, "text": "b"}',
        '{"id": ' + "9" * 5001 + "}",
    ]
    source.write_text("\n".join([*odd, '{"id": "error", "text": "c ___{1}"}']) + "\n")
    for _ in range(2):  # the second time there is nothing left to do
        done = ddot("infill", "--input", source, "--output", output, "--model", folder, "--steps", 2)
        assert done.returncode == 1, done.stderr
        assert "3 of 5" in done.stderr
    assert len(output.read_text().splitlines()) == 5


@pytest.mark.slow
def test_an_interruption_loses_no_finished_line(folder, tmp_path):
    source, output, left_alone = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    write_lines(source, 48)
    command = [sys.executable, "-m", "ddot", "infill", "--input", source, "--model", folder, "--steps", "8", "--output"]
    running = subprocess.Popen([*command, output], stderr=subprocess.PIPE, cwd=ROOT)
    while running.poll() is None and (not output.exists() or output.read_bytes().count(b"\n") < 5):
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    kept = output.read_bytes()
    assert kept.endswith(b"\n")
    assert 5 <= kept.count(b"\n") < 48
    assert ddot(*command[3:], output).returncode == 0
    assert output.read_bytes().startswith(kept)
    assert ddot(*command[3:], left_alone).returncode == 0
    assert lines(output) == lines(left_alone)


@pytest.mark.slow
def test_torchrun_shares_a_file_among_processes(folder, tmp_path):
    source, alone, shared = tmp_path / "in.jsonl", tmp_path / "alone.jsonl", tmp_path / "shared.jsonl"
    write_lines(source, 7)
    common = ["--model", str(folder), "--steps", "2", "--input", str(source), "--output"]
    assert ddot("infill", *common, alone).returncode == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ddot"]
    done = subprocess.run([*torchrun, "infill", *common, shared], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert lines(shared) == lines(alone)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["alone.jsonl", "in.jsonl", "shared.jsonl"]


def test_info_and_help(folder):
    told = json.loads(ddot("info", folder).stdout)
    assert told["blocks"] == 1
    assert told["parameters"] > 1000
    for command in (
        "infill",
        "watch",
        "serve",
        "train",
        "evaluate",
        "convert",
        "prepare",
        "plot trajectories",
        "plot cost",
        "bench infill",
        "bench methods",
        "bench cost",
    ):
        helped = ddot(*command.split(), "--help")
        assert helped.returncode == 0
        assert "Example" in helped.stdout


def test_a_recipe_is_evaluated_where_it_was_trained(capsys, monkeypatch, folder, tmp_path):
    monkeypatch.chdir(tmp_path)
    item = {"id": "1", "words": ["the", "boat", "leaves", "at", "dawn"], "keep": [0, 1, 4]}
    (tmp_path / "own.test.jsonl").write_text(json.dumps(item) + "\n")
    asked = ("evaluate", "toy", "--bench", tmp_path, "--output", tmp_path / "rows.jsonl", "--datasets", "own")
    assert "ddot train toy --output runs/toy" in mistake(capsys, monkeypatch, *asked)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "toy").symlink_to(folder)
    assert ddot(*asked, "--steps", 2, cwd=tmp_path).returncode == 0
    assert {row["model"] for row in lines(tmp_path / "rows.jsonl")} == {"runs/toy"}


def test_trace_and_plot_from_it(folder, tmp_path):
    trace, picture = tmp_path / "trace.json", tmp_path / "paths.svg"
    common = ("--model", folder, "--steps", 3)
    assert ddot("infill", "The boat ___{1,3} at dawn.", *common, "--trace", trace).returncode == 0
    assert len(json.loads(trace.read_text())["frames"]) >= 2
    done = ddot("plot", "trajectories", "--from", trace, "-o", picture)
    assert done.returncode == 0, done.stderr
    assert "boat" in picture.read_text()
    watched = ddot("watch", "The boat ___ at dawn.", *common, "--delay", 0)
    assert watched.returncode == 0, watched.stderr
    assert len(watched.stdout.splitlines()) == 4


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run_and_are_short(example):
    done = ddot(example)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert len(example.read_text().splitlines()) < 40


def test_methods_are_compared_on_the_same_items(capsys, monkeypatch, folder, tmp_path):
    item = {"id": "0", "words": SENTENCES[0].split(), "keep": [0, 1, 2, 6, 7]}
    (tmp_path / "own.test.jsonl").write_text(json.dumps(item) + "\n")
    rows, texts = tmp_path / "rows.jsonl", tmp_path / "rows.texts.jsonl"
    same = {"model": "m", "dataset": "own", "split": "test", "task": "free", "steps": 2, "seed": 0, "items": 1}
    said = {"planned": SENTENCES[0], "lc": "The small boat", "unfilled": "The small boat at dawn."}
    rows.write_text("".join(json.dumps({"method": name, **same}) + "\n" for name in said))
    texts.write_text(
        "".join(json.dumps({"method": name, **same, "id": "0", "text": text}) + "\n" for name, text in said.items())
    )

    def told(command, *options):
        """What a command that succeeds says, in this process: (stdout, stderr)."""
        from ddot.cli import run

        monkeypatch.setattr(sys, "argv", ["ddot", command, *map(str, options)])
        with pytest.raises(SystemExit) as stopped:
            run()
        assert not stopped.value.code
        return capsys.readouterr()

    # Both files, as rows/*.jsonl would name them.
    found = told("compare", rows, texts, "--bench", tmp_path, "--methods", "planned,lc,unfilled", "--json").out
    lines = [json.loads(line) for line in found.splitlines()]
    assert [(line["second"], line["metric"]) for line in lines] == [
        (name, metric) for name in ("lc", "unfilled") for metric in ("bleu4", "success")
    ]
    assert [line["difference"] for line in lines if line["metric"] == "success"] == [100, 0]
    differences = tmp_path / "differences.jsonl"
    differences.write_text(found)
    assert "+100.0" in told("tables", differences, "--table", "differences").out
    asked = (rows, "--bench", tmp_path, "--methods", "planned,lc", "--metrics")
    assert "d2 is not a sum over items" in told("compare", *asked, "d2,bleu4").err
    assert "d2 is not a sum over items" in mistake(capsys, monkeypatch, "compare", *asked, "d2")
    asked = ("rescore", rows, "--bench", tmp_path, "--metrics", "perplexity")
    assert "perplexity needs a language model" in mistake(capsys, monkeypatch, *asked)
    sure = told("rescore", rows, "--bench", tmp_path, "--metrics", "success", "--samples", 20)
    assert "100 [100, 100]" in sure.out
    again = told("rescore", rows, "--bench", tmp_path, "--metrics", "success", "--samples", 20)
    assert f"already have all that; ddot tables {rows} shows them" in again.err

    def refused(*options):
        return mistake(capsys, monkeypatch, "compare", rows, "--bench", tmp_path, *options)

    assert "two methods" in refused("--methods", "planned")
    assert "no row has the method 'pop'; available: planned, lc, unfilled" in refused("--methods", "planned,pop")
    assert "add perplexity" in refused("--methods", "planned,lc", "--language-model", folder)
    assert "holds texts" in mistake(capsys, monkeypatch, "compare", texts, "--bench", tmp_path, "--methods", "lc,pop")


def test_a_recipe_says_what_it_starts_from(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = mistake(capsys, monkeypatch, "train", "smollm2_lc", "--output", "runs/lc")
    assert "starts from runs/smollm2_trunk" in said
    assert "ddot train smollm2_trunk" in said
    assert not (tmp_path / "runs").exists()
