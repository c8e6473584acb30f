"""The state of a Responses stream: its items, parts and texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.core.rules import SE110
from vllm_harness._protocol.responses import item_rules as rules
from vllm_harness._protocol.responses import schema
from vllm_harness._protocol.responses.stream_rules import RS104

NODE_COST = 256
LAST_PHASE = len(schema.HEAD)
_MAX_DIFFERENCES = 5


class StreamedText:
    """A streamed text: its pieces, then the whole text of its done event."""

    __slots__ = ("broken", "done", "pieces")

    def __init__(self, broken: bool = False) -> None:
        self.pieces: list[str] = []
        self.done: object = None
        self.broken = broken


class StreamedPart:
    """A streamed part of an item."""

    __slots__ = ("annotations", "done", "text", "type")

    def __init__(self, kind: object, broken: bool) -> None:
        self.type = _name(kind)
        self.text = StreamedText(broken)
        self.annotations: list[object] = []
        self.done: Json | None = None


class StreamedItem:
    """A streamed output item; a phantom is an item without output_item.added."""

    __slots__ = ("added", "done", "id", "index", "parts", "phantom", "progress", "texts", "type")

    def __init__(self, index: int, added: Json, phantom: bool = False) -> None:
        self.index = index
        self.added = added
        self.id = added.get("id", ABSENT)
        self.type = _name(added.get("type"))
        self.phantom = phantom
        self.done: Json | None = None
        self.progress = -1
        self.parts: dict[str, dict[int, StreamedPart]] = {kind.index_key: {} for kind in schema.PART_KINDS}
        self.texts: dict[int, StreamedText] = {}


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


@dataclass(slots=True)
class StreamState:
    """The state of one stream.

    Attributes:
        report: collects the findings.
        request: the request body, if known.
        resumed: whether the stream begins in the middle; None if undecided.
        left: the number of characters that may still be kept; below 0 nothing is compared.
        head: the response of the first lifecycle event.
        phase: the rank of the latest of created, queued and in_progress.
        items: the items by output_index.
        latest: the item with the highest output_index.
        ids: the output_index of each item id and call id.
        ended: the type of the terminal event; None before it.
        failed: whether there was an error event.
    """

    report: Report
    request: Json | None
    resumed: bool | None
    left: int
    head: Json | None = None
    phase: int = 0
    items: dict[int, StreamedItem] = field(default_factory=dict)
    latest: StreamedItem | None = None
    ids: dict[str, int] = field(default_factory=dict)
    ended: str | None = None
    failed: bool = False

    def hold(self, cost: int) -> None:
        """Counts what is kept; beyond the limit, drops the items so that only the lifecycle is checked."""
        self.left -= cost
        if self.left < 0 and self.items:
            self.items, self.ids, self.latest = {}, {}, None
            self.resumed = True
            self.report.add(SE110, once="limit")


def require_in_progress(state: StreamState) -> None:
    """Checks that response.in_progress comes before the first item and before the end."""
    if state.phase < LAST_PHASE and not state.resumed:
        state.report.add(RS104, "$.type", once="in_progress")
        state.phase = LAST_PHASE


def open_item(state: StreamState, event: Json) -> StreamedItem | None:
    """Finds the open item of an event and checks its id; None if there is no such item."""
    index = event.get("output_index")
    if type(index) is not int:
        return None
    item = state.items.get(index)
    if item is None:
        return _missing_item(state, index, event)
    report = state.report
    if item.done is not None:
        once = (index, "late")
        report.add(rules.RS203, "$.output_index", "an open item", str(index), once=once, index=index)
        return None
    if "item_id" in event and event["item_id"] != item.id:
        if item.phantom and item.id is ABSENT:
            item.id = event["item_id"]
        else:
            once = (index, event["type"])
            report.add(rules.RS204, "$.item_id", brief(item.id), brief(event["item_id"]), once=once)
    return item


def _missing_item(state: StreamState, index: int, event: Json) -> StreamedItem | None:
    if state.left < 0:
        return None
    if not state.resumed:
        require_in_progress(state)
        expected = "response.output_item.added first"
        state.report.add(rules.RS202, "$.output_index", expected, str(index))
    known = {"id": event["item_id"]} if isinstance(event.get("item_id"), str) else {}
    item = state.items[index] = StreamedItem(index, known, phantom=True)
    if state.latest is None or index > state.latest.index:
        state.latest = item
    state.hold(NODE_COST)
    return item


def compare(
    report: Report,
    rule: Rule,
    left: object,
    right: object,
    path: str,
    ignore: frozenset[str] = schema.RESEALED_FIELDS,
) -> None:
    """Reports the first differences between two values that should be equal.

    Args:
        report: collects the findings.
        rule: the rule that the differences break.
        left: the expected value.
        right: the actual value.
        path: the JSON path of the actual value.
        ignore: keys that are ignored at every depth.
    """
    for number, difference in enumerate(differences(left, right, ignore=ignore, path=path)):
        if number == _MAX_DIFFERENCES:
            break
        report.add(rule, difference.path, brief(difference.left), brief(difference.right))
