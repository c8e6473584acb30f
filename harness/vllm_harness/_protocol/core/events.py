"""Events of any API as JSON values."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from vllm_harness._protocol.core.sse import SSEEvent

Json = dict[str, Any]

Api = Literal["responses", "chat", "messages"]
REASONING_KEYS = ("reasoning", "reasoning_content")
"""The fields of a chat message that hold its reasoning."""
CALL_ITEMS = ("function_call", "custom_tool_call")
"""The types of the items of a response that call a tool of the client."""
AnyEvent = Mapping[str, Any] | BaseModel | SSEEvent
_DEEP = frozenset(
    {
        *("response", "item", "part", "choices", "annotation", "error", "delta", "output"),
        *("message", "content_block", "content"),
    }
)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


decode = json.JSONDecoder(parse_constant=_refuse).decode


def plain(event: object) -> dict[str, Any]:
    """An event as JSON values, with only the fields that the server sent.

    Args:
        event: an SDK's event object, any other pydantic model, or a mapping.

    Raises:
        TypeError: the event is none of these.
    """
    if isinstance(event, BaseModel):
        fields = event.__dict__
        sent = event.__pydantic_fields_set__
        if sent.isdisjoint(_DEEP) or type(fields.get("delta")) is str:
            own = {key: fields[key] for key in sent if key in fields}
            return {**own, **(event.__pydantic_extra__ or {})}
        return event.model_dump(exclude_unset=True, by_alias=True, warnings=False)
    if isinstance(event, Mapping):
        return dict(event)
    raise TypeError(f"not an event: {type(event).__name__}")


def as_json(event: AnyEvent) -> dict[str, Any] | None:
    """An event as JSON values; None for an SSEEvent without a JSON object."""
    if not isinstance(event, SSEEvent):
        return plain(event)
    try:
        value = decode(event.data)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None


def numbered(events: Sequence[Json], start: int = 0) -> list[Json]:
    """Deep copies of events, with consecutive sequence numbers."""
    return [{**copy.deepcopy(event), "sequence_number": n} for n, event in enumerate(events, start)]
