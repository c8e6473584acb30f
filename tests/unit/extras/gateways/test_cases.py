"""The cases of a gateway check, the requests that they send, and recordings as cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.extras.gateways import recording, rules
from vllm_harness.extras.gateways.answers import ReceivedRequest, SideExchange
from vllm_harness.extras.gateways.cases import APIS, CaseVariant, GatewayCase, case_variants, load_cases
from vllm_harness.extras.gateways.compare import compare_sides
from vllm_harness.extras.gateways.findings import merge_findings
from vllm_harness.extras.gateways.requests import TOOLS, first, following, request_of

ALL = ("tools", "auto_tools", "parallel_tools", "reasoning", "structured_output", "store")


def test_cases_over_each_api_streamed_and_not() -> None:
    names = [each.name for each in case_variants(APIS, ALL)]
    assert len(names) == len(set(names))
    assert {"chat/text", "chat/text/streamed", "messages/loop", "responses/stored/streamed"} <= set(names)
    assert "chat/stored" not in names
    assert not {name for name in names if name.startswith("messages/structured")}


def test_selection_by_capabilities_apis_and_names() -> None:
    assert not [each for each in case_variants(APIS, ()) if each.case.tools]
    assert {each.api for each in case_variants(["chat"], ALL)} == {"chat"}
    assert [each.name for each in case_variants(APIS, ALL, ["*/loop/streamed"])] == [
        f"{api}/loop/streamed" for api in APIS
    ]
    assert not [each for each in case_variants(APIS, ALL, scripted=False) if each.case.leaves]


def test_tools_exist() -> None:
    assert {tool for case in load_cases() for tool in case.tools} <= TOOLS.keys()


def test_invalid_file(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("cases:\n  - {name: a, user: hi, sey: no}\n")
    with pytest.raises(UsageError, match=r"cases.yaml:2.*sey"):
        load_cases(path)


CALLS = {
    "chat": {
        "choices": [
            {
                "message": {
                    "tool_calls": [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{}"}}]
                }
            }
        ]
    },
    "responses": {"output": [{"type": "function_call", "call_id": "call_1", "name": "get_weather"}]},
    "messages": {"content": [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}]},
}


@pytest.mark.parametrize("api", APIS)
def test_results_refer_to_the_call_by_its_id(api: str) -> None:
    case = GatewayCase(
        name="loop", user="How is it?", tools=("get_weather",), results={"get_weather": "rain"}
    )
    variant = CaseVariant(case, api, True)  # type: ignore[arg-type]
    ask = first(variant, "m", "[mark]")
    request = request_of(variant, ask)
    assert request["stream"] is True
    assert "How is it? [mark]" in json.dumps(request)
    next_ask = following(variant, ask, SideExchange(body=CALLS[api], path=API_PATHS[variant.api]))
    assert next_ask is not None
    next_request = request_of(variant, next_ask)
    last = json.dumps(next_request.get("messages") or next_request.get("input"))
    assert '"call_1"' in last
    assert "rain" in last
    assert (
        following(
            CaseVariant(GatewayCase(name="a", user="b"), "chat", False), ask, SideExchange(body=CALLS["chat"])
        )
        is None
    )


def test_stored_response_is_continued_by_its_id() -> None:
    case = GatewayCase(name="stored", user="Remember 7.", continues="previous_response_id", then="It was 7.")
    variant = CaseVariant(case, "responses", False)
    ask = following(variant, first(variant, "m", ""), SideExchange(body={"id": "resp_1", "output": []}))
    assert ask is not None
    request = request_of(variant, ask)
    assert request["previous_response_id"] == "resp_1"
    assert "Remember" not in json.dumps(request["input"])


def exchange(name: str = "chat/text/streamed", broken: str = "", **more: Any) -> SideExchange:
    request = SideExchange(
        {"model": "m", "stream": True},
        path="/v1/chat/completions",
        name=name,
        seen=(ReceivedRequest("chat", {"model": "m"}, ("done",)),),
        **more,
    )
    chunks = ((0.1, b'data: {"choi'), (0.2, b'ces": []}\n\ndata: [DO'), (0.5, b"NE]\n\n"))
    return request.answered(200, {"content-type": "text/event-stream"}, chunks, broken)


def test_recording_round_trip(tmp_path: Path) -> None:
    exchanges = [exchange(), exchange("chat/leaves", left=True, broken="ReadError: gone")]
    recording.write(tmp_path, "http://a", "m", True, exchanges)
    index, read = recording.read(tmp_path)
    assert index.scripted
    assert list(read.values()) == exchanges
    assert (tmp_path / "chat-text-streamed.sse").read_bytes().endswith(b"data: [DONE]\n\n")
    answer = read["chat/text/streamed"]
    assert answer.done_mark
    assert answer.times == [0.2, 0.5]
    assert not compare_sides(read.values(), read.values(), content=True)


def test_recording_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    recording.write(tmp_path, "http://a", "m", True, [exchange()])
    index = tmp_path / recording.INDEX
    index.write_text(index.read_text().replace("chat-text-streamed.sse", "../secret"))
    with pytest.raises(UsageError, match="not the name of a file"):
        recording.read(tmp_path)
    with pytest.raises(UsageError, match="not a recording"):
        recording.read(tmp_path / "none")


def test_merged_findings() -> None:
    lost = rules.GW107.finding("$.usage", "{}", "nothing")
    added = rules.GW111.finding("$.provider")
    differences = merge_findings(
        [("chat/a", added), ("chat/a", lost), ("chat/b", lost), ("messages/a", lost)]
    )
    assert [(each.finding.code, each.names) for each in differences] == [
        ("GW107", ("chat/a", "chat/b")),
        ("GW107", ("messages/a",)),
        ("GW111", ("chat/a",)),
    ]


def test_samples_are_two_equal_answers() -> None:
    for name, sample in SAMPLES.items():
        if sample.kind == "through":
            left, right = sample.build()
            assert left == right, name
