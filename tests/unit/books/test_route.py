"""The path from which a server's middleware recognizes an API, with and without `--root-path`."""

from __future__ import annotations

import pytest

from vllm_harness._scripted.in_server.vllm_harness_asgi import route


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("", "/v1/responses", "/v1/responses"),
        ("/llm", "/llm/v1/responses", "/v1/responses"),
        ("/llm", "/v1/responses", "/v1/responses"),
        ("/llm", "/llmx/v1/responses", "/llmx/v1/responses"),
    ],
)
def test_a_path_with_and_without_the_prefix(root: str, path: str, expected: str) -> None:
    assert route({"path": path, "root_path": root}) == expected


def test_another_kind_of_scope_has_no_path() -> None:
    assert route({"type": "lifespan"}) == ""
