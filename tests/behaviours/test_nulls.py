"""Fields that say nothing: null, where the server's own schema allows it, is as good as leaving one out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.apis import APIS, PATHS, Api, Json, question, said
from vllm_harness.testing.fixtures import ScriptWriter
from vllm_harness.testing.session import Server

pytestmark = pytest.mark.vllm_scripted

REFUSED = {"background", "truncation"}
"""Of Responses; the defect null-where-request-allows-it has tests of its own."""


def nullable(schema: Json, api: Api) -> Iterator[str]:
    """The fields of an API's request that may be null, by the schema that the server publishes."""
    body = schema["paths"][PATHS[api]]["post"]["requestBody"]["content"]["application/json"]["schema"]
    request: Json = schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    for name, field in request["properties"].items():
        if {"type": "null"} in field.get("anyOf", ()):
            yield name


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_null_says_nothing(
    api: Api, stream: bool, vllm_server: Server, http: httpx.Client, script: ScriptWriter
) -> None:
    """All of them at once; where that is refused, one by one, to name them."""
    request: dict[str, Any] = {"model": vllm_server.model, **question(api), "stream": stream}
    allowed = set(nullable(http.get("/openapi.json").json(), api)) - {*request}
    nulls = dict.fromkeys(sorted(allowed - REFUSED if api == "responses" else allowed))
    assert len(nulls) > 10
    script("Rain.", times=None)
    plain = http.post(PATHS[api], json=request)
    answer = http.post(PATHS[api], json={**nulls, **request})
    if answer.status_code != 200:
        alone = {name: http.post(PATHS[api], json={name: None, **request}) for name in nulls}
        refused = [name for name, answer in alone.items() if answer.status_code != 200]
        pytest.fail(f"null is refused for {refused}: {answer.text}")
    assert said(api, answer) == said(api, plain)
