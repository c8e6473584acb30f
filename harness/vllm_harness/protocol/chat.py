"""Chat Completions: the grammar of a chunk stream, and the shape of a body.

Sources: the openai SDK's types (`openai.types.chat`), https://platform.openai.com/docs/api-reference/chat/streaming.
"""

from __future__ import annotations

from typing import Any

from vllm_harness.protocol import schema
from vllm_harness.protocol.findings import ABSENT, Report, Severity, brief
from vllm_harness.protocol.items import check_chat_usage, check_fields, is_json_object

Chunk = dict[str, Any]

_NODE_COST = 256
_MAX_INDEX = 4096
# what a delta can carry besides its role
_CONTENT_KEYS = ("content", "refusal", "tool_calls", "function_call", *schema.REASONING_KEYS)


class _Call:
    """One tool call as its deltas build it."""

    __slots__ = ("arguments", "id", "name", "type")

    def __init__(self, delta: Chunk) -> None:
        self.id = delta.get("id")
        self.type = delta.get("type")
        body = delta.get(str(self.type))
        self.name = body.get("name") if isinstance(body, dict) else None
        self.arguments: list[str] = []


class _Choice:
    __slots__ = ("calls", "finish", "role", "said_content")

    def __init__(self) -> None:
        self.role: object = None
        self.finish: str | None = None
        self.calls: list[_Call] = []
        self.said_content = False


class ChatValidator:
    """Checks one Chat Completions stream.

    Args:
        report: where findings go.
        request: the request body, when it is known; more can be checked then.
        max_held: characters of arguments kept; beyond it they are no longer checked.
    """

    def __init__(self, report: Report, *, request: Chunk | None = None, max_held: int) -> None:
        self._report = report
        self._request = request or {}
        self._asked = request is not None
        self._left = max_held
        self._first: Chunk | None = None
        self._choices: dict[int, _Choice] = {}
        self._usage_seen = False
        self._failed = False

    def feed(self, chunk: Chunk) -> None:
        """Takes the next chunk."""
        report = self._report
        if "error" in chunk and "choices" not in chunk:
            self._failed = True
            report.add(
                "CC130", "the server reports an error in the stream", "$.error", got=brief(chunk["error"])
            )
            return
        for key, types in schema.CHUNK_FIELDS:
            if type(chunk.get(key, ABSENT)) not in types:
                self._bad_field(chunk, "$", key, types)
        if "prompt_filter_results" not in chunk:
            self._check_stable(chunk)
        if self._usage_seen:
            report.add(
                "CC112",
                "a chunk after the usage chunk",
                "$",
                "nothing",
                brief(chunk.get("choices")),
                once="usage",
            )
        choices = chunk.get("choices")
        choices = choices if isinstance(choices, list) else []
        for number, choice in enumerate(choices):
            if isinstance(choice, dict):
                self._on_choice(choice, f"$.choices[{number}]")
            else:
                report.add(
                    "CC122",
                    "a choice is not an object",
                    f"$.choices[{number}]",
                    "object",
                    brief(choice),
                    once="choice",
                )
        usage = chunk.get("usage")
        if usage is not None:
            self._on_usage(usage, choices)
        elif not choices and "prompt_filter_results" not in chunk:
            report.add(
                "CC113", "a chunk with neither choices nor usage", "$.choices", "a choice or usage", "[]"
            )

    def close(self) -> None:
        """Ends the stream."""
        report = self._report
        if self._first is None and not self._failed:
            report.add("CC123", "the stream has no chunks", expected="a chunk", got="nothing")
        if self._failed or self._first is None:
            return
        if not self._choices:
            report.add(
                "CC104",
                "the stream ends without a choice",
                "$.choices",
                "a choice with a finish_reason",
                "nothing",
            )
        for index, choice in self._choices.items():
            if choice.finish is None:
                report.add(
                    "CC104",
                    f"choice {index} has no finish_reason: the stream was cut",
                    "$.choices[0].finish_reason",
                    "a finish_reason",
                    "the end",
                )
        wanted = self._request.get("n") or 1
        if self._asked and isinstance(wanted, int) and len(self._choices) != wanted:
            report.add(
                "CC110",
                "the stream has not as many choices as were asked for",
                "$.choices",
                f"{wanted} choices",
                f"{len(self._choices)} choices",
            )
        elif sorted(self._choices) != list(range(len(self._choices))):
            report.add(
                "CC110",
                "the indices of the choices are not 0, 1, 2",
                "$.choices",
                "0, 1, 2",
                brief(sorted(self._choices)[:10]),
            )
        options = self._request.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") and not self._usage_seen:
            report.add(
                "CC108",
                "usage was asked for and is not in the stream",
                "$.usage",
                "a last chunk with usage",
                "nothing",
            )

    def _bad_field(self, value: Chunk, path: str, key: str, types: schema.Types) -> None:
        got = value.get(key, ABSENT)
        code, message = (
            ("CC121", f"required field {key!r} is missing")
            if got is ABSENT
            else ("CC122", f"field {key!r} has the wrong type")
        )
        self._report.add(
            code, message, f"{path}.{key}", " or ".join(t.__name__ for t in types), brief(got), once=key
        )

    def _check_stable(self, chunk: Chunk) -> None:
        first = self._first
        if first is None:
            self._first = chunk
            if chunk.get("object", "chat.completion.chunk") != "chat.completion.chunk":
                self._report.add(
                    "CC124",
                    "object is not a chunk",
                    "$.object",
                    '"chat.completion.chunk"',
                    brief(chunk["object"]),
                )
            return
        if chunk.get("id") != first.get("id"):
            self._report.add(
                "CC119",
                "id of the completion changes",
                "$.id",
                brief(first.get("id")),
                brief(chunk.get("id")),
                once="id",
            )
        for key in schema.STABLE_CHUNK_FIELDS:
            if chunk.get(key) != first.get(key):
                self._report.add(
                    "CC120",
                    f"{key} changes",
                    f"$.{key}",
                    brief(first.get(key)),
                    brief(chunk.get(key)),
                    once=key,
                )

    def _on_usage(self, usage: object, choices: list[object]) -> None:
        options = self._request.get("stream_options")
        options = options if isinstance(options, dict) else {}
        continuous = options.get("continuous_usage_stats")
        if choices and not continuous:
            self._report.add(
                "CC111",
                "usage comes in a chunk that has choices",
                "$.choices",
                "[]",
                f"{len(choices)} choices",
                once="usage",
            )
        if self._asked and not options.get("include_usage"):
            self._report.add(
                "CC109", "usage was not asked for", "$.usage", "nothing", brief(usage), once="usage"
            )
        self._usage_seen = not choices
        check_chat_usage(self._report, usage, "$.usage")

    def _on_choice(self, value: Chunk, path: str) -> None:
        report = self._report
        index, delta = value.get("index"), value.get("delta")
        if type(index) is not int:
            report.add(
                "CC122",
                "index of a choice is not an integer",
                f"{path}.index",
                "integer",
                brief(value.get("index", ABSENT)),
                once="index",
            )
            return
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= _MAX_INDEX:
                return
            choice = self._choices[index] = _Choice()
        finish = value.get("finish_reason")
        if not isinstance(delta, dict):
            report.add(
                "CC122",
                "a choice has no delta",
                f"{path}.delta",
                "object",
                brief(value.get("delta", ABSENT)),
                once="delta",
            )
            delta = {}
        if choice.finish is not None and (finish is not None or any(delta.get(key) for key in _CONTENT_KEYS)):
            report.add(
                "CC103",
                f"choice {index} goes on after its finish_reason",
                path,
                "nothing",
                brief(delta),
                once=index,
            )
            return
        self._on_delta(choice, index, delta, f"{path}.delta")
        if finish is not None:
            self._on_finish(choice, finish, f"{path}.finish_reason", index)

    def _on_delta(self, choice: _Choice, index: int, delta: Chunk, path: str) -> None:
        report = self._report
        role = delta.get("role")
        if choice.role is None:
            if role != "assistant" and (delta or choice.role is None):
                report.add(
                    "CC101",
                    f"the first delta of choice {index} has no role",
                    f"{path}.role",
                    '"assistant"',
                    brief(delta.get("role", ABSENT)),
                    once=index,
                )
            choice.role = role or "assistant"
        elif role is not None:
            code = "CC102" if role == choice.role else "CC105"
            report.add(code, "the role comes again", f"{path}.role", "nothing", brief(role), once=index)
        for key in ("content", "refusal", *schema.REASONING_KEYS):
            text = delta.get(key)
            if text is None:
                continue
            if type(text) is not str:
                report.add(
                    "CC122",
                    f"{key} is not a string",
                    f"{path}.{key}",
                    "string or null",
                    brief(text),
                    once=key,
                )
            elif key == "content":
                choice.said_content = choice.said_content or bool(text)
            elif text and choice.said_content and key != "refusal":
                report.add(
                    "CC131",
                    "reasoning after content",
                    f"{path}.{key}",
                    "reasoning first",
                    brief(text),
                    once=index,
                )
        calls = delta.get("tool_calls")
        if calls is None:
            return
        if not isinstance(calls, list):
            report.add(
                "CC122",
                "tool_calls is not an array",
                f"{path}.tool_calls",
                "array",
                brief(calls),
                once="tool_calls",
            )
        elif not calls:
            report.add(
                "CC209",
                "an empty list of tool calls",
                f"{path}.tool_calls",
                "no such field",
                "[]",
                once=index,
            )
        else:
            for number, call in enumerate(calls):
                self._on_call(choice, call, f"{path}.tool_calls[{number}]")

    def _on_call(self, choice: _Choice, delta: object, path: str) -> None:
        report = self._report
        if not isinstance(delta, dict):
            report.add("CC122", "a tool call is not an object", path, "object", brief(delta), once="call")
            return
        index = delta.get("index")
        if type(index) is not int:
            report.add(
                "CC201",
                "a tool call delta has no index",
                f"{path}.index",
                "integer",
                brief(delta.get("index", ABSENT)),
                once=len(choice.calls),
            )
            return
        calls = choice.calls
        if index == len(calls) and index < _MAX_INDEX:
            call = _Call(delta)
            calls.append(call)
            self._check_new_call(choice, call, path)
            self._left -= _NODE_COST
        elif not 0 <= index < len(calls):
            report.add(
                "CC202",
                "index of the tool call is not the next one",
                f"{path}.index",
                f"0 to {len(calls)}",
                str(index),
                once=index,
            )
            return
        else:
            call = calls[index]
            self._check_repeats(call, delta, path)
            if index < len(calls) - 1:
                report.add(
                    "CC208",
                    "a delta for an earlier tool call",
                    f"{path}.index",
                    str(len(calls) - 1),
                    str(index),
                    once=index,
                )
        self._take_arguments(call, delta, path)

    def _check_new_call(self, choice: _Choice, call: _Call, path: str) -> None:
        for key, value in (("id", call.id), ("type", call.type), ("name", call.name)):
            if not isinstance(value, str) or not value:
                place = f"{path}.{call.type}.name" if key == "name" else f"{path}.{key}"
                self._report.add(
                    "CC203",
                    f"the first delta of a tool call has no {key}",
                    place,
                    "a non-empty string",
                    brief(value),
                )
        if call.id and any(call.id == other.id for other in choice.calls if other is not call):
            self._report.add(
                "CC207",
                "id repeats that of another tool call",
                f"{path}.id",
                "an id of its own",
                brief(call.id),
            )

    def _check_repeats(self, call: _Call, delta: Chunk, path: str) -> None:
        body = delta.get(str(call.type))
        name = body.get("name") if isinstance(body, dict) else None
        for key, before, again in (
            ("id", call.id, delta.get("id")),
            ("type", call.type, delta.get("type")),
            ("name", call.name, name),
        ):
            if again is None:
                continue
            code = "CC205" if again == before else "CC204"
            message = (
                f"{key} of the tool call comes again"
                if again == before
                else f"{key} of the tool call changes"
            )
            self._report.add(
                code,
                message,
                f"{path}.{key}",
                "nothing" if again == before else brief(before),
                brief(again),
                once=(id(call), key),
            )

    def _take_arguments(self, call: _Call, delta: Chunk, path: str) -> None:
        body = delta.get(str(call.type))
        if not isinstance(body, dict):
            return
        key = "input" if call.type == "custom" else "arguments"
        piece = body.get(key)
        if isinstance(piece, str):
            self._left -= len(piece)
            if self._left >= 0:
                call.arguments.append(piece)
            else:
                self._report.add(
                    "SE110",
                    "the stream is too large to be held; from here on arguments are not checked",
                    once="limit",
                )
        elif piece is not None:
            self._report.add(
                "CC122",
                f"{key} is not a string",
                f"{path}.{call.type}.{key}",
                "string",
                brief(piece),
                once=key,
            )

    def _on_finish(self, choice: _Choice, finish: object, path: str, index: int) -> None:
        if not isinstance(finish, str) or finish not in schema.FINISH_REASONS:
            self._report.add(
                "CC106",
                "finish_reason is not one of the API's",
                path,
                " or ".join(sorted(schema.FINISH_REASONS)),
                brief(finish),
                once=index,
            )
        choice.finish = str(finish)
        check_finish(
            self._report, choice.finish, bool(choice.calls), self._request if self._asked else None, path
        )
        if self._left < 0 or finish in ("length", "content_filter"):
            return
        for number, call in enumerate(choice.calls):
            if call.type == "function" and not is_json_object("".join(call.arguments)):
                self._report.add(
                    "CC206",
                    f"the arguments of tool call {number} are not a JSON object",
                    path,
                    "a JSON object",
                    brief("".join(call.arguments)),
                )


def check_finish(report: Report, finish: str, called: bool, request: Chunk | None, path: str) -> None:
    """`tool_calls` with calls and only with calls; a forced function may end with `stop`."""
    if finish == "tool_calls" and not called:
        report.add(
            "CC107", "finish_reason is tool_calls and there is no tool call", path, '"stop"', '"tool_calls"'
        )
    elif finish == "stop" and called:
        choice = request.get("tool_choice", "auto") if request is not None else None
        severity = Severity.ERROR if choice in ("auto", None) and request is not None else Severity.INFO
        if not isinstance(choice, dict):
            report.add(
                "CC114",
                "finish_reason is stop and there are tool calls",
                path,
                '"tool_calls"',
                '"stop"',
                severity,
            )


def check_completion(report: Report, body: Chunk, request: Chunk | None) -> None:
    """A Chat Completions body."""
    check_fields(report, body, schema.COMPLETION_FIELDS, "$", "CB101", "CB102")
    if body.get("object", "chat.completion") != "chat.completion":
        report.add(
            "CB103", "object is not a completion", "$.object", '"chat.completion"', brief(body["object"])
        )
    if body.get("usage") is None:
        report.add(
            "CB104", "the completion has no usage", "$.usage", "object", brief(body.get("usage", ABSENT))
        )
    else:
        check_chat_usage(report, body["usage"], "$.usage")
    choices = body.get("choices")
    if not isinstance(choices, list):
        return
    wanted = (request or {}).get("n") or 1
    if not choices or (request is not None and len(choices) != wanted):
        report.add(
            "CB105",
            "the completion has not as many choices as were asked for",
            "$.choices",
            str(wanted),
            str(len(choices)),
        )
    for number, choice in enumerate(choices):
        if isinstance(choice, dict):
            _check_body_choice(report, choice, number, request)
        else:
            report.add("CB102", "a choice is not an object", f"$.choices[{number}]", "object", brief(choice))


def _check_body_choice(report: Report, choice: Chunk, number: int, request: Chunk | None) -> None:
    path = f"$.choices[{number}]"
    check_fields(
        report,
        choice,
        (("index", schema.INT), ("message", schema.DICT), ("finish_reason", schema.STR)),
        path,
        "CB101",
        "CB102",
    )
    if choice.get("index", number) != number:
        report.add(
            "CB106",
            "index of the choice is not its place",
            f"{path}.index",
            str(number),
            brief(choice["index"]),
        )
    finish, message = choice.get("finish_reason"), choice.get("message")
    if isinstance(finish, str) and finish not in schema.FINISH_REASONS:
        report.add(
            "CB107",
            "finish_reason is not one of the API's",
            f"{path}.finish_reason",
            " or ".join(sorted(schema.FINISH_REASONS)),
            brief(finish),
        )
    if not isinstance(message, dict):
        return
    path = f"{path}.message"
    if message.get("role") != "assistant":
        report.add(
            "CB108",
            "role of the message is not assistant",
            f"{path}.role",
            '"assistant"',
            brief(message.get("role", ABSENT)),
        )
    if "content" not in message:
        report.add(
            "CB101", "required field 'content' is missing", f"{path}.content", "string or null", "nothing"
        )
    for key in ("content", "refusal", *schema.REASONING_KEYS):
        if not isinstance(message.get(key), (str, schema.NULL)):
            report.add(
                "CB102", f"{key} is not a string", f"{path}.{key}", "string or null", brief(message[key])
            )
    calls = message.get("tool_calls")
    if calls == []:
        report.add(
            "CB109",
            "a message without tool calls has the field",
            f"{path}.tool_calls",
            "no such field",
            brief(calls),
        )
    calls = calls if isinstance(calls, list) else []
    if isinstance(finish, str):
        check_finish(report, finish, bool(calls), request, f"$.choices[{number}].finish_reason")
    _check_body_calls(report, calls, finish, f"{path}.tool_calls")
    if not calls and not any(
        message.get(key) is not None
        for key in ("content", "refusal", "audio", "function_call", *schema.REASONING_KEYS)
    ):
        report.add(
            "CB110",
            "the message says nothing: no content, no reasoning, no call",
            path,
            "some content",
            brief(message),
        )


def _check_body_calls(report: Report, calls: list[object], finish: object, path: str) -> None:
    seen: dict[str, int] = {}
    for number, call in enumerate(calls):
        place = f"{path}[{number}]"
        if not isinstance(call, dict):
            report.add("CB102", "a tool call is not an object", place, "object", brief(call))
            continue
        check_fields(report, call, (("id", schema.STR), ("type", schema.STR)), place, "CB111", "CB111")
        identifier = call.get("id")
        if isinstance(identifier, str) and seen.setdefault(identifier, number) != number:
            report.add(
                "CB112",
                f"id repeats that of tool call {seen[identifier]}",
                f"{place}.id",
                "an id of its own",
                brief(identifier),
            )
        body = call.get("function")
        if call.get("type") != "function":
            continue
        if not isinstance(body, dict):
            report.add("CB111", "a function call has no function", f"{place}.function", "object", brief(body))
            continue
        check_fields(
            report,
            body,
            (("name", schema.STR), ("arguments", schema.STR)),
            f"{place}.function",
            "CB111",
            "CB111",
        )
        arguments = body.get("arguments")
        if isinstance(arguments, str) and finish != "length" and not is_json_object(arguments):
            report.add(
                "CB113",
                "the arguments are not a JSON object",
                f"{place}.function.arguments",
                "a JSON object",
                brief(arguments),
            )
