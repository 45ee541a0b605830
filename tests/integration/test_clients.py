"""`ddot serve` as its real clients meet it: the `openai` package, and schemathesis, which reads /openapi.json."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from schemathesis import GenerationMode, checks
from served import Served, small_model


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = small_model(tmp_path_factory.mktemp("clients") / "tiny")
    with Served("--model", folder, "--time-limit", "20", key="key") as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="key", max_retries=0) as client:
        yield client


def test_the_openai_client_completes(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "ddot"
    asked = {"model": "tiny", "prompt": "The small boat", "suffix": " at dawn.", "max_tokens": 4, "n": 2, "seed": 3}
    whole = client.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.usage.completion_tokens <= 2 * 4
    texts = ["", ""]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_the_openai_client_understands_mistakes(client, served):
    with pytest.raises(BadRequestError, match="between 1 and 16"):
        client.completions.create(model="tiny", prompt="a", n=99)
    with pytest.raises(NotFoundError, match="no model"):
        client.models.retrieve("other")
    with pytest.raises(AuthenticationError, match="the API key is wrong"):
        client.with_options(api_key="wrong").models.list()


CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_every_route_keeps_to_the_schema(served, mode):
    """Requests made from /openapi.json, right and wrong ones: no server error, nothing undocumented or let through."""
    headers = {"Authorization": "Bearer key"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{served.port}/openapi.json", headers=headers)
    paths = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        paths.add(operation.path)
        if mode == GenerationMode.NEGATIVE and operation.method != "post":
            continue  # without parameters nothing can be wrong

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case):
            if isinstance(case.body, dict):
                case.body.setdefault("steps", 1)
            case.call_and_validate(headers=headers, checks=CHECKS)

        run()
    assert {"/v1/infill", "/infill", "/v1/completions", "/v1/models", "/health", "/metrics"} <= paths
