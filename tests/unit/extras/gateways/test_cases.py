"""What a gateway is asked: the cases, their requests, and recordings of what came."""

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
from vllm_harness.extras.gateways.findings import counts, merge_findings
from vllm_harness.extras.gateways.requests import TOOLS, first, following, request_of

ALL = ("tools", "auto_tools", "parallel_tools", "reasoning", "structured_output", "store")


def test_every_case_is_asked_over_each_of_its_apis_both_ways() -> None:
    names = [each.name for each in case_variants(APIS, ALL)]
    assert len(names) == len(set(names))
    assert {"chat/text", "chat/text/streamed", "messages/loop", "responses/stored/streamed"} <= set(names)
    assert "chat/stored" not in names
    assert not {name for name in names if name.startswith("messages/structured")}


def test_cases_are_chosen_by_capabilities_apis_and_names() -> None:
    assert not [each for each in case_variants(APIS, ()) if each.case.tools]
    assert {each.api for each in case_variants(["chat"], ALL)} == {"chat"}
    assert [each.name for each in case_variants(APIS, ALL, ["*/loop/streamed"])] == [
        f"{api}/loop/streamed" for api in APIS
    ]
    assert not [each for each in case_variants(APIS, ALL, scripted=False) if each.case.leaves]


def test_names_of_tools_are_known() -> None:
    assert {tool for case in load_cases() for tool in case.tools} <= TOOLS.keys()


def test_a_wrong_file_is_told_by_its_line(tmp_path: Path) -> None:
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
def test_results_follow_a_call_by_its_id(api: str) -> None:
    case = GatewayCase(
        name="loop", user="How is it?", tools=("get_weather",), results={"get_weather": "rain"}
    )
    each = CaseVariant(case, api, True)  # type: ignore[arg-type]
    ask = first(each, "m", "[mark]")
    request = request_of(each, ask)
    assert request["stream"] is True
    assert "How is it? [mark]" in json.dumps(request)
    after = following(each, ask, SideExchange(body=CALLS[api], path=API_PATHS[each.api]))
    assert after is not None
    later = request_of(each, after)
    last = json.dumps(later.get("messages") or later.get("input"))
    assert '"call_1"' in last
    assert "rain" in last
    assert (
        following(
            CaseVariant(GatewayCase(name="a", user="b"), "chat", False), ask, SideExchange(body=CALLS["chat"])
        )
        is None
    )


def test_a_stored_response_is_continued_by_its_id() -> None:
    case = GatewayCase(name="stored", user="Remember 7.", continues="previous_response_id", then="It was 7.")
    each = CaseVariant(case, "responses", False)
    after = following(each, first(each, "m", ""), SideExchange(body={"id": "resp_1", "output": []}))
    assert after is not None
    request = request_of(each, after)
    assert request["previous_response_id"] == "resp_1"
    assert "Remember" not in json.dumps(request["input"])


def exchange(name: str = "chat/text/streamed", broken: str = "", **more: Any) -> SideExchange:
    exchange = SideExchange(
        {"model": "m", "stream": True},
        path="/v1/chat/completions",
        name=name,
        seen=(ReceivedRequest("chat", {"model": "m"}, ("done",)),),
        **more,
    )
    chunks = ((0.1, b'data: {"choi'), (0.2, b'ces": []}\n\ndata: [DO'), (0.5, b"NE]\n\n"))
    return exchange.answered(200, {"content-type": "text/event-stream"}, chunks, broken)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    exchanges = [exchange(), exchange("chat/leaves", left=True, broken="ReadError: gone")]
    recording.write(tmp_path, "http://a", "m", True, exchanges)
    index, read = recording.read(tmp_path)
    assert index.scripted
    assert list(read.values()) == exchanges
    assert (tmp_path / "chat-text-streamed.sse").read_bytes().endswith(b"data: [DONE]\n\n")
    answer = read["chat/text/streamed"]
    assert answer.done_mark
    assert answer.times == [0.2, 0.5]
    assert not list(recording.compare_recordings(read, read, content=True))


def test_a_recording_names_no_file_outside(tmp_path: Path) -> None:
    recording.write(tmp_path, "http://a", "m", True, [exchange()])
    index = tmp_path / recording.INDEX
    index.write_text(index.read_text().replace("chat-text-streamed.sse", "../secret"))
    with pytest.raises(UsageError, match="no name of a file"):
        recording.read(tmp_path)
    with pytest.raises(UsageError, match="no recording"):
        recording.read(tmp_path / "none")


def test_findings_of_one_kind_are_told_once() -> None:
    lost = rules.GW107.finding("$.usage", "{}", "nothing")
    added = rules.GW111.finding("$.provider")
    found = merge_findings([("chat/a", added), ("chat/a", lost), ("chat/b", lost), ("messages/a", lost)])
    assert [(each.finding.code, each.names) for each in found] == [
        ("GW107", ("chat/a", "chat/b")),
        ("GW107", ("messages/a",)),
        ("GW111", ("chat/a",)),
    ]
    assert counts(found)
    assert not counts(found[2:])


def test_samples_of_gateways_are_two_equal_answers() -> None:
    for name, sample in SAMPLES.items():
        if sample.kind == "through":
            left, right = sample.build()
            assert left == right, name
