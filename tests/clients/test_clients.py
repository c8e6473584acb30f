"""Unmodified third-party clients on a real vLLM: their stream helpers, tool loops and structured answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.choice import seed_of_today
from tests.clients.conftest import CLIENTS, See, Seen
from tests.clients.drawn import drawn
from vllm_harness._exchange.server import VllmServer

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("tools")]

HOTEL = {"city": "Paris", "stars": 4, "wishes": ["très calme", "静かな部屋", 'a "view"']}
LOOP = {
    "calls": [["get_weather", {"city": "Paris"}], ["find_hotel", HOTEL]],
    "reasoning": ["I need the weather first.", "Mild, so now a hotel.", "I have both."],
    "text": "Paris has 18 degrees; stay at the Hôtel du Nord ✨.",
}
PARALLEL = {
    "calls": [["get_weather", {"city": "Paris"}], ["get_weather", {"city": "Rome"}]],
    "reasoning": ["Two cities.", "I have both."],
    "text": "Both have 18 degrees.",
}
PLACE = {"city": "Paris", "stars": 4}
JOB = {
    "texts": ["", "", "Job job-7 is done.", "", "Job job-7 is archived.", "The job was refused."],
    "calls": [
        [["start_job", {"kind": "nightly"}]],
        [["check_job", {"job": "job-7"}]],
        [],
        [["check_job", {"job": "job-7"}]],
        [],
        [],
    ],
}
# LangChain ignores `reasoning` in Chat Completions (langchain#35059), and reads only summaries in Responses
SHOWS_NO_REASONING = {"langchain"}
NAMED_COMPLETED = pytest.mark.vllm_known_defect("vllm-45386")
BLANKS = pytest.mark.vllm_known_defect("blank-lines-before-a-call-are-streamed", models=["qwen3"])


# clients whose final text joins all turns or includes the text before a call
BLANKS_SHOWN = {"pydantic-ai-responses": BLANKS, "openai-node-chat": BLANKS}


DRAWN = drawn(CLIENTS, seed_of_today())


def marks_of(client: str, api: str) -> list[pytest.MarkDecorator]:
    """Returns markers for a client's tests on an API; tests of pairs that are not drawn are slow."""
    needs = pytest.mark.vllm_needs(api)
    return [needs] if (client, api) in DRAWN else [needs, pytest.mark.vllm_slow]


def clients_with(case: str, marks: Mapping[str, pytest.MarkDecorator] = {}) -> pytest.MarkDecorator:
    """Parametrizes a test with each client and API that runs the case; `marks` adds markers to some."""
    params = [
        pytest.param(
            name,
            api,
            marks=[
                *marks_of(name, api),
                *(marks[key] for key in (api, f"{name}-{api}") if key in marks),
            ],
            id=f"{name}-{api}",
        )
        for name, client in CLIENTS.items()
        for api, cases in client.cases.items()
        if case in cases
    ]
    return pytest.mark.parametrize(("client", "api"), params)


def check_loop(seen: Seen, wanted: dict[str, Any], *, shows_reasoning: bool) -> None:
    """Checks that a tool loop has the scripted calls, texts and token counts, in bodies and streams."""
    for loop in (seen.body, seen.stream):
        assert loop["calls"] == wanted["calls"]
        thoughts = [thought.strip() for thought in loop["reasoning"] if thought]
        assert thoughts == (wanted["reasoning"] if shows_reasoning else [])
        assert loop["text"].strip() == wanted["text"]
        assert loop["shown"] == loop["text"]
        assert loop["output_tokens"] == seen.tokens


def reasons(server: VllmServer, client: str) -> bool:
    """Whether the model supports reasoning and the client returns it."""
    return "reasoning" in server.entry.capabilities and client not in SHOWS_NO_REASONING


@pytest.mark.covers("AG-001", "AG-003", "AG-006", "LS-035", "vllm-22403")
@clients_with("loop", BLANKS_SHOWN)
def test_tool_loop(client: str, api: str, vllm_server: VllmServer, see: See) -> None:
    """The model makes a call, then a second call that uses the first output, and then answers."""
    check_loop(see(client, api, "loop"), LOOP, shows_reasoning=reasons(vllm_server, client))


@pytest.mark.covers("vllm-36445")
@pytest.mark.parametrize(
    ("api", "mode"),
    [
        pytest.param(api, mode, marks=[*marks_of("openai-agents", api), *marks])
        for api in ("responses", "chat")
        for mode, marks in {"body": [], "stream": [BLANKS]}.items()
    ],
)
def test_no_message_beside_calls(api: str, mode: str, see: See) -> None:
    """The agent outputs the final answer, and no blank message before a call."""
    seen = getattr(see("openai-agents", api, "loop"), mode)
    assert [message.strip() for message in seen["messages"]] == [LOOP["text"]]


@pytest.mark.covers("AG-004")
@pytest.mark.vllm_needs("parallel_tools")
@clients_with("parallel", BLANKS_SHOWN)
def test_parallel_calls(client: str, api: str, vllm_server: VllmServer, see: See) -> None:
    """The model makes two calls in one turn; the client sends their outputs back together."""
    check_loop(see(client, api, "parallel"), PARALLEL, shows_reasoning=reasons(vllm_server, client))


@pytest.mark.vllm_needs("structured_output")
@clients_with("structured")
def test_structured_output(client: str, api: str, see: See) -> None:
    """A JSON schema constrains the answer, and the client parses it into a typed object."""
    seen = see(client, api, "structured")
    assert [seen.body, seen.stream] == [PLACE, PLACE]


@clients_with("structured_by_tool")
def test_structured_output_by_required_tool(client: str, api: str, see: See) -> None:
    """The client gets the answer from a forced call to an output tool (pydantic-ai#224, pydantic-ai#728)."""
    seen = see(client, api, "structured_by_tool")
    assert [seen.body, seen.stream] == [PLACE, PLACE]


@pytest.mark.covers("AG-002")
@clients_with("choices")
def test_tool_choice(client: str, api: str, see: See) -> None:
    """Each tool_choice works in bodies and in streams, which the clients read with their stream helpers."""
    seen = see(client, api, "choices")
    cities = {"auto": "Paris", "required": "Rome", "named": "Oslo"}
    # as in OpenAI's API, a completion with a named call has the finish reason `stop`
    finish = {"auto": "tool_calls", "required": "tool_calls", "named": "stop", "none": "stop"}
    ended = finish if api == "chat" else dict.fromkeys(finish, "completed")
    for result in (seen.body, seen.stream):
        for choice, city in cities.items():
            status, calls, text = result[choice]
            assert (status, calls) == (ended[choice], [["get_weather", {"city": city}]]), choice
            assert not text.strip(), choice
        status, calls, text = result["none"]
        assert (status, calls, text.strip()) == (ended["none"], [], "Look out of the window.")


@pytest.mark.covers("AG-004")
@pytest.mark.vllm_needs("store")
@clients_with("stateful")
def test_conversation_kept_by_the_server(client: str, api: str, see: See) -> None:
    """Five stored turns work, three of them with only tool outputs; two of them follow the first turn."""
    seen = see(client, api, "stateful")
    for result in (seen.body, seen.stream):
        assert [text.strip() for text in result["texts"]] == JOB["texts"]
        assert result["calls"] == JOB["calls"]


@pytest.mark.covers("AG-005")
@clients_with("cut", {"responses": NAMED_COMPLETED})
def test_answer_over_its_limit(client: str, api: str, see: See) -> None:
    """The client reports that an answer was truncated, both for a body and for a stream."""
    seen = see(client, api, "cut")
    ended = ["response.incomplete", "max_output_tokens"] if api == "responses" else ["length", 12]
    assert [seen.body, seen.stream] == [ended, ended]
