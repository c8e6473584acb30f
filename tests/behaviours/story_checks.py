"""Checks that every story must pass on a server."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from requests import Response

from tests.apis import PATHS, Json, accumulated, error_message, said_by, thoughts_of
from tests.behaviours.stories import Story
from tests.body_and_stream import body_and_stream
from tests.chat_api import COMPARED
from tests.constraints import AS_JSON, PLAIN
from tests.messages_api import NO_STOP_SEQUENCE
from tests.prompts import Prompts, meaning_of
from vllm_harness._protocol import SSEEvent, parse_sse
from vllm_harness._scripted.book import Content, Raw, ScriptBook
from vllm_harness._scripted.dialects import render

ANSWER = "answer"
NO_THOUGHTS = "<think>\n\n</think>"
NOT_ECHOED = {
    "store": "vllm-33381",
    "stream": "no field of a response",
    "include": "no field of a response",
}
OF_THE_PROMPT = ("instructions", "reasoning")
"""Fields that a story's earlier requests must contain as well, because these fields change the prompt."""


@dataclass(frozen=True)
class StoryChecks:
    """Runs stories on a server and checks the answers.

    Attributes:
        prompts: the server, and the prompts that the template of its model family makes.
        check: returns the plugin's check with a given name (`check_body`, `check_stream`, `check_same`).
        without_known: whether to skip fields that the server does not echo because of a known defect.
    """

    prompts: Prompts
    check: Callable[[str], Callable[..., None]]
    without_known: bool = True

    def tell(self, story: Story) -> None:
        """Runs a story, and fails if anything is wrong with the answers.

        A good answer has status 200, a valid stream that matches the body, the scripted content, the prompt
        of the family's template, and the request's options; refused options must lead to an error about them.
        """
        server = self.prompts.server
        book = ScriptBook(server.endpoint, server.entry)
        try:
            request = self._last_request(story, book)
            if not story.refused:
                book.script(self._say(story), name=ANSWER, times=2, keep_prompt=True, constrained=True)
            streamed = {**request, "stream": True}
            body, stream = body_and_stream(
                lambda: self._post(story, request, book),
                lambda: self._post(story, streamed, book),
                exact=True,
            )
            if story.refused:
                self._check_refused(story, [body, stream])
            else:
                self._check_told(story, request, book, body, stream)
            book.verify()
        finally:
            book.close()

    def _check_refused(self, story: Story, answers: list[Response]) -> None:
        for answer in answers:
            assert answer.status_code == 400, f"HTTP {answer.status_code}: {answer.text[:500]}"
            message = error_message(answer)
            assert re.search(story.refused, message), f"{message!r} does not name {story.refused}"

    def _check_told(
        self, story: Story, request: Json, book: ScriptBook, body: Response, stream: Response
    ) -> None:
        streamed = {**request, "stream": True}
        for answer in (body, stream):
            assert answer.status_code == 200, f"HTTP {answer.status_code}: {answer.text[:500]}"
        events = list(parse_sse([stream.content]))
        self.check("check_body")(body.json(), api=story.api, request=request)
        self.check("check_stream")(events, api=story.api, request=streamed)
        self.check("check_same")(events, body.json(), ignore=_unlike(story, body.json()))
        for name, content in (("body", body.json()), ("stream", accumulated(story.api, stream))):
            _check_answer(story, name, content)
        self._check_prompts(story, book)
        self._check_echo(story, request, [body.json(), *_responses_in(story, events)])

    def _last_request(self, story: Story, book: ScriptBook) -> Json:
        """Returns the last request of the story, after sending those before it."""
        *earlier, (turns, _) = story.segments
        last = story.request(turns)
        previous: Json | None = None
        for added, says in earlier:
            book.script(meaning_of(says), constrained=True)
            request = story.request(added)
            fields = {key: request[key] for key in ("input", "tools", *OF_THE_PROMPT) if key in request}
            answer = self._post(story, _following(fields, previous), book)
            assert answer.status_code == 200, f"an earlier request: {answer.text[:500]}"
            previous = answer.json()
        return _following(last, previous)

    def _say(self, story: Story) -> Content:
        """Returns the model's answer.

        If the prompt has already closed the reasoning, the answer does not open it again. Harmony marks JSON.
        """
        entry = self.prompts.server.entry
        text = render(entry.dialect or "", meaning_of(story.says), constrained=True)
        if not entry.harmony:
            return Raw(text.removeprefix(NO_THOUGHTS) if story.effort == "none" else text)
        return Raw(text.replace(PLAIN, AS_JSON) if story.is_json else text)

    def _post(self, story: Story, request: Json, book: ScriptBook) -> Response:
        body = {"model": self.prompts.server.model, **request}
        return book.endpoint.post(PATHS[story.api], json=body)

    def _check_prompts(self, story: Story, book: ScriptBook) -> None:
        harmony = self.prompts.server.entry.harmony
        conversations = story.conversations(harmony=harmony)
        allowed = [prompt for conversation in conversations for prompt in self.prompts.rendered(conversation)]
        for prompt in book.prompts(ANSWER):
            assert prompt in allowed, f"the prompt: {self.prompts.difference(allowed[0], prompt)}"

    def _check_echo(self, story: Story, request: Json, responses: list[Json]) -> None:
        if story.api != "responses":
            return
        sent = {key: value for key, value in request.items() if key not in ("input", *NOT_ECHOED)}
        if self.without_known and (self.prompts.server.entry.harmony or story.tools):
            sent.pop("text", None)  # harmony-does-not-echo-text-format, text-is-not-echoed-beside-tools
        for response in responses:
            wrong = {
                key: response.get(key) for key, value in sent.items() if not _has(response.get(key), value)
            }
            assert not wrong, f"a response that is {response['status']} echoes {wrong}"


def _following(request: Json, previous: Json | None) -> Json:
    """Returns a copy of the request that continues the previous response."""
    if previous is None:
        return request
    request = {**copy.deepcopy(request), "previous_response_id": previous["id"]}
    calls = [item["call_id"] for item in previous["output"] if item["type"] == "function_call"]
    outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
    for call_id, output in zip(calls, outputs, strict=False):
        output["call_id"] = call_id
    return request


def _check_answer(story: Story, name: str, answer: Json) -> None:
    meaning = meaning_of(story.says)
    expected = meaning.text.strip(), [(call.name, call.arguments) for call in meaning.calls]
    assert said_by(story.api, answer) == expected, f"the {name} has other content than the script"
    assert thoughts_of(story.api, answer).strip() == meaning.reasoning.strip(), (
        f"the {name} has other reasoning than the script"
    )


def _unlike(story: Story, body: Json) -> tuple[str, ...]:
    """Returns fields that may differ: those checked elsewhere, and those omitted if null (vllm-56371)."""
    if story.api == "chat":
        return COMPARED
    return NO_STOP_SEQUENCE if story.api == "messages" and not body.get("stop_sequence") else ()


def _responses_in(story: Story, events: Sequence[SSEEvent]) -> list[Json]:
    """Returns the responses that the events of a stream contain."""
    if story.api != "responses":
        return []
    values = [json.loads(event.data) for event in events if event.data != "[DONE]"]
    return [value["response"] for value in values if "response" in value]


def _has(got: Any, sent: Any) -> bool:
    """Whether a value equals the one sent; an object may have additional keys."""
    if isinstance(sent, dict):
        return isinstance(got, dict) and all(_has(got.get(key), value) for key, value in sent.items())
    if isinstance(sent, list):
        return isinstance(got, list) and len(got) == len(sent) and all(map(_has, got, sent))
    return bool(got == sent)
