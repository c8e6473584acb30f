"""Replaces the ids of a recording with those of a new run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vllm_harness._cassettes.answers import answer_of
from vllm_harness._cassettes.format import RecordedExchange, RecordedRequest
from vllm_harness._exchange.answer import Answer

_WITHOUT = ("failed", "refused")
"""The statuses of answers that no turn can continue."""
_WORD = re.compile(r"[\w-]+")


class NewIds:
    """Maps the ids of a recording to those of a new run, answer by answer."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._lost: dict[str, str] = {}

    def request(self, recorded: RecordedExchange) -> tuple[RecordedRequest, str]:
        """Puts the new ids into the body and the path of a request.

        Returns:
            The request, and the reason why it cannot be sent in the new run; empty if it can be sent.
        """
        request = recorded.request
        body = self._renamed(request.body)
        path = _WORD.sub(lambda part: self._ids.get(part[0], part[0]), request.path)
        texts = {*_texts(body), *_WORD.findall(path)}
        reason = next((why for identifier, why in self._lost.items() if identifier in texts), "")
        if reason:
            self._lose(recorded, reason)
        return request.model_copy(update={"body": body, "path": path}), reason

    def learn(self, recorded: RecordedExchange, new: RecordedExchange) -> None:
        """Maps the ids of a recorded answer to those of the new answer."""
        before, after = answer_of(recorded), answer_of(new)
        if before is None:
            return
        if after is None or (after.status in _WITHOUT and before.status not in _WITHOUT):
            status = new.response.status
            self._lose(
                recorded, f"turn {recorded.turn}, which it continues, was not answered (HTTP {status})"
            )
            return
        self._ids.update(_pairs(before, after))
        for call in before.calls:
            if call.id not in self._ids:
                why = f"it refers to a call of {call.name}, which was not made again in turn {recorded.turn}"
                self._lost[call.id] = why

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        if isinstance(value, dict):
            return {key: self._renamed(each) for key, each in value.items()}
        return value

    def _lose(self, recorded: RecordedExchange, reason: str) -> None:
        answer = answer_of(recorded)
        if answer is not None:
            for identifier in (answer.id, *(call.id for call in answer.calls)):
                if identifier:
                    self._lost.setdefault(identifier, reason)


def _pairs(before: Answer, after: Answer) -> Iterator[tuple[str, str]]:
    """Pairs the ids of two answers, of their items, and of their calls in order."""
    yield before.id, after.id
    unpaired = list(after.said)
    for item in before.said:
        same = next((other for other in unpaired if other.get("type") == item.get("type")), None)
        if same is not None:
            unpaired.remove(same)
            if isinstance(item.get("id"), str) and isinstance(same.get("id"), str):
                yield item["id"], same["id"]
    yield from zip((call.id for call in before.calls), (call.id for call in after.calls), strict=False)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
