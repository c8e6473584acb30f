"""Wherever the chunks of a stream end, the stream says the same as the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.boundaries import EVEN, SHAPES, Asked, BoundaryApi, Shape, expect_none, written
from tests.choice import few, seed_of_today
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_scripted

Known = Mapping[tuple[str, BoundaryApi], Sequence[pytest.MarkDecorator]]
_defect = pytest.mark.vllm_known_defect
SPLIT = _defect("partial-characters-are-no-thoughts-in-a-stream", models=["qwen3"])
HELD_BACK = _defect("reasoning-tokens-stream-beside-stop-string", models=["qwen3"])
ANEW = _defect("bodies-write-arguments-anew", models=["gpt-oss"])
LOST = _defect("vllm-48294", models=["llama3.1"])
OTHERS = _defect("log-probabilities-of-other-tokens-stand-on-the-message", models=["qwen3"])
WITHOUT_TEXT = _defect("log-probabilities-of-tokens-without-text-are-not-streamed", models=["llama3.1"])
IN_SHORT_RUNS = 16
"""The number of cuts of an answer that a run without --vllm-slow draws."""
BY_ANY: Known = {
    ("hard_call", "chat"): [ANEW],
    **{("wide_reasoning", api): [SPLIT] for api in ("responses", "chat")},
    ("log_probabilities", "responses"): [pytest.mark.vllm_standard, OTHERS, WITHOUT_TEXT],
}
BY_A_CUT: Known = {**BY_ANY, ("stop", "chat"): [HELD_BACK]}
BY_EVEN: Known = {
    **BY_A_CUT,
    **{("call", api): [LOST] for api in ("responses", "chat", "messages")},
    **{("hard_call", api): [LOST] for api in ("responses", "messages")},
    ("hard_call", "chat"): [ANEW, LOST],
    ("choices_of_calls", "chat"): [LOST],
}


def _cases(known: Known) -> list[Any]:
    return [_case(shape, api, known.get((shape.id, api), ())) for shape in SHAPES for api in shape.more]


def _case(shape: Shape, api: BoundaryApi, marks: Sequence[pytest.MarkDecorator]) -> Any:
    needs = (*shape.needs, *((api,) if api in ("responses", "messages") else ()))
    needed = [pytest.mark.vllm_needs(*needs)] if needs else []
    return pytest.param(shape, api, id=f"{shape.id}-{api}", marks=[*needed, *marks])


@pytest.fixture
def asked(vllm_server: VllmServer, http: Endpoint, request: pytest.FixtureRequest) -> Asked:
    """The server, whose answers the plugin's checks judge."""
    return Asked(http, vllm_server.model, request.getfixturevalue)


@pytest.mark.parametrize(("shape", "api"), _cases(BY_A_CUT))
def test_stream_equals_body_at_every_cut(
    shape: Shape,
    api: BoundaryApi,
    vllm_server: VllmServer,
    asked: Asked,
    script: ScriptWriter,
    request: pytest.FixtureRequest,
) -> None:
    """A short run draws some cuts, unless a known defect shows at certain ones only."""
    cuts = shape.cuts(written(script, shape, api, harmony=vllm_server.entry.harmony))
    if not request.config.option.vllm_slow and not request.node.get_closest_marker("vllm_known_defect"):
        cuts = sorted(few(cuts, IN_SHORT_RUNS, seed_of_today()))
    expect_none(asked.problems(shape, api, cuts))


@pytest.mark.parametrize(("shape", "api"), _cases(BY_EVEN))
def test_stream_equals_body_in_even_chunks(
    shape: Shape, api: BoundaryApi, vllm_server: VllmServer, asked: Asked, script: ScriptWriter
) -> None:
    """The chunks have one, two or three tokens, or all."""
    written(script, shape, api, harmony=vllm_server.entry.harmony)
    expect_none(asked.problems(shape, api, EVEN))
