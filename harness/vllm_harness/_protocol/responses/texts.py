"""Checks within an item of a Responses stream: its parts, its texts, the progress of a server-run tool."""

from __future__ import annotations

from typing import Any

from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.responses import schema
from vllm_harness._protocol.responses import text_rules as rules
from vllm_harness._protocol.responses.objects import check_part
from vllm_harness._protocol.responses.schema import Channel, PartKind
from vllm_harness._protocol.responses.state import (
    NODE_COST,
    StreamedItem,
    StreamedPart,
    StreamedText,
    StreamState,
    compare,
    open_item,
)

_JOIN_AFTER = 1024
_IGNORED_IN_PARTS = frozenset({"logprobs"})


def on_part_added(state: StreamState, event: Json, kind: PartKind) -> None:
    """Handles content_part.added or reasoning_summary_part.added, which opens a part."""
    item, number, value = open_item(state, event), event.get(kind.index_key), event.get("part")
    if item is None or type(number) is not int or not isinstance(value, dict):
        return
    report, parts, path = state.report, item.parts[kind.index_key], f"$.{kind.index_key}"
    if number != len(parts) and not item.phantom:
        report.add(rules.RS301, path, str(len(parts)), str(number), key=kind.index_key)
    if any(part.done is None for part in parts.values()):
        report.add(rules.RS304, path, "its done event first", str(number))
    wanted = kind.types.get(str(item.type))
    if wanted is not None:
        check_part(report, value, str(item.type), wanted, "$.part")
    elif item.type in schema.ITEM_FIELDS:
        report.add(rules.RS316, "$.type", "an event of this item type", event["type"])
    for key in ("text", "refusal", "annotations"):
        if value.get(key):
            report.add(rules.RS305, f"$.part.{key}", "empty", brief(value[key]), key=key)
    parts[number] = StreamedPart(value.get("type"), broken=False)
    state.hold(NODE_COST)


def on_part_done(state: StreamState, event: Json, kind: PartKind) -> None:
    """Handles content_part.done or reasoning_summary_part.done, which closes a part and repeats all of it."""
    value = event.get("part")
    if not isinstance(value, dict):
        return
    part = _open_part(state, kind.index_key, str(value.get("type")), event)
    if part is None:
        return
    part.done = value
    if value.get("type") != part.type:
        state.report.add(rules.RS307, "$.part.type", brief(part.type), brief(value.get("type")))
        return
    channel = schema.CHANNEL_OF_PART.get(str(part.type))
    if channel is not None:
        _check_part_text(state, channel, part, value)
    if part.type == "output_text" and not part.text.broken:
        final, streamed = value.get("annotations"), part.annotations
        if isinstance(final, list) and final != streamed:
            state.report.add(rules.RS321, "$.part.annotations", brief(streamed), brief(final))


def on_annotation(state: StreamState, event: Json) -> None:
    """Handles output_text.annotation.added, which belongs to an open part."""
    part = _open_part(state, "content_index", "output_text", event)
    if part is None:
        return
    number = event.get("annotation_index")
    if number != len(part.annotations) and not part.text.broken:
        state.report.add(rules.RS320, "$.annotation_index", str(len(part.annotations)), brief(number))
    if part.text.done is not None:
        state.report.add(rules.RS312, "$.type", "nothing for this part but its done event")
    part.annotations.append(event.get("annotation"))
    state.hold(NODE_COST)


def on_delta(state: StreamState, event: Json, channel: Channel) -> None:
    """Handles a delta of a text."""
    text = _open_text(state, channel, event)
    if text is None:
        return
    delta = event.get("delta")
    if text.done is not None:
        kind = event["type"]
        once = (event["output_index"], kind)
        state.report.add(rules.RS312, "$.type", "nothing for this text", kind, once=once)
    elif type(delta) is str:
        pieces = text.pieces
        pieces.append(delta)
        state.left -= len(delta)
        if len(pieces) > _JOIN_AFTER:
            pieces[:] = ["".join(pieces)]
            state.hold(0)
        if not delta:
            state.report.add(rules.RS314, "$.delta", "at least one character", '""', once=event["type"])
    else:
        text.broken = True


def on_text_done(state: StreamState, event: Json, channel: Channel) -> None:
    """Handles the done event of a text, which repeats the whole text."""
    text = _open_text(state, channel, event)
    if text is None:
        return
    kind, whole = event["type"], event.get(channel.field)
    if text.done is not None:
        state.report.add(rules.RS313, "$.type", "once", kind, event=kind)
        return
    text.done = whole
    summed = "".join(text.pieces)
    if not text.broken and isinstance(whole, str) and summed != whole:
        rule = rules.RS308 if channel.part_type else rules.RS401
        state.report.add(rule, f"$.{channel.field}", *_first_difference(summed, whole))
    text.pieces = []


def on_progress(state: StreamState, event: Json, item_type: str, rank: int) -> None:
    """Handles a progress event of a tool that the server runs; `rank` is its position in the order."""
    item, kind = open_item(state, event), event["type"]
    if item is None:
        return
    if item.type != item_type and item.type in schema.ITEM_FIELDS:
        state.report.add(rules.RS410, "$.type", f"an event for a {item.type}", kind)
        return
    last = len(schema.PROGRESS[item_type]) - 1
    if rank < item.progress or item.progress == last:
        expected = "in_progress first, completed or failed last"
        state.report.add(rules.RS411, "$.type", expected, event=kind)
    elif rank == item.progress and item_type != "mcp_call" and not kind.endswith("partial_image"):
        state.report.add(rules.RS412, "$.type", "once", event=kind)
    item.progress = max(item.progress, rank)


def check_parts(state: StreamState, item: StreamedItem, done: Json) -> None:
    """Checks that a done item has the parts that were streamed."""
    for kind in schema.PART_KINDS:
        parts, path = item.parts[kind.index_key], f"$.item.{kind.item_key}"
        if item.phantom:
            continue
        for number, part in parts.items():
            if part.done is None:
                expected = f"{kind.prefix}.done first"
                state.report.add(rules.RS306, f"{path}[{number}]", expected, "nothing", number=number)
        if str(item.type) in kind.types:
            _check_part_values(state, kind, parts, done.get(kind.item_key))


def _check_part_values(
    state: StreamState, kind: PartKind, parts: dict[int, StreamedPart], value: object
) -> None:
    path, values = f"$.item.{kind.item_key}", value if isinstance(value, list) else []
    if len(values) != len(parts):
        expected, actual = f"{len(parts)} parts", f"{len(values)} parts"
        state.report.add(rules.RS311, path, expected, actual, key=kind.item_key)
    for number, final in enumerate(values):
        part = parts.get(number)
        if part is not None and part.done is not None:
            place = f"{path}[{number}]"
            compare(state.report, rules.RS310, part.done, final, place, _IGNORED_IN_PARTS)


def check_item_texts(state: StreamState, item: StreamedItem, done: Json) -> None:
    """Checks that a done item has the texts that were streamed into it."""
    channel = schema.CHANNEL_OF_ITEM.get(str(item.type))
    if channel is None or item.phantom:
        return
    report, value, ending = state.report, _at(done, channel.item_path), f"{channel.prefix}.done"
    if channel.required and not item.texts and value:
        expected = f"{channel.prefix}.delta and .done first"
        report.add(rules.RS403, "$.type", expected, "nothing", event=ending)
    for number, text in item.texts.items():
        indexed = channel.index_key and isinstance(value, list) and 0 <= number < len(value)
        whole = value[number] if indexed else value
        if text.done is None:
            report.add(rules.RS403, "$.type", f"{ending} first", "nothing", event=ending)
        elif whole != text.done:
            path, key = ".".join(("$.item", *channel.item_path)), channel.field
            report.add(rules.RS402, path, brief(text.done), brief(whole), key=key, event=ending)


def check_progress_end(state: StreamState, item: StreamedItem) -> None:
    """Checks that the last progress event of a tool comes before its item is done."""
    steps = schema.PROGRESS.get(str(item.type))
    if steps is not None and not item.phantom and item.progress < len(steps) - 1:
        expected = " or ".join(f"response.{item.type}.{step}" for step in steps[-1])
        state.report.add(rules.RS413, "$.type", expected, "nothing", kind=item.type)


def _open_part(state: StreamState, index_key: str, part_type: str, event: Json) -> StreamedPart | None:
    """The open part of an event; None if there is no such part."""
    item, number = open_item(state, event), event.get(index_key)
    if item is None or type(number) is not int:
        return None
    part = item.parts[index_key].get(number)
    if part is None:
        return _missing_part(state, item, index_key, number, part_type)
    if part.done is not None:
        once = (item.index, index_key, number)
        state.report.add(rules.RS303, f"$.{index_key}", "an open part", str(number), once=once)
        return None
    return part


def _missing_part(
    state: StreamState, item: StreamedItem, index_key: str, number: int, part_type: str
) -> StreamedPart:
    if not state.resumed:
        expected = f"the added event of its {part_type} part first"
        state.report.add(rules.RS302, f"$.{index_key}", expected, str(number))
    part = item.parts[index_key][number] = StreamedPart(part_type, broken=item.phantom)
    state.hold(NODE_COST)
    return part


def _open_text(state: StreamState, channel: Channel, event: Json) -> StreamedText | None:
    """The open text of an event of a channel; None if there is no such text."""
    if channel.part_type:
        part = _open_part(state, channel.index_key, channel.part_type, event)
        if part is None or part.type == channel.part_type:
            return part.text if part is not None else None
        kind = event["type"]
        once = (event["output_index"], kind)
        state.report.add(rules.RS317, "$.type", f"an event for {part.type}", kind, once=once)
        return None
    item = open_item(state, event)
    number = event.get(channel.index_key) if channel.index_key else 0
    if item is None or type(number) is not int:
        return None
    if item.type != channel.item_type and item.type in schema.ITEM_FIELDS:
        kind = event["type"]
        once = (item.index, kind)
        state.report.add(rules.RS316, "$.type", f"an event for a {item.type}", kind, once=once)
        return None
    text = item.texts.get(number)
    if text is None:
        text = item.texts[number] = StreamedText(broken=item.phantom)
        state.hold(NODE_COST)
    return text


def _check_part_text(state: StreamState, channel: Channel, part: StreamedPart, value: Json) -> None:
    key, text, ending = channel.item_path[0], part.text, f"{channel.prefix}.done"
    if text.done is None:
        if not text.broken:
            state.report.add(rules.RS315, "$.type", f"{ending} first", "nothing", event=ending)
    elif value.get(key) != text.done:
        actual = brief(value.get(key, ABSENT))
        state.report.add(rules.RS309, f"$.part.{key}", brief(text.done), actual, key=key, event=ending)


def _at(value: object, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def _first_difference(expected: str, actual: str) -> tuple[str, str]:
    """The parts of two strings around their first difference, each with its position and the length."""
    at = common_length(expected, actual)
    here = slice(max(0, at - 20), at + 40)
    return (
        f"{brief(expected[here])} at {at} of {len(expected)}",
        f"{brief(actual[here])} at {at} of {len(actual)}",
    )
