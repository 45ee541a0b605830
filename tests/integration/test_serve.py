"""`ddot serve` as programs meet it: a real process, real sockets, answers that are those of `Model.infill`."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
import uvicorn
from served import LONG, ROOT, THREADS, Served, asked, small_model

import ddot
from ddot.infill.settings import Settings
from ddot.infill.template import between, parse
from ddot.serve.access import Access
from ddot.serve.app import make_app
from ddot.serve.jobs import JobQueue
from ddot.serve.processes import WorkerPool
from ddot.version import install_command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return ddot.load(folder, device="cpu")


@pytest.fixture(scope="module")
def served(folder):
    with Served("--model", folder, "--device", "cpu", "--queue", "1") as server:
        yield server


def plain(found):
    return [(each["text"], each["fills"], each["score"]) for each in found["results"]]


def same(answers):
    return [(each.text, each.fills, each.score) for each in answers]


def middle(model, before, after, n=1, most=None, **settings):
    request = model.request(between(before, after), Settings(n=n, **settings))
    (found,) = model.answers([replace(request, max_tokens=most)])
    return [each.infill.fills[0] for each in found.best]


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 3},
        {"n": 3, "steps": 2, "seed": 5, "temperature": 0.9},
        {"steps": 4, "seed": 2, "terminal": "random", "temperature": 1.0, "top_p": 0.7},
        {"steps": 2, "fills": ["paper boat", None]},
    ],
    ids=str,
)
def test_answers_are_those_of_the_model(served, model, settings):
    text = "The ___{1,4} leaves, Zoë’s “___” 漢字\n\\___ ends."
    found = served.post("/v1/infill", text=text, **settings)
    assert plain(found) == same(model.infill(text, **settings))
    assert found["literals"] == list(parse(text).literals)
    assert found["blanks"] == [{"least": 1, "most": 4}, {"least": 1, "most": None}]
    assert (found["steps"], found["seed"], found["model"]) == (settings["steps"], settings.get("seed", 0), "tiny")
    begin, *events, last = served.events("/v1/infill", text=text, **settings)
    assert plain(last) == plain(found)
    assert begin["type"] == "start"
    frames = [event for event in events if event["type"] == "frame"]
    assert {frame["attempt"] for frame in frames} >= {each["attempt"] for each in last["results"]}
    first = [event for event in events if event["type"] == "first"]
    assert len(first) == (settings.get("n", 1) > 1)  # the answer that is got alone, before the others
    for event in first:
        assert plain(event) == same(model.infill(text, **{**settings, "n": 1}))
        assert plain(event)[0] in plain(last)
    # What is found so far, in reading order: the last frames of an attempt hold its fills.
    kept, texts = {}, {}
    for frame in frames:
        if frame["step"] == 0:
            kept[frame["attempt"], frame["window"]] = frame
        start = kept[frame["attempt"], frame["window"]]
        for number, slots in enumerate(start.get("slots", [])):
            words = "".join(frame["tokens"][slot] or "" for slot in slots)
            texts[frame["attempt"], start["first_blank"] + number] = words.strip()
    for each in last["results"]:
        fills = [fill for fill, locked in zip(each["fills"], begin["locked"], strict=True) if locked is None]
        assert [texts[each["attempt"], number] for number in range(len(fills))] == [fill.strip() for fill in fills]


@pytest.mark.parametrize("asked_so", [{"free": "boat dawn garden"}, {"text": "boat dawn garden", "free": True}])
def test_words_in_order(served, model, asked_so):
    found = served.post("/v1/infill", steps=2, **asked_so)
    assert plain(found) == same(model.infill("boat dawn garden", steps=2, free=True))


def test_a_stream_has_a_frame_a_step_and_then_the_result(served, model):
    text = "The small ___{3} at dawn."
    _, *frames, last = served.events("/v1/infill", text=text, steps=5, terminal="grid")
    wanted = list(model.stream(text, steps=5, terminal="grid"))
    assert [frame["type"] for frame in frames] == ["frame"] * len(wanted)
    assert [frame["tokens"] for frame in frames] == [frame.pieces for frame in wanted]
    assert [frame["t"] for frame in frames] == [frame.t for frame in wanted]
    assert [frame["step"] for frame in frames] == list(range(6))
    for frame, one in zip(frames, wanted, strict=True):
        assert frame["positions"] == pytest.approx(one.positions, abs=1e-5)
        assert [kind == "prompt" for kind in frame["kinds"]] == one.given
        assert set(frame["kinds"]) <= {"prompt", "response", "pad"}
    assert last["type"] == "result"
    assert plain(last) == same(model.infill(text, steps=5, terminal="grid"))


def test_windows_of_a_long_text_are_streamed_in_turn(served, model):
    text = "The boat ___{1} and " * 12 + "rest."
    _, *frames, last = served.events("/v1/infill", text=text, steps=1)
    assert plain(last) == same(model.infill(text, steps=1))
    windows = [frame["window"] for frame in frames]
    assert windows == sorted(windows)
    assert max(windows) > 0


@pytest.mark.parametrize("before", ["The ___ boat ", "<mask> [blank] \\___{3} and", "", "a\n\tb ", "It rains " * 400])
@pytest.mark.parametrize("after", [" at dawn.", "", "___{2} x", ", it" + " rains" * 400])
def test_editors_get_what_goes_between_prefix_and_suffix(served, model, before, after):
    found = served.post("/infill", input_prefix=before, input_suffix=after, steps=2, top_k=40, samplers=["top_k"])
    assert found["content"] == middle(model, before, after, steps=2)[0]
    assert found["stop"] is True
    assert found["model"] == "tiny"
    assert found["truncated"] is (len(before + after) > 1000)
    timings = found["timings"]
    assert timings["prompt_n"] == found["tokens_cached"] > 0
    assert timings["predicted_n"] == found["tokens_predicted"]
    assert {f"{what}_{unit}" for what in ("prompt", "predicted") for unit in ("n", "ms", "per_second")} <= set(timings)
    assert all(value >= 0 for value in timings.values())


def test_the_prompt_goes_on_with_the_prefix_and_other_files_stand_before(served, model):
    found = served.post(
        "/infill",
        input_prefix="It rains.\n",
        prompt="My sister",
        input_suffix=" garden.",
        input_extra=[{"text": "The boat.\n", "filename": "a.txt", "time": 3}, {"text": "At dawn."}],
        steps=2,
    )
    assert found["content"] == middle(model, "The boat.\nAt dawn.\nIt rains.\nMy sister", " garden.", steps=2)[0]


@pytest.mark.parametrize("n_predict", [1, 2, 5])
def test_n_predict_bounds_tokens(served, n_predict):
    for seed in range(3):
        asked_for = {"input_prefix": "The boat", "input_suffix": "", "n_predict": n_predict, "seed": seed}
        found = served.post("/infill", **asked_for, temperature=1.5, steps=3)
        assert found["tokens_predicted"] <= n_predict
        assert len(found["content"].split()) <= n_predict
        assert found["stop_type"] == ("limit" if found["tokens_predicted"] == n_predict else "eos")


def test_time_limits_are_kept_by_fewer_words(served):
    asked_for = {"input_prefix": "The boat", "input_suffix": " at dawn.", "steps": 128}
    assert served.post("/infill", **asked_for, t_max_predict_ms=-1)["tokens_predicted"] > 3
    hurried = served.post("/infill", **asked_for, t_max_predict_ms=1)
    assert 1 <= hurried["tokens_predicted"] <= 3
    # No token is worse for it: each had a step of its own.
    bounded = served.post("/infill", **asked_for, n_predict=hurried["tokens_predicted"])
    assert hurried["content"] == bounded["content"]


def test_several_completions_for_editors(served):
    asked_for = {"input_prefix": "The boat", "input_suffix": " at dawn.", "steps": 2, "n_cmpl": 3}
    found = served.post("/infill", **asked_for)
    assert [each["index"] for each in found] == [0, 1, 2]
    events = served.events("/infill", **asked_for)
    assert [each["content"] for each in events if not each["stop"]] == [each["content"] for each in found]
    by_n = served.post("/infill", **{**asked_for, "n_cmpl": None, "n": 3})
    assert [each["content"] for each in by_n] == [each["content"] for each in found]


@pytest.mark.parametrize("prefix", ["", "text"])
def test_nothing_asked_for_is_answered_at_once(served, prefix):
    found = served.post("/infill", input_prefix=prefix, input_suffix="", n_predict=0, t_max_predict_ms=1)
    assert (found["content"], found["stop"], found["timings"]["predicted_n"]) == ("", True, 0)
    warm = {"input_prefix": prefix, "input_suffix": "", "n_predict": 0, "response_fields": [""]}
    assert served.post("/infill", **warm, input_extra=[{"text": "x"}], samplers=[]) == {}
    assert served.events("/infill", input_prefix=prefix, input_suffix="", n_predict=0)[-1]["stop"] is True


def test_fields_asked_for_are_flat(served):
    fields = ["content", "timings/predicted_n", "timings/prompt_ms", "truncated", "timings/none", "content/x", "/"]
    asked_for = {"input_prefix": "The boat ", "input_suffix": " dawn.", "steps": 2}
    found = served.post("/infill", **asked_for, response_fields=fields)
    assert set(found) == {"content", "timings/predicted_n", "timings/prompt_ms", "truncated"}
    assert found["truncated"] is False
    assert isinstance(served.post("/infill", **asked_for, response_fields=["timings"])["timings"], dict)


def test_streams_for_editors_add_up(served):
    asked_for = {"input_prefix": "The boat ", "input_suffix": " dawn.", "steps": 2}
    events = served.events("/infill", **asked_for)
    assert "".join(event["content"] for event in events) == served.post("/infill", **asked_for)["content"]
    assert [event["stop"] for event in events] == [False, True]
    assert "timings" in events[-1]


def test_text_ends_at_stop_strings(served):
    asked_for = {"input_prefix": "The boat ", "input_suffix": " dawn.", "steps": 2}
    content = served.post("/infill", **asked_for)["content"]
    word = content[2:4]
    found = served.post("/infill", **asked_for, stop=["nowhere", word])
    assert found["content"] == content[: content.index(word)]
    assert (found["stop_type"], found["stopping_word"]) == ("word", word)


def test_completions(served, model):
    asked_for = {"model": "any", "prompt": "The small ___ boat", "suffix": " at dawn.", "steps": 2, "seed": 3}
    found = served.post("/v1/completions", **asked_for, n=2, temperature=0.8, logit_bias={})
    wanted = middle(model, "The small ___ boat", " at dawn.", n=2, steps=2, seed=3, temperature=0.8)
    assert [choice["text"] for choice in found["choices"]] == wanted
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert all(choice["finish_reason"] == "stop" and choice["logprobs"] is None for choice in found["choices"])
    assert (found["object"], found["model"]) == ("text_completion", "tiny")
    assert found["id"].startswith("cmpl-")
    usage = found["usage"]
    encode = model.tokenizer.encode
    assert usage["prompt_tokens"] == len(encode(" The small ___ boat")) + len(encode(" at dawn.")) + 2  # the edges
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_completions_without_a_suffix_go_on_and_n_choices_come(served, model):
    found = served.post("/v1/completions", prompt=["The boat", "It"], max_tokens=1, n=3, steps=1, echo=True)
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert all(choice["text"].startswith("The boat") for choice in found["choices"][:3])
    assert found["choices"][0]["text"] == "The boat" + middle(model, "The boat", "", n=3, most=1, steps=1)[0]
    nothing = served.post("/v1/completions", prompt="The boat", max_tokens=0, n=2)
    assert [choice["text"] for choice in nothing["choices"]] == ["", ""]
    assert nothing["choices"][0]["finish_reason"] == "length"


def test_streamed_completions_end_with_done(served):
    asked_for = {"prompt": "The boat", "suffix": " dawn.", "n": 2, "steps": 2}
    *chunks, end = served.events("/v1/completions", **asked_for, stream_options={"include_usage": True})
    assert end == "[DONE]"
    usage = chunks.pop()
    assert usage["choices"] == []
    whole = served.post("/v1/completions", **asked_for)
    assert usage["usage"] == whole["usage"]
    texts = ["", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[1::2]] == ["stop", "stop"]


def test_models_health_and_page(served):
    status, _, found = served.ask("GET", "/v1/models")
    assert status == 200
    assert [one["id"] for one in found["data"]] == ["tiny"]
    assert found["object"] == "list"
    assert served.ask("GET", "/v1/models/tiny")[2] == found["data"][0]
    status, _, found = served.ask("GET", "/v1/models/other")
    assert (status, found["error"]["code"]) == (404, "not_found")
    assert served.health()["status"] == "ok"


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/icon.svg"])
def test_the_page_has_no_room_for_others_scripts(served, path):
    status, headers, content = served.ask("GET", path)
    assert status == 200
    policy = dict(part.split(maxsplit=1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy["script-src"], policy["style-src"], policy["connect-src"]} == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    for outside in ("://", "@import", "url(", "innerHTML", "insertAdjacent", "document.write", "eval(", "style="):
        assert outside not in content.replace("http://www.w3.org/2000/svg", "")


SERVING = (ROOT / "docs" / "serving.md").read_text()


@pytest.mark.parametrize("command", re.findall("^ +(curl .*)", SERVING, re.MULTILINE))
def test_the_documented_commands(served, command):
    words = shlex.split(command)
    (path,) = (word.removeprefix("http://127.0.0.1:8012") for word in words if word.startswith("http://127.0.0.1:8012"))
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    method = "GET" if body is None else "POST"
    assert served.ask(method, path, body)[0] == 200


def refused(served, path, body, headers=None):
    status, headers, found = served.ask("POST", path, body, headers)
    assert set(found) == {"error"}
    assert set(found["error"]) == {"message", "type", "code"}
    assert found["error"]["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return status, found["error"]["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'"text"', "wanted a JSON object"),
        ({}, '"text" or "free"'),
        ({"text": 5}, '"text" is 5; wanted a string'),
        ({"text": None}, '"text" or "free"'),
        ({"text": ["a ___"]}, "wanted a string"),
        ({"text": "a ___", "free": "b"}, "it has both"),
        ({"text": "no blank"}, "there is no blank"),
        ({"text": " "}, "the text is empty"),
        ({"text": "a ___{3"}, "is not closed"),
        ({"text": "a ___{9,2}"}, "swap them"),
        (b'{"text": "\\ud800 ___"}', "half a character"),
        ({"text": "a ___", "n": 0}, "n is 0; it must be between 1 and 16"),
        ({"text": "a ___", "n": 17}, "between 1 and 16"),
        ({"text": "a ___", "n": True}, "n is true; wanted a whole number"),
        ({"text": "a ___", "steps": "many"}, 'steps is "many"; wanted a whole number'),
        ({"text": "a ___", "steps": 129}, "between 1 and 128"),
        ({"text": "a ___", "seed": 0.5}, "a whole number"),
        ({"text": "a ___", "temperature": -1}, "temperature is -1"),
        (b'{"text": "a ___", "temperature": NaN}', "temperature is NaN"),
        ({"text": "a ___", "top_p": 0}, "top_p is 0"),
        ({"text": "a ___", "terminal": "left"}, "there are grid, random"),
        (b'{"text": "a ___", "terminal": "\\ud800"}', "terminal"),
        ({"text": "a ___", "fills": ["b", "c"]}, "2 fills for 1 blank; give one for each, or null"),
        ({"text": "a ___{3}", "fills": ["b"]}, "asks for exactly 3"),
        ({"text": "a ___", "fills": [5]}, "a string or null"),
        ({"text": "a ___" + "x" * 20_000}, "up to 20,000 characters"),
        ({"free": "x" * 20_001}, "up to 20,000 characters"),
        ({"text": "___ a " * 65}, "65 blanks; at most 64"),
        ({"free": "word " * 300}, "300 words; at most 256"),
        ({"text": "a ___", "stream": "yes"}, "true or false"),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize("stream", [False, True])
def test_mistakes_are_told_in_a_sentence(served, body, says, stream):
    if stream and isinstance(body, dict):
        body = {"stream": True, **body}
    status, message = refused(served, "/v1/infill", body)
    assert status == 400
    assert says in message


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/infill", {}, '"input_prefix" and "input_suffix"'),
        ("/infill", {"input_prefix": 5, "input_suffix": ""}, '"input_prefix" is 5; wanted a string'),
        ("/infill", {"input_prefix": "a", "input_suffix": "", "input_extra": [{"filename": "b"}]}, '"input_extra"'),
        ("/infill", {"input_prefix": "a", "input_suffix": "", "n_predict": "5"}, '"n_predict"'),
        ("/infill", {"input_prefix": "a", "input_suffix": "", "response_fields": "content"}, '"response_fields"'),
        ("/infill", {"input_prefix": "a", "input_suffix": "", "top_p": 3}, "top_p is 3"),
        ("/v1/completions", {}, '"prompt" is missing'),
        ("/v1/completions", {"prompt": [1, 2]}, '"prompt" is [1, 2]; wanted a string'),
        ("/v1/completions", {"prompt": "a", "max_tokens": -1}, '"max_tokens"'),
        ("/v1/completions", {"prompt": ["a"] * 9, "n": 2}, "9 prompts with n = 2"),
        ("/v1/completions", {"prompt": []}, "0 prompts"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_mistakes_of_other_clients(served, path, body, says):
    status, message = refused(served, path, body)
    assert status == 400
    assert says in message


def test_bodies_that_are_too_large(served):
    for size in (1_200_000, 20_000_000):
        body = json.dumps({"text": "a ___" + "b" * size}).encode()
        status, message = refused(served, "/v1/infill", body)
        assert (status, "up to 1,048,576 bytes" in message) == (413, True)


def test_other_addresses(served):
    for method, path, status in [("GET", "/nowhere", 404), ("GET", "/infill", 405), ("DELETE", "/v1/models", 405)]:
        got, _, found = served.ask(method, path)
        assert got == status
        assert "POST /v1/infill" in found["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("InfillRequest", "text free fills n steps seed temperature top_p terminal avoid stream"),
        ("EditorRequest", "input_prefix input_suffix input_extra prompt n_predict t_max_predict_ms n_cmpl stream stop"),
        ("EditorRequest", "response_fields"),
        ("CompletionRequest", "prompt suffix max_tokens n stop stream stream_options echo seed temperature top_p"),
        ("Chunk", "text filename"),  # of input_extra
    ],
)
def test_the_schema_names_what_may_be_sent(served, kind, names):
    schemas = served.ask("GET", "/openapi.json")[2]["components"]["schemas"]
    assert set(names.split()) <= set(schemas[kind]["properties"])


def test_the_bounds_of_the_schema_are_those_that_are_checked(served):
    """A number at a bound is taken, one beyond it refused, for every bound in the schema."""
    schemas, tried = served.ask("GET", "/openapi.json")[2]["components"]["schemas"], set()
    for name, said in schemas["InfillRequest"]["properties"].items():
        for kind in said.get("anyOf", []):
            for bound, beyond in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0)):
                if bound in kind:
                    at = {"text": "a ___{1}", "steps": 1, name: int(kind[bound])}
                    assert bound == "exclusiveMinimum" or served.ask("POST", "/v1/infill", at)[0] == 200
                    assert served.ask("POST", "/v1/infill", {**at, name: int(kind[bound]) + beyond})[0] == 400
                    tried.add(name)
            for value in kind.get("enum", []):
                assert served.ask("POST", "/v1/infill", {"text": "a ___{1}", "steps": 1, name: value})[0] == 200
                tried.add(name)
    assert tried == {"n", "steps", "temperature", "top_p", "terminal"}


def until(served, **wanted):
    """The health once it is as wanted; it must become so soon."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        health = served.health()
        if all(health[name] == value for name, value in wanted.items()):
            return
        time.sleep(0.02)
    raise AssertionError(f"{health}, wanted {wanted}")


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_says_come_back_and_who_leaves_stops_his_work(served, stream):
    with ExitStack() as leaving:
        for number in range(THREADS + 1):
            connection = served.open("POST", "/v1/infill", {**LONG, "stream": stream})
            leaving.callback(connection.close)
            until(served, at_work=min(number + 1, THREADS), waiting=max(0, number + 1 - THREADS))
        for path, body in [
            ("/v1/infill", {"text": "a ___"}),
            ("/infill", {"input_prefix": "a", "input_suffix": ""}),
            ("/v1/completions", {"prompt": "a", "stream": True}),
        ]:
            start = time.monotonic()
            status, headers, found = served.ask("POST", path, body)
            assert (status, found["error"]["code"]) == (503, "busy")
            assert int(headers["Retry-After"]) > 0
            assert time.monotonic() - start < 5
        # Who asks for nothing is still answered, and so is whoever waits once a place is free.
        assert served.post("/infill", input_prefix="a", input_suffix="", n_predict=0)["content"] == ""
    until(served, at_work=0, waiting=0)
    assert served.post("/v1/infill", text="a ___{1}", steps=1)["results"]


def test_keys_origins_and_no_queue(folder):
    with Served("--model", folder, "--allow-origin", "http://a.example", "--queue", 0, key="söcret") as server:
        assert server.health()["status"] == "ok"
        assert server.ask("GET", "/")[0] == 200
        body = {"text": "a ___{1}", "steps": 1}
        wrong = [None, {}, {"Authorization": "Bearer "}, {"Authorization": "Bearer no"}, {"Authorization": "söcret"}]
        for headers in [*wrong, {"Authorization": "Basic söcret"}]:
            sent = {name: value.encode() for name, value in (headers or {}).items()}
            status, got, found = server.ask("POST", "/v1/infill", body, sent)
            assert (status, found["error"]["code"], got["WWW-Authenticate"]) == (401, "invalid_api_key", "Bearer")
        assert server.ask("GET", "/v1/models")[0] == 401
        key = {"Authorization": "Bearer söcret".encode(), "Origin": "http://a.example"}
        status, headers, found = server.ask("POST", "/v1/infill", body, key)
        assert (status, len(found["results"])) == (200, 1)
        assert headers["Access-Control-Allow-Origin"] == "http://a.example"
        status, other, found = server.ask("POST", "/v1/infill", body, {**key, "Origin": "http://b.example"})
        assert (status, found["error"]["code"]) == (403, "wrong_origin")
        assert "Access-Control-Allow-Origin" not in other
        preflight = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
        assert server.ask("OPTIONS", "/v1/infill", None, preflight)[0] == 200


def test_ctrl_c_ends_well_in_the_middle_of_work(folder):
    server = Served("--model", folder)
    assert server.line.startswith("ddot: tiny is at http://127.0.0.1:")
    connections = [server.open("POST", "/v1/infill", {**LONG, "stream": stream}) for stream in (True, False)]
    until(server, at_work=min(2, THREADS))
    start = time.monotonic()
    status, printed, said = server.stop()
    assert time.monotonic() - start < 10
    assert (status, printed, said) == (0, "", "ddot: stopped\n")
    streamed, whole = (connection.getresponse() for connection in connections)
    assert b"shutting down" in streamed.read().split(b"\n\n")[-2]
    assert whole.status == 503
    for connection in connections:
        connection.close()


def test_mistakes_on_the_command_line(folder, monkeypatch, capsys):
    from ddot.cli import run

    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, says in [
            (["--port", str(taken.getsockname()[1])], "cannot listen on 127.0.0.1"),
            (["--port", "70000"], "between 0"),
            (["--host", "no.such.host.invalid"], "cannot listen on"),
            (["--port", "0", "--model", "no/such/folder"], "no model at"),
            (["--port", "0", "--queue", "-1"], "0 or more"),
            (["--port", "0", "--time-limit", "0"], "above 0"),
            (["--port", "0", "--api-key-file", "no/such/file"], "cannot read the API key from no/such/file"),
            (["--port", "0", "--api-key-file", os.devnull], "is a device"),
        ]:
            monkeypatch.setattr(sys, "argv", ["ddot", "serve", *arguments])
            with pytest.raises(SystemExit) as stopped:
                run()
            said = capsys.readouterr()
            assert (stopped.value.code, said.out) == (2, "")
            assert says in said.err
            assert said.err.count("\n") == 1


def test_a_missing_extra_is_one_sentence(tmp_path):
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "ddot", "serve"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 2
    assert done.stderr == f"ddot: serving needs the extra `serve`: {install_command('serve')}\n"


def test_every_route_with_types_checked(model):
    """In this process, where signatures are checked."""
    queue = JobQueue(1, 1)
    app = make_app(WorkerPool(model), queue, Access("k", ("*",)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        port, key = listener.getsockname()[1], {"Authorization": "Bearer k"}
        try:
            for stream in (False, True):
                for path, body in [
                    ("/v1/infill", {"text": "The ___{2} boat ___", "n": 2, "terminal": "grid", "fills": [None, "x"]}),
                    ("/infill", {"input_prefix": "The", "input_suffix": " boat", "t_max_predict_ms": 50, "stop": "e"}),
                    ("/infill", {"input_prefix": "The", "input_suffix": " boat", "n_predict": 0}),
                    ("/v1/completions", {"prompt": "The", "max_tokens": 3, "n": 2}),
                ]:
                    status, _, found = asked(port, "POST", path, {**body, "steps": 2, "stream": stream}, key)
                    assert status == 200, found
            for path, status in [
                ("/", 200),
                ("/health", 200),
                ("/v1/models", 200),
                ("/none", 404),
                ("/openapi.json", 200),
            ]:
                assert asked(port, "GET", path, headers=key)[0] == status
            assert asked(port, "POST", "/v1/infill", {"text": "x"}, key)[0] == 400
            assert asked(port, "POST", "/v1/infill", {"text": "x"})[0] == 401
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()
