"""The grammar of a Responses stream: response, items, parts and texts as a stack, checked event by event.

Base: recorded OpenAI traffic (64 streams, 6,753 events), see the page of each rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from vllm_harness.protocol import schema
from vllm_harness.protocol.differences import common_length, differences
from vllm_harness.protocol.findings import ABSENT, Report, Severity, brief
from vllm_harness.protocol.items import (
    check_fields,
    check_item,
    check_part,
    check_response,
    check_unknown_item,
)
from vllm_harness.protocol.schema import Channel, Fields, PartKind

Event = dict[str, Any]
Handler = Callable[["ResponsesValidator", Event], None]

MAX_HELD = 64 * 1024 * 1024
_NODE_COST = 256
_JOIN_AFTER = 1024
_IGNORED_IN_PARTS = frozenset({"logprobs"})
_MAX_DIFFERENCES = 5


class _Text:
    """A streamed text: the pieces so far, then what the done event said."""

    __slots__ = ("broken", "done", "pieces")

    def __init__(self, broken: bool = False) -> None:
        self.pieces: list[str] = []
        self.done: object = None
        self.broken = broken


class _Part:
    __slots__ = ("annotations", "done", "text", "type")

    def __init__(self, kind: object, broken: bool) -> None:
        self.type = _name(kind)
        self.text = _Text(broken)
        self.annotations: list[object] = []
        self.done: Event | None = None


class _Item:
    __slots__ = ("added", "done", "id", "index", "parts", "phantom", "progress", "texts", "type")

    def __init__(self, index: int, added: Event, phantom: bool = False) -> None:
        self.index = index
        self.added = added
        self.id = added.get("id", ABSENT)
        self.type = _name(added.get("type"))
        self.phantom = phantom
        self.done: Event | None = None
        self.progress = -1
        self.parts: dict[str, dict[int, _Part]] = {kind.index_key: {} for kind in schema.PART_KINDS}
        self.texts: dict[int, _Text] = {}


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


class ResponsesValidator:
    """Checks one Responses stream.

    Args:
        report: where findings go.
        request: the request body, when it is known; more can be checked then.
        resumed: the stream begins in the middle (`starting_after`); None judges by its first sequence number.
        max_held: characters of text and items kept for comparison; beyond it they are no longer compared.
    """

    def __init__(
        self,
        report: Report,
        *,
        request: Event | None = None,
        resumed: bool | None = None,
        max_held: int = MAX_HELD,
    ) -> None:
        self._report = report
        self._request = request
        self._resumed = resumed
        self._left = max_held
        self._begun = False
        self._head: Event | None = None
        self._phase = 0
        self._items: dict[int, _Item] = {}
        self._latest: _Item | None = None
        self._ids: dict[str, int] = {}
        self._ended: str | None = None
        self._failed = False
        self._next: int | None = None
        self._numbered = self._unnumbered = False

    def feed(self, event: Event) -> None:
        """Takes the next event."""
        kind = event.get("type")
        number = event.get("sequence_number")
        if not self._begun:
            self._begin(kind, number)
        if type(number) is int and number == self._next:
            self._next = number + 1
        else:
            self._check_number(number)
        if self._ended is not None:
            self._report.add(
                "RS106", f"an event after {self._ended}", "$.type", "nothing", brief(kind), once="end"
            )
            return
        entry = _TABLE.get(kind) if type(kind) is str else None
        if entry is None:
            self._on_unknown(kind)
            return
        for key, types in entry[0]:
            if type(event.get(key, ABSENT)) not in types:
                self._bad_field(event, kind, key, types)
        entry[1](self, event)

    def close(self) -> None:
        """Ends the stream."""
        report = self._report
        if not self._begun:
            report.add("RS123", "the stream has no events", expected="response.created", got="nothing")
        elif self._ended is None and self._failed:
            report.add(
                "RS109",
                "the stream ends with an error event and no response.failed",
                "$.type",
                "response.failed",
                "the end",
            )
        elif self._ended is None:
            report.add(
                "RS105",
                "the stream ends before its terminal event",
                "$.type",
                "response.completed, .incomplete or .failed",
                "the end",
            )
        if self._unnumbered and not self._numbered:
            report.add("RS113", "no event has a sequence_number", "$.sequence_number", "integer", "nothing")

    # lifecycle

    def _begin(self, kind: object, number: object) -> None:
        self._begun = True
        if kind == "response.created":
            self._resumed = False
            self._next = 0
            self._numbered = number == 0
        elif kind == "error":
            self._next = None
        elif self._resumed or (self._resumed is None and type(number) is int and number > 0):
            self._resumed = True
            self._report.add(
                "RS102",
                "the stream begins in the middle; what came before is not checked",
                "$.type",
                "response.created",
                brief(kind),
            )
        else:
            self._report.add(
                "RS101",
                "the first event is not response.created",
                "$.type",
                '"response.created"',
                brief(kind),
            )

    def _check_number(self, number: object) -> None:
        report = self._report
        if type(number) is not int:
            self._unnumbered = True
            self._next = None
            if number is not None:
                report.add(
                    "RS122",
                    "sequence_number is not an integer",
                    "$.sequence_number",
                    "integer",
                    brief(number),
                    once="number",
                )
            if self._numbered:
                report.add(
                    "RS112",
                    "an event has no sequence_number, others have",
                    "$.sequence_number",
                    "integer",
                    brief(number),
                    once="number",
                )
            return
        if self._unnumbered and not self._numbered:
            report.add(
                "RS112",
                "events before this one had no sequence_number",
                "$.sequence_number",
                "on every event or on none",
                number,
                once="number",
            )
        elif self._next is not None:
            code = "RS110" if self._numbered else "RS111"
            message = (
                "sequence_number does not follow the one before"
                if self._numbered
                else "the stream does not count from 0"
            )
            report.add(code, message, "$.sequence_number", str(self._next), brief(number))
        self._numbered = True
        self._next = number + 1

    def _on_unknown(self, kind: object) -> None:
        if isinstance(kind, str) and kind:
            if len(kind) <= 200:
                self._report.add(
                    "RS119", f"event type {kind!r} is not in the published API", "$.type", once=kind
                )
        else:
            self._report.add("RS120", "the event has no type", "$.type", "string", brief(kind), once="type")

    def _bad_field(self, event: Event, kind: object, key: str, types: schema.Types) -> None:
        got = event.get(key, ABSENT)
        code, message = (
            ("RS121", "required field {!r} is missing")
            if got is ABSENT
            else ("RS122", "field {!r} has the wrong type")
        )
        expected = " or ".join(t.__name__ for t in types)
        self._report.add(code, message.format(key), f"$.{key}", expected, brief(got), once=(kind, key))

    def _on_head(self, event: Event, rank: int) -> None:
        if rank <= self._phase or self._items:
            self._report.add(
                "RS103", f"{event['type']} is out of place", "$.type", "once, in order, before the first item"
            )
        self._phase = max(self._phase, rank)
        response = event.get("response")
        if not isinstance(response, dict):
            return
        self._check_status(response, schema.HEAD[event["type"]])
        if self._head is None:
            check_fields(self._report, response, schema.RESPONSE_FIELDS, "$.response", "RO101", "RO102")
        if response.get("output"):
            self._report.add(
                "RS117",
                "output is not empty before the first item",
                "$.response.output",
                "[]",
                brief(response["output"]),
            )
        if response.get("usage") is not None:
            self._report.add(
                "RS118",
                "usage is not null before the end",
                "$.response.usage",
                "null",
                brief(response["usage"]),
            )
        self._check_stable(response)

    def _check_status(self, response: Event, wanted: tuple[str, ...]) -> None:
        status = response.get("status")
        if status not in wanted:
            self._report.add(
                "RS107",
                "the event does not match response.status",
                "$.response.status",
                " or ".join(wanted),
                brief(status),
            )

    def _check_stable(self, response: Event) -> None:
        head = self._head
        if head is None:
            self._head = response
            return
        for key in ("id", *schema.STABLE_RESPONSE_FIELDS):
            if key in head and response.get(key) != head[key]:
                code = "RS114" if key == "id" else "RS115"
                self._report.add(
                    code,
                    f"{key} of the response changes",
                    f"$.response.{key}",
                    brief(head[key]),
                    brief(response.get(key, ABSENT)),
                )

    def _on_error(self, event: Event) -> None:
        self._failed = True
        inner = event.get("error")
        error = inner if isinstance(inner, dict) else event
        self._report.add(
            "RS108",
            "the server reports an error in the stream",
            "$",
            got=f"{error.get('code')}: {error.get('message')}"[:300],
        )
        if not isinstance(error.get("message"), str):
            self._report.add(
                "RS125",
                "an error event has no message",
                "$.message",
                "string",
                brief(error.get("message", ABSENT)),
            )

    def _before_items(self) -> None:
        if self._phase < 3 and not self._resumed:
            self._report.add(
                "RS104", "response.in_progress is missing before this event", "$.type", once="in_progress"
            )
            self._phase = 3

    def _on_terminal(self, event: Event) -> None:
        kind = event["type"]
        self._ended = kind
        completed = kind in ("response.completed", "response.incomplete")
        if completed:
            self._before_items()
        response = event.get("response")
        if not isinstance(response, dict):
            return
        head = self._head
        self._check_status(response, (schema.TERMINAL[kind],))
        check_response(self._report, response, "$.response", self._request)
        self._check_stable(response)
        if head is not None:
            self._check_echo(head, response)
        self._check_closed(kind == "response.completed")
        self._check_output(response, kind)

    def _check_echo(self, head: Event, response: Event) -> None:
        for key in schema.ECHOED_FIELDS:
            if key in head and head[key] != response.get(key, ABSENT):
                self._report.add(
                    "RS116",
                    f"{key} of the response changes",
                    f"$.response.{key}",
                    brief(head[key]),
                    brief(response.get(key, ABSENT)),
                )
        if set(head) != set(response):
            changed = sorted(set(head) ^ set(response))
            self._report.add(
                "RS124",
                "the response has other keys than at its beginning",
                "$.response",
                "the same keys",
                ", ".join(changed)[:200],
            )

    def _check_closed(self, completed: bool) -> None:
        for item in self._items.values():
            if item.done is None and not item.phantom and item.type != "mcp_list_tools":
                severity = Severity.ERROR if completed else Severity.INFO
                self._report.add(
                    "RS209",
                    f"the {item.type} at output_index {item.index} is never closed",
                    "$.type",
                    "response.output_item.done",
                    "nothing",
                    severity,
                )

    def _check_output(self, response: Event, kind: str) -> None:
        output = response.get("output")
        if not isinstance(output, list) or self._left < 0:
            return
        items = [self._items[index] for index in sorted(self._items)]
        if not self._resumed and len(output) != len(items):
            severity = None if kind == "response.completed" else Severity.INFO
            self._report.add(
                "RS211",
                "response.output has not as many items as the stream",
                "$.response.output",
                f"{len(items)} items",
                f"{len(output)} items",
                severity,
            )
        status = response.get("status")
        for number, value in enumerate(output):
            path = f"$.response.output[{number}]"
            item = self._items.get(number)
            if not isinstance(value, dict):
                self._report.add(
                    "RS212", "an item of response.output is not an object", path, "object", brief(value)
                )
            elif item is None or item.done is None:
                if item is not None and not item.phantom:
                    identity = {key: item.added.get(key) for key in ("id", "type")}
                    answered = {key: value.get(key) for key in identity}
                    self._compare(
                        "RS212", "response.output differs from output_item.added", identity, answered, path
                    )
                check_item(
                    self._report, value, path, status if isinstance(status, str) else None, self._request
                )
            else:
                self._compare(
                    "RS212", "response.output differs from output_item.done", item.done, value, path
                )

    def _compare(
        self,
        code: str,
        message: str,
        left: object,
        right: object,
        path: str,
        ignore: frozenset[str] = schema.RESEALED_FIELDS,
    ) -> None:
        for number, difference in enumerate(differences(left, right, ignore=ignore, path=path)):
            if number == _MAX_DIFFERENCES:
                break
            self._report.add(code, message, difference.path, brief(difference.left), brief(difference.right))

    # items

    def _hold(self, cost: int) -> None:
        """Counts what is kept; past the limit the stack is let go and only the lifecycle is checked."""
        self._left -= cost
        if self._left < 0 and self._items:
            self._items, self._ids, self._latest = {}, {}, None
            self._resumed = True
            self._report.add(
                "SE110",
                "the stream is too large to be held; from here on texts and items are not compared",
                once="limit",
            )

    def _on_item_added(self, event: Event) -> None:
        self._before_items()
        index, added = event.get("output_index"), event.get("item")
        if type(index) is not int or not isinstance(added, dict) or self._left < 0:
            return
        expected = self._latest.index + 1 if self._latest else 0
        if index != expected and not (self._resumed and not self._items):
            self._report.add(
                "RS201", "output_index is not the next one", "$.output_index", str(expected), str(index)
            )
        self._check_overlap(added)
        item = _Item(index, added)
        self._items[index] = self._latest = item
        self._check_added(item)
        self._hold(_NODE_COST)

    def _check_overlap(self, added: Event) -> None:
        if added.get("type") not in schema.MODEL_WRITTEN or added.get("caller"):
            return
        last = self._latest
        if (
            last
            and last.done is None
            and last.type in schema.MODEL_WRITTEN
            and not (last.phantom or last.added.get("caller"))
        ):
            self._report.add(
                "RS210",
                f"the {last.type} at output_index {last.index} is still open",
                "$.output_index",
                "its output_item.done first",
            )

    def _check_added(self, item: _Item) -> None:
        added = item.added
        if item.type not in schema.ITEM_FIELDS:
            check_unknown_item(self._report, item.type, "$.item")
            return
        identifier = item.id
        if isinstance(identifier, str) and identifier:
            first = self._ids.setdefault(identifier, item.index)
            if first != item.index:
                self._report.add(
                    "IT108",
                    f"id repeats that of item {first}",
                    "$.item.id",
                    "an id of its own",
                    brief(identifier),
                )
        else:
            self._report.add(
                "RS205",
                f"the {item.type} has no id when it is added",
                "$.item.id",
                "a non-empty string",
                brief(identifier),
            )
        for key in schema.EMPTY_AT_ADDED.get(str(item.type), ()):
            if added.get(key):
                self._report.add(
                    "RS213",
                    f"{key} of the {item.type} is not empty when it is added",
                    f"$.item.{key}",
                    "empty",
                    brief(added[key]),
                )
        if "status" in added and added["status"] != "in_progress":
            written = item.type in schema.MODEL_WRITTEN
            self._report.add(
                "RS214",
                f"the {item.type} does not begin in_progress",
                "$.item.status",
                '"in_progress"',
                brief(added["status"]),
                None if written else Severity.INFO,
            )
        for key in ("name", "call_id"):
            if item.type in schema.CALLS and not (isinstance(added.get(key), str) and added[key]):
                self._report.add(
                    "RS218",
                    f"the {item.type} has no {key} when it is added",
                    f"$.item.{key}",
                    "a non-empty string",
                    brief(added.get(key, ABSENT)),
                )

    def _item(self, event: Event) -> _Item | None:
        """The open item of an event, its id checked; None where the event has no place."""
        index = event.get("output_index")
        if type(index) is not int:
            return None
        item = self._items.get(index)
        if item is None:
            return self._missing_item(index, event)
        if item.done is not None:
            self._report.add(
                "RS203",
                f"the item at output_index {index} is already done",
                "$.output_index",
                "an open item",
                str(index),
                once=(index, "late"),
            )
            return None
        if "item_id" in event and event["item_id"] != item.id:
            if item.phantom and item.id is ABSENT:
                item.id = event["item_id"]
            else:
                self._report.add(
                    "RS204",
                    "item_id is not the id of the item",
                    "$.item_id",
                    brief(item.id),
                    brief(event["item_id"]),
                    once=(index, event["type"]),
                )
        return item

    def _missing_item(self, index: int, event: Event) -> _Item | None:
        if self._left < 0:
            return None
        if not self._resumed:
            self._before_items()
            self._report.add(
                "RS202",
                "no item was added at this output_index",
                "$.output_index",
                "response.output_item.added first",
                str(index),
            )
        known = {"id": event["item_id"]} if isinstance(event.get("item_id"), str) else {}
        item = self._items[index] = _Item(index, known, phantom=True)
        if self._latest is None or index > self._latest.index:
            self._latest = item
        self._hold(_NODE_COST)
        return item

    def _on_nested(self, event: Event) -> None:
        """An event that only has to belong to an open item."""
        self._item(event)

    def _on_free(self, event: Event) -> None:
        """An event that belongs to no item."""

    def _on_item_done(self, event: Event) -> None:
        item, done = self._item(event), event.get("item")
        if item is None or not isinstance(done, dict):
            return
        item.done = done
        self._hold(len(json.dumps(done, default=str)))
        if not item.phantom:
            self._check_identity(item, done)
        if item.type in schema.ITEM_FIELDS or item.phantom:
            check_item(self._report, done, "$.item", None, self._request)
        self._check_status_at_done(item, done)
        self._check_parts(item, done)
        self._check_item_texts(item, done)
        self._check_progress_end(item)

    def _check_identity(self, item: _Item, done: Event) -> None:
        for key, before in (("id", item.id), ("type", item.type)):
            if done.get(key, ABSENT) != before:
                self._report.add(
                    "RS207",
                    f"{key} of the item is not that at added",
                    f"$.item.{key}",
                    brief(before),
                    brief(done.get(key, ABSENT)),
                )
        keys = (
            (*schema.STABLE_ITEM_FIELDS, "call_id")
            if item.type in schema.CALLS
            else schema.STABLE_ITEM_FIELDS
        )
        for key in keys:
            if key in item.added and done.get(key, ABSENT) != item.added[key]:
                self._report.add(
                    "RS208",
                    f"{key} of the {item.type} is not that at added",
                    f"$.item.{key}",
                    brief(item.added[key]),
                    brief(done.get(key, ABSENT)),
                )
        if item.type in schema.CALLS and isinstance(done.get("call_id"), str):
            first = self._ids.setdefault(f"call_id {done['call_id']}", item.index)
            if first != item.index:
                self._report.add(
                    "IT111",
                    f"call_id repeats that of item {first}",
                    "$.item.call_id",
                    "an id of its own",
                    brief(done["call_id"]),
                )

    def _check_status_at_done(self, item: _Item, done: Event) -> None:
        if (
            done.get("status") == "in_progress"
            and item.type in schema.MODEL_WRITTEN
            and not done.get("caller")
        ):
            self._report.add(
                "RS215",
                f"the {item.type} is still in_progress when it is done",
                "$.item.status",
                '"completed"',
                '"in_progress"',
            )

    # parts and texts

    def _part(self, index_key: str, part_type: str, event: Event) -> _Part | None:
        item = self._item(event)
        number = event.get(index_key)
        if item is None or type(number) is not int:
            return None
        part = item.parts[index_key].get(number)
        if part is None:
            return self._missing_part(item, index_key, number, part_type)
        if part.done is not None:
            self._report.add(
                "RS303",
                "the part is already done",
                f"$.{index_key}",
                "an open part",
                str(number),
                once=(item.index, index_key, number),
            )
            return None
        return part

    def _missing_part(self, item: _Item, index_key: str, number: int, part_type: str) -> _Part:
        if not self._resumed:
            self._report.add(
                "RS302",
                "no part was added at this index",
                f"$.{index_key}",
                "the part's added event first",
                str(number),
            )
        part = _Part(part_type, broken=item.phantom)
        item.parts[index_key][number] = part
        self._hold(_NODE_COST)
        return part

    def _on_part_added(self, event: Event, kind: PartKind) -> None:
        item, number, value = self._item(event), event.get(kind.index_key), event.get("part")
        if item is None or type(number) is not int or not isinstance(value, dict):
            return
        parts = item.parts[kind.index_key]
        if number != len(parts) and not item.phantom:
            self._report.add(
                "RS301",
                f"{kind.index_key} is not the next one",
                f"$.{kind.index_key}",
                str(len(parts)),
                str(number),
            )
        if any(part.done is None for part in parts.values()):
            self._report.add(
                "RS304",
                "the part before is still open",
                f"$.{kind.index_key}",
                "its done event first",
                str(number),
            )
        wanted = kind.types.get(str(item.type))
        if wanted is not None:
            check_part(self._report, value, str(item.type), wanted, "$.part")
        elif item.type in schema.ITEM_FIELDS:
            self._report.add(
                "RS316",
                f"a {item.type} has no {kind.item_key}",
                "$.type",
                "an event of this item type",
                event["type"],
            )
        for key in ("text", "refusal", "annotations"):
            if value.get(key):
                self._report.add(
                    "RS305",
                    f"{key} of the part is not empty when it is added",
                    f"$.part.{key}",
                    "empty",
                    brief(value[key]),
                )
        parts[number] = _Part(value.get("type"), broken=False)
        self._hold(_NODE_COST)

    def _on_part_done(self, event: Event, kind: PartKind) -> None:
        value = event.get("part")
        if not isinstance(value, dict):
            return
        part = self._part(kind.index_key, str(value.get("type")), event)
        if part is None:
            return
        part.done = value
        if value.get("type") != part.type:
            self._report.add(
                "RS307",
                "type of the part is not that at added",
                "$.part.type",
                brief(part.type),
                brief(value.get("type")),
            )
            return
        channel = schema.CHANNEL_OF_PART.get(str(part.type))
        if channel is not None:
            self._check_part_text(channel, part, value)
        if part.type == "output_text" and not part.text.broken:
            self._check_annotations(part, value)

    def _check_part_text(self, channel: Channel, part: _Part, value: Event) -> None:
        key, text = channel.item_path[0], part.text
        if text.done is None:
            if not text.broken:
                self._report.add(
                    "RS315",
                    f"{channel.prefix}.done is missing",
                    "$.type",
                    f"{channel.prefix}.done first",
                    "nothing",
                )
        elif value.get(key) != text.done:
            self._report.add(
                "RS309",
                f"{key} of the part is not that of {channel.prefix}.done",
                f"$.part.{key}",
                brief(text.done),
                brief(value.get(key, ABSENT)),
            )

    def _check_annotations(self, part: _Part, value: Event) -> None:
        annotations = value.get("annotations")
        if isinstance(annotations, list) and annotations != part.annotations:
            severity = None if part.annotations else Severity.INFO
            self._report.add(
                "RS321",
                "annotations of the part are not those that were streamed",
                "$.part.annotations",
                brief(part.annotations),
                brief(annotations),
                severity,
            )

    def _on_annotation(self, event: Event) -> None:
        part = self._part("content_index", "output_text", event)
        if part is None:
            return
        number = event.get("annotation_index")
        if number != len(part.annotations) and not part.text.broken:
            self._report.add(
                "RS320",
                "annotation_index is not the next one",
                "$.annotation_index",
                str(len(part.annotations)),
                brief(number),
            )
        if part.text.done is not None:
            self._report.add(
                "RS312",
                "an annotation after the text was done",
                "$.type",
                "nothing for this part but its done event",
            )
        part.annotations.append(event.get("annotation"))
        self._hold(_NODE_COST)

    def _text(self, channel: Channel, event: Event) -> _Text | None:
        """The open text of an event of a channel; None where the event has no place."""
        if channel.part_type:
            part = self._part(channel.index_key, channel.part_type, event)
            if part is None:
                return None
            if part.type != channel.part_type:
                self._report.add(
                    "RS317",
                    f"the part is no {channel.part_type}",
                    "$.type",
                    f"an event for {part.type}",
                    event["type"],
                    once=(event["output_index"], event["type"]),
                )
                return None
            return part.text
        item = self._item(event)
        number = event.get(channel.index_key) if channel.index_key else 0
        if item is None or type(number) is not int:
            return None
        if item.type != channel.item_type and item.type in schema.ITEM_FIELDS:
            self._report.add(
                "RS316",
                f"the item is no {channel.item_type}",
                "$.type",
                f"an event for a {item.type}",
                event["type"],
                once=(item.index, event["type"]),
            )
            return None
        text = item.texts.get(number)
        if text is None:
            text = item.texts[number] = _Text(broken=item.phantom)
            self._hold(_NODE_COST)
        return text

    def _on_delta(self, event: Event, channel: Channel) -> None:
        text = self._text(channel, event)
        if text is None:
            return
        delta = event.get("delta")
        if text.done is not None:
            self._report.add(
                "RS312",
                "a delta after the text was done",
                "$.type",
                "nothing for this text",
                event["type"],
                once=(event["output_index"], event["type"]),
            )
        elif type(delta) is str:
            pieces = text.pieces
            pieces.append(delta)
            self._left -= len(delta)
            if len(pieces) > _JOIN_AFTER:
                pieces[:] = ["".join(pieces)]
                self._hold(0)
            if not delta:
                self._report.add(
                    "RS314", "an empty delta", "$.delta", "at least one character", '""', once=event["type"]
                )
        else:
            text.broken = True

    def _on_text_done(self, event: Event, channel: Channel) -> None:
        text = self._text(channel, event)
        if text is None:
            return
        whole = event.get(channel.field)
        if text.done is not None:
            self._report.add("RS313", f"{event['type']} comes twice", "$.type", "once", event["type"])
            return
        text.done = whole
        if not text.broken and isinstance(whole, str):
            summed = "".join(text.pieces)
            if summed != whole:
                code = "RS308" if channel.part_type else "RS401"
                expected, got = _first_difference(summed, whole)
                self._report.add(
                    code, "the deltas do not add up to the done text", f"$.{channel.field}", expected, got
                )
        text.pieces = []

    def _check_parts(self, item: _Item, done: Event) -> None:
        for kind in schema.PART_KINDS:
            parts = item.parts[kind.index_key]
            for number, part in parts.items():
                if part.done is None and not item.phantom:
                    self._report.add(
                        "RS306",
                        f"part {number} is never closed",
                        f"$.item.{kind.item_key}[{number}]",
                        f"{kind.prefix}.done first",
                        "nothing",
                    )
            values = done.get(kind.item_key)
            if item.phantom or str(item.type) not in kind.types:
                continue
            values = values if isinstance(values, list) else []
            if len(values) != len(parts):
                self._report.add(
                    "RS311",
                    f"{kind.item_key} has not as many parts as were streamed",
                    f"$.item.{kind.item_key}",
                    f"{len(parts)} parts",
                    f"{len(values)} parts",
                )
            for number, value in enumerate(values):
                streamed = parts.get(number)
                if streamed is not None and streamed.done is not None:
                    self._compare(
                        "RS310",
                        "the item differs from its part",
                        streamed.done,
                        value,
                        f"$.item.{kind.item_key}[{number}]",
                        _IGNORED_IN_PARTS,
                    )

    def _check_item_texts(self, item: _Item, done: Event) -> None:
        channel = _CHANNEL_OF_ITEM.get(str(item.type))
        if channel is None or item.phantom:
            return
        value = _at(done, channel.item_path)
        if channel.required and not item.texts and value:
            self._report.add(
                "RS403",
                f"the {item.type} was not streamed",
                "$.type",
                f"{channel.prefix}.delta and .done first",
                "nothing",
            )
        for number, text in item.texts.items():
            whole = (
                value[number]
                if channel.index_key and isinstance(value, list) and 0 <= number < len(value)
                else value
            )
            if text.done is None:
                self._report.add(
                    "RS403",
                    f"{channel.prefix}.done is missing",
                    "$.type",
                    f"{channel.prefix}.done first",
                    "nothing",
                )
            elif whole != text.done:
                self._report.add(
                    "RS402",
                    f"{channel.field} of the item is not that of {channel.prefix}.done",
                    "$.item." + ".".join(channel.item_path),
                    brief(text.done),
                    brief(whole),
                )

    # tools that the server runs

    def _on_progress(self, event: Event, item_type: str, rank: int) -> None:
        item = self._item(event)
        if item is None:
            return
        if item.type != item_type and item.type in schema.ITEM_FIELDS:
            self._report.add(
                "RS410", f"the item is no {item_type}", "$.type", f"an event for a {item.type}", event["type"]
            )
            return
        last = len(schema.PROGRESS[item_type]) - 1
        if rank < item.progress or item.progress == last:
            self._report.add(
                "RS411",
                f"{event['type']} is out of order",
                "$.type",
                "in_progress first, completed or failed last",
            )
        elif (
            rank == item.progress and item_type != "mcp_call" and not event["type"].endswith("partial_image")
        ):
            self._report.add("RS412", f"{event['type']} comes twice", "$.type", "once")
        item.progress = max(item.progress, rank)

    def _check_progress_end(self, item: _Item) -> None:
        steps = schema.PROGRESS.get(str(item.type))
        if steps is not None and not item.phantom and item.progress < len(steps) - 1:
            self._report.add(
                "RS413",
                f"the {item.type} is done without its last progress event",
                "$.type",
                " or ".join(f"response.{item.type}.{step}" for step in steps[-1]),
                "nothing",
            )


def _handlers() -> dict[str, Handler]:
    this = ResponsesValidator
    handlers: dict[str, Handler] = {
        **{kind: partial(this._on_head, rank=rank) for rank, kind in enumerate(schema.HEAD, 1)},
        **dict.fromkeys(schema.TERMINAL, this._on_terminal),
        "error": this._on_error,
        "response.output_item.added": this._on_item_added,
        "response.output_item.done": this._on_item_done,
        "response.output_text.annotation.added": this._on_annotation,
    }
    for parts in schema.PART_KINDS:
        handlers[f"{parts.prefix}.added"] = partial(this._on_part_added, kind=parts)
        handlers[f"{parts.prefix}.done"] = partial(this._on_part_done, kind=parts)
    for channel in schema.CHANNELS:
        handlers[f"{channel.prefix}.delta"] = partial(this._on_delta, channel=channel)
        handlers[f"{channel.prefix}.done"] = partial(this._on_text_done, channel=channel)
    for item_type, steps in schema.PROGRESS.items():
        for rank, group in enumerate(steps):
            for step in group:
                handler = partial(this._on_progress, item_type=item_type, rank=rank)
                handlers[f"response.{item_type}.{step}"] = handler
    for kind, fields in schema.EVENT_FIELDS.items():
        of_item = any(key == "output_index" for key, _ in fields)
        handlers.setdefault(kind, this._on_nested if of_item else this._on_free)
    return handlers


_TABLE: dict[str, tuple[Fields, Handler]] = {
    kind: (schema.EVENT_FIELDS[kind], handler) for kind, handler in _handlers().items()
}
_CHANNEL_OF_ITEM = {channel.item_type: channel for channel in schema.CHANNELS if not channel.part_type}


def _at(value: object, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def _first_difference(expected: str, got: str) -> tuple[str, str]:
    """Two texts that differ, each as the place where they part."""
    at = common_length(expected, got)
    here = slice(max(0, at - 20), at + 40)
    return f"{brief(expected[here])} at {at} of {len(expected)}", f"{brief(got[here])} at {at} of {len(got)}"
