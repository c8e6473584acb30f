"""The checks of a Chat Completions stream.

Sources: the openai SDK's types (`openai.types.chat`),
https://platform.openai.com/docs/api-reference/chat/streaming.
"""

from __future__ import annotations

from vllm_harness._protocol.chat import schema
from vllm_harness._protocol.chat import stream_rules as rules
from vllm_harness._protocol.chat.objects import check_finish, check_usage
from vllm_harness._protocol.core.events import REASONING_KEYS, Json
from vllm_harness._protocol.core.fields import is_json_object, type_names
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rules import SE110

_NODE_COST = 256
_MAX_INDEX = 4096
_STABLE_FIELDS = ("created", "model", "object")
# What a delta can carry besides its role.
_CONTENT_KEYS = (*schema.TEXT_KEYS, "tool_calls", "function_call")


class _StreamedCall:
    """A tool call, built from its deltas."""

    __slots__ = ("arguments", "id", "name", "type")

    def __init__(self, delta: Json) -> None:
        self.id = delta.get("id")
        self.type = delta.get("type")
        body = delta.get(str(self.type))
        self.name = body.get("name") if isinstance(body, dict) else None
        self.arguments: list[str] = []


class _StreamedChoice:
    """A choice, built from its deltas."""

    __slots__ = ("calls", "finish", "has_content", "index", "role")

    def __init__(self, index: int) -> None:
        self.index = index
        self.role: object = None
        self.finish: str | None = None
        self.calls: list[_StreamedCall] = []
        self.has_content = False


class ChatValidator:
    """Checks one Chat Completions stream.

    Args:
        report: collects the findings.
        request: the request body, if known, which allows further checks.
        max_held: the maximum number of characters of arguments to keep; the rest is not checked.
    """

    def __init__(self, report: Report, *, request: Json | None = None, max_held: int) -> None:
        self._report = report
        self._request = request
        self._left = max_held
        self._first: Json | None = None
        self._choices: dict[int, _StreamedChoice] = {}
        self._usage_seen = False
        self._usage_elsewhere = False
        self._failed = False

    def feed(self, chunk: Json) -> None:
        """Checks the next chunk."""
        report = self._report
        if "error" in chunk and "choices" not in chunk:
            self._failed = True
            report.add(rules.CC130, "$.error", actual=brief(chunk["error"]))
            return
        self._check_fields(chunk)
        if "prompt_filter_results" not in chunk:
            self._check_stable(chunk)
        if self._usage_seen:
            report.add(rules.CC112, "$", "nothing", brief(chunk.get("choices")), once="usage")
        value = chunk.get("choices")
        choices = value if isinstance(value, list) else []
        for number, choice in enumerate(choices):
            self._on_choice(choice, number)
        usage = chunk.get("usage")
        if usage is not None:
            self._on_usage(usage, choices)
        elif not choices and "prompt_filter_results" not in chunk:
            report.add(rules.CC113, "$.choices", "a choice or usage", "[]")

    def close(self) -> None:
        """Checks the end of the stream."""
        if self._failed:
            return
        if self._first is None:
            self._report.add(rules.CC123, expected="a chunk", actual="nothing")
            return
        self._check_ends()
        self._check_choices()
        if self._options.get("include_usage") and not (self._usage_seen or self._usage_elsewhere):
            self._report.add(rules.CC108, "$.usage", "a last chunk with usage", "nothing")

    @property
    def _options(self) -> Json:
        """The stream_options of the request."""
        options = (self._request or {}).get("stream_options")
        return options if isinstance(options, dict) else {}

    def _check_fields(self, chunk: Json) -> None:
        for key, types in schema.COMPLETION_FIELDS:
            actual = chunk.get(key, ABSENT)
            if type(actual) not in types:
                rule = rules.CC121 if actual is ABSENT else rules.CC122
                self._report.add(rule, f"$.{key}", type_names(types), brief(actual), once=key, key=key)

    def _check_stable(self, chunk: Json) -> None:
        report, first = self._report, self._first
        if first is None:
            self._first = chunk
            if chunk.get("object", "chat.completion.chunk") != "chat.completion.chunk":
                report.add(rules.CC124, "$.object", '"chat.completion.chunk"', brief(chunk["object"]))
            return
        if chunk.get("id") != first.get("id"):
            report.add(rules.CC119, "$.id", brief(first.get("id")), brief(chunk.get("id")), once="id")
        for key in _STABLE_FIELDS:
            before, now = first.get(key), chunk.get(key)
            if now != before:
                report.add(rules.CC120, f"$.{key}", brief(before), brief(now), once=key, key=key)

    def _check_ends(self) -> None:
        report = self._report
        if not self._choices:
            expected = "a choice with a finish_reason"
            report.add(rules.CC104, "$.choices", expected, "nothing", subject="the stream")
        for index, choice in self._choices.items():
            if choice.finish is None:
                path, subject = "$.choices[0].finish_reason", f"choice {index}"
                report.add(rules.CC104, path, "a finish_reason", "the end", subject=subject)

    def _check_choices(self) -> None:
        count = len(self._choices)
        wanted = (self._request or {}).get("n") or 1
        if self._request is not None and isinstance(wanted, int) and count != wanted:
            self._report.add(rules.CC110, "$.choices", f"{wanted} choices", f"{count} choices")
        elif sorted(self._choices) != list(range(count)):
            self._report.add(rules.CC110, "$.choices", "0, 1, 2", brief(sorted(self._choices)[:10]))

    def _on_usage(self, usage: object, choices: list[object]) -> None:
        if choices and not self._options.get("continuous_usage_stats"):
            self._report.add(rules.CC111, "$.choices", "[]", f"{len(choices)} choices", once="usage")
            self._usage_elsewhere = True
        if self._request is not None and not self._options.get("include_usage"):
            self._report.add(rules.CC109, "$.usage", "nothing", brief(usage), once="usage")
        self._usage_seen = not choices
        check_usage(self._report, usage, "$.usage")

    def _wrong_type(self, path: str, key: str, expected: str, actual: object, once: str = "") -> None:
        """Reports CC122, once for each kind of field."""
        self._report.add(rules.CC122, path, expected, brief(actual), once=once or key, key=key)

    def _on_choice(self, value: object, number: int) -> None:
        path = f"$.choices[{number}]"
        if not isinstance(value, dict):
            self._wrong_type(path, f"choices[{number}]", "object", value, once="choice")
            return
        index, delta = value.get("index"), value.get("delta")
        if type(index) is not int:
            self._wrong_type(f"{path}.index", "index", "integer", value.get("index", ABSENT))
            return
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= _MAX_INDEX:
                return
            choice = self._choices[index] = _StreamedChoice(index)
        finish = value.get("finish_reason")
        if not isinstance(delta, dict):
            self._wrong_type(f"{path}.delta", "delta", "object", value.get("delta", ABSENT))
            delta = {}
        if choice.finish is not None and (finish is not None or any(delta.get(key) for key in _CONTENT_KEYS)):
            self._report.add(rules.CC103, path, "nothing", brief(delta), once=index, index=index)
            return
        self._on_delta(choice, delta, f"{path}.delta")
        if finish is not None:
            self._on_finish(choice, finish, f"{path}.finish_reason")

    def _on_delta(self, choice: _StreamedChoice, delta: Json, path: str) -> None:
        self._check_role(choice, delta, path)
        for key in schema.TEXT_KEYS:
            self._on_text(choice, key, delta.get(key), f"{path}.{key}")
        calls = delta.get("tool_calls")
        if calls is None:
            return
        if not isinstance(calls, list):
            self._wrong_type(f"{path}.tool_calls", "tool_calls", "array", calls)
        elif not calls:
            self._report.add(rules.CC209, f"{path}.tool_calls", "no such field", "[]", once=choice.index)
        else:
            for number, call in enumerate(calls):
                self._on_call(choice, call, f"{path}.tool_calls[{number}]")

    def _check_role(self, choice: _StreamedChoice, delta: Json, path: str) -> None:
        role, index = delta.get("role"), choice.index
        if choice.role is None:
            if role != "assistant":
                actual = brief(delta.get("role", ABSENT))
                self._report.add(rules.CC101, f"{path}.role", '"assistant"', actual, once=index, index=index)
            choice.role = role or "assistant"
        elif role is not None:
            rule = rules.CC102 if role == choice.role else rules.CC105
            self._report.add(rule, f"{path}.role", "nothing", brief(role), once=index)

    def _on_text(self, choice: _StreamedChoice, key: str, text: object, path: str) -> None:
        if text is None:
            return
        if type(text) is not str:
            self._wrong_type(path, key, "string or null", text)
        elif key == "content":
            choice.has_content = choice.has_content or bool(text)
        elif text and choice.has_content and key in REASONING_KEYS:
            self._report.add(rules.CC131, path, "reasoning first", brief(text), once=choice.index)

    def _on_call(self, choice: _StreamedChoice, delta: object, path: str) -> None:
        report, calls = self._report, choice.calls
        if not isinstance(delta, dict):
            self._wrong_type(path, "tool_calls", "object", delta, once="call")
            return
        index = delta.get("index")
        if type(index) is not int:
            actual = brief(delta.get("index", ABSENT))
            report.add(rules.CC201, f"{path}.index", "integer", actual, once=len(calls))
            return
        if index == len(calls) and index < _MAX_INDEX:
            call = _StreamedCall(delta)
            calls.append(call)
            self._check_new_call(choice, call, path)
            self._left -= _NODE_COST
        elif not 0 <= index < len(calls):
            report.add(rules.CC202, f"{path}.index", f"0 to {len(calls)}", str(index), once=index)
            return
        else:
            call = calls[index]
            self._check_repeats(call, delta, path)
            if index < len(calls) - 1:
                report.add(rules.CC208, f"{path}.index", str(len(calls) - 1), str(index), once=index)
        self._take_arguments(call, delta, path)

    def _check_new_call(self, choice: _StreamedChoice, call: _StreamedCall, path: str) -> None:
        for key, value in (("id", call.id), ("type", call.type), ("name", call.name)):
            if not isinstance(value, str) or not value:
                place = f"{path}.{call.type}.name" if key == "name" else f"{path}.{key}"
                self._report.add(rules.CC203, place, "a non-empty string", brief(value), key=key)
        if call.id and any(call.id == other.id for other in choice.calls if other is not call):
            self._report.add(rules.CC207, f"{path}.id", "a unique id", brief(call.id))

    def _check_repeats(self, call: _StreamedCall, delta: Json, path: str) -> None:
        body = delta.get(str(call.type))
        name = body.get("name") if isinstance(body, dict) else None
        for key, before, again in (
            ("id", call.id, delta.get("id")),
            ("type", call.type, delta.get("type")),
            ("name", call.name, name),
        ):
            if again is None:
                continue
            rule, expected = (rules.CC205, "nothing") if again == before else (rules.CC204, brief(before))
            self._report.add(rule, f"{path}.{key}", expected, brief(again), once=(id(call), key), key=key)

    def _take_arguments(self, call: _StreamedCall, delta: Json, path: str) -> None:
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
                self._report.add(SE110, once="limit")
        elif piece is not None:
            self._wrong_type(f"{path}.{call.type}.{key}", key, "string", piece)

    def _on_finish(self, choice: _StreamedChoice, finish: object, path: str) -> None:
        report = self._report
        if not isinstance(finish, str) or finish not in schema.FINISH_REASONS:
            expected = " or ".join(sorted(schema.FINISH_REASONS))
            report.add(rules.CC106, path, expected, brief(finish), once=choice.index)
        choice.finish = str(finish)
        check_finish(report, choice.finish, bool(choice.calls), self._request, path)
        if self._left < 0 or finish in ("length", "content_filter"):
            return
        for number, call in enumerate(choice.calls):
            arguments = "".join(call.arguments)
            if call.type == "function" and not is_json_object(arguments):
                report.add(rules.CC206, path, "a JSON object", brief(arguments), number=number)
