"""Script books on a server: conditions on conversations, quotes and cases, the log, replaced rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from typer.testing import CliRunner

from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from vllm_harness._errors import UsageError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import ScriptBook, When
from vllm_harness._scripted.book_check import check_book
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._scripted.suggestion import ANSWER
from vllm_harness._server.remote import RemoteServer
from vllm_harness.cli.main import app

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("gpt-oss", "qwen3")]

BOOK = """\
rules:
  - name: call
    when: {user: 'weather in (?P<city>.+)\\?', turn: 0, tools: [get_weather]}
    say: {reasoning: 'About ${city}.', calls: [{name: get_weather, arguments: {city: '${city}'}}]}
  - name: answer
    when:
      tool_result: {name: get_weather, arguments: '(?P<town>Paris|Rome)', output: '(?P<degrees>\\d+)'}
    say: {case: town, of: {Paris: '${degrees} degrees in Paris.', Rome: '${degrees} gradi.'}}
  - name: once
    when: {user: once}
    times: 1
    say: Only once.
"""


TRIP = Path(__file__).with_name("trip.yaml")


@contextmanager
def served(server: VllmServer, folder: Path, text: str = BOOK) -> Iterator[ScriptBook]:
    """Puts a book with a unique name on the server."""
    path = folder / "book.yaml"
    path.write_text(text)
    book = ScriptBook(server.endpoint, server.entry)
    book.replace(check_book(path, server.entry).usable(), str(path))
    yield book
    book.close()


def ask(client: OpenAI, model: str, text: str, **more: Any) -> str:
    """Returns the answer to one message."""
    chat = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)
    return (chat.choices[0].message.content or "").strip()


@pytest.mark.vllm_needs("responses", "tools")
@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_conversation(stream: bool, vllm_server: VllmServer, tmp_path: Path) -> None:
    """The call and its result are sent in two requests, and the rule has conditions on both."""
    with served(vllm_server, tmp_path) as book, book.client() as client:

        def respond(**request: Any) -> Any:
            answer = client.responses.create(
                model=vllm_server.model, tools=[RESPONSES_TOOL], **request, stream=stream
            )
            return list(answer)[-1].response if stream else answer

        first = respond(input="The weather in Paris?")
        (call,) = [item for item in first.output if item.type == "function_call"]
        assert json.loads(call.arguments) == {"city": "Paris"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "it is 18"}
        second = respond(input=[result], previous_response_id=first.id)
        assert second.output_text.strip() == "18 degrees in Paris."


@pytest.mark.vllm_model("qwen3")
def test_a_book_written_from_the_reference_alone(vllm_server: VllmServer, tmp_path: Path) -> None:
    outputs = {"get_weather": "sunny", "find_hotel": "Hotel Azul, 80 EUR"}
    tools: Any = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in outputs]
    history: list[Any] = [{"role": "user", "content": "Plan me a weekend in Lisbon"}]
    with served(vllm_server, tmp_path, TRIP.read_text()) as book, book.client() as client:

        def respond() -> Any:
            answer = client.responses.create(model=vllm_server.model, input=history, tools=tools)
            history.extend(item.model_dump(exclude_none=True) for item in answer.output)
            return answer

        calls = [item for item in respond().output if item.type == "function_call"]
        assert [(call.name, json.loads(call.arguments)["city"]) for call in calls] == [
            ("get_weather", "Lisbon"),
            ("find_hotel", "Lisbon"),
        ]
        history.extend(
            {"type": "function_call_output", "call_id": call.call_id, "output": outputs[call.name]}
            for call in calls
        )
        assert respond().output_text.strip() == "It will be sunny. Hotel Azul is free. Shall I book it?"
        history.append({"role": "user", "content": "Yes, please"})
        assert respond().output_text.strip() == "Done. Have a good time."


@pytest.mark.vllm_model("qwen3")
def test_a_limit_truncates_every_choice(vllm_server: VllmServer, tmp_path: Path) -> None:
    book_text = "rules: [{limit: 4, say: One and two and three and four and five.}]"
    with served(vllm_server, tmp_path, book_text) as book, book.client() as client:
        chat = client.chat.completions.create(
            model=vllm_server.model, messages=[{"role": "user", "content": "Count."}], n=2
        )
        assert [choice.finish_reason for choice in chat.choices] == ["length", "length"]
        assert chat.usage
        assert chat.usage.completion_tokens == 8
        assert len({choice.message.content for choice in chat.choices}) == 1
        answer = client.responses.create(model=vllm_server.model, input="Count.")
        assert answer.status == "incomplete"
        assert answer.usage
        assert answer.usage.output_tokens == 4


@pytest.mark.vllm_needs("tools")
def test_a_quote_is_escaped_in_its_place(vllm_server: VllmServer, tmp_path: Path) -> None:
    city = 'Val-d\'Or "x" \\ {y} <z> 東京'
    with served(vllm_server, tmp_path) as book, book.client() as client:
        chat = client.chat.completions.create(
            model=vllm_server.model,
            messages=[{"role": "user", "content": f"The weather in {city}?"}],
            tools=[CHAT_TOOL],
        )
        (call,) = chat.choices[0].message.tool_calls or []
        assert json.loads(call.function.arguments) == {"city": city}
        marker = "<|end|>" if vllm_server.entry.harmony else "<|im_end|>"
        with pytest.raises(openai.BadRequestError, match="a marker of the model's format"):
            ask(client, vllm_server.model, f"The weather in {marker}?", tools=[CHAT_TOOL])


def test_the_refusal_names_the_nearest_rule_and_the_log_has_it(
    vllm_server: VllmServer, tmp_path: Path
) -> None:
    with served(vllm_server, tmp_path) as book, book.client() as client:
        before = max((entry["number"] for entry in book.answered()), default=0)
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, vllm_server.model, "The weather in Rome?")
        assert "no script matches this request" in caught.value.message
        assert (
            "the nearest rule is 'call' (book.yaml:2), which has tools: [\"get_weather\"]"
            in caught.value.message
        )
        assert ask(client, vllm_server.model, "once") == "Only once."
        with pytest.raises(openai.BadRequestError, match="which has times: 1"):
            ask(client, vllm_server.model, "once")
        book.reset()
        assert ask(client, vllm_server.model, "once") == "Only once."
        entries = [entry for entry in book.answered(before) if entry["book"] == book.name]
        assert [(entry["script"], entry["status"]) for entry in entries] == [
            (None, 400),
            ("once", 200),
            (None, 400),
            ("once", 200),
        ]
        assert entries[0]["body"]["messages"] == [{"role": "user", "content": "The weather in Rome?"}]
        later = book.answered(entries[-1]["number"])
        assert [entry for entry in later if entry["book"] == book.name] == []


@pytest.mark.vllm_alone
def test_the_commands_find_the_server(vllm_server: VllmServer, tmp_path: Path) -> None:
    """A request without a rule fails and suggests a rule; with that rule it is answered."""
    assert isinstance(vllm_server, RemoteServer)
    port = str(vllm_server.port)

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["book", *words, "--server", port])
        assert result.exit_code == 0, result.exception
        return result.output

    with served(vllm_server, tmp_path) as book, book.client() as client:
        with pytest.raises(openai.BadRequestError):
            ask(client, vllm_server.model, "What is (1 + 1)?")
        number = str(book.answered()[-1]["number"])
        logged = run("log", "--last", "1", "--json")
        assert json.loads(logged)["number"] == int(number)
        assert f"#{number}  chat  {book.name}: no rule  400: the nearest rule is 'answer'" in run(
            "log", "--last", "1"
        )
        path = tmp_path / "book.yaml"
        path.write_text(BOOK + run("suggest", number))
        assert run("reload", "--book-name", book.name).startswith(f"4 rules of {path}, in ")
        assert ask(client, vllm_server.model, "What is (1 + 1)?") == ANSWER
        assert ask(client, vllm_server.model, "once") == "Only once."
        run("reset", "--book-name", book.name)
        assert ask(client, vllm_server.model, "once") == "Only once."


def test_rules_are_replaced(vllm_server: VllmServer, tmp_path: Path) -> None:
    with served(vllm_server, tmp_path) as book, book.client() as client:
        (tmp_path / "other.yaml").write_text("rules:\n  - {name: new, say: New.}\n")
        book.replace(check_book(tmp_path / "other.yaml", vllm_server.entry).usable())
        assert ask(client, vllm_server.model, "once") == "New."


def test_ids_outside_the_vocabulary_are_refused(vllm_server: VllmServer) -> None:
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    with pytest.raises(UsageError, match="999999999 is not a token id of"):
        book.script([1, 999999999])
    assert vllm_server.endpoint.get("/health", timeout=60).ok


def test_rules_may_depend_on_headers(vllm_server: VllmServer) -> None:
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    book.script("for a", when=When(header={"X-Session": "^a$"}, stream=False), times=None)
    book.script("for others", times=None)
    with book.client() as client:
        assert ask(client, vllm_server.model, "hi", extra_headers={"x-session": "a"}) == "for a"
        assert ask(client, vllm_server.model, "hi", extra_headers={"x-session": "b"}) == "for others"
    book.close()


def test_control_requests_are_not_in_the_access_log(vllm_server: VllmServer) -> None:
    assert isinstance(vllm_server, RemoteServer)
    vllm_server.book("asked").answered()
    assert names.LOG_PATH not in vllm_server.log_path.read_text()
