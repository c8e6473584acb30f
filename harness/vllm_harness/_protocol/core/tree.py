"""A stream drawn as its stack: an indented tree, each finding under the event it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_harness._protocol.core.events import AnyEvent, as_json
from vllm_harness._protocol.core.findings import Finding, brief

MAX_LINES = 80
_AROUND = 6


def draw(events: Iterable[AnyEvent], findings: Sequence[Finding] = ()) -> str:
    """The stack of a stream as text.

    Args:
        events: the stream; runs of deltas are drawn as one line.
        findings: drawn under the event they are about; those of the whole stream at the end.

    Returns:
        Lines; of a long stream those around the findings.
    """
    of_event: dict[int | None, list[Finding]] = {}
    for finding in findings:
        of_event.setdefault(finding.event_index, []).append(finding)
    lines: list[tuple[str, bool]] = []
    run: list[Mapping[str, Any]] = []
    first = 0
    for index, event in enumerate(events):
        value = as_json(event) or {"type": "(no JSON object)"}
        if run and (index in of_event or _place(value) != _place(run[-1])):
            lines.append((_line(first, run), False))
            run = []
        first = first if run else index
        run.append(value)
        if index in of_event or not str(value.get("type")).endswith((".delta", "_block_delta")):
            lines.append((_line(first, run), False))
            run = []
        indent = "  " * (_depth(value) + 1)
        lines += [(f"{' ' * 6}{indent}^ {finding.text}", True) for finding in of_event.pop(index, ())]
    if run:
        lines.append((_line(first, run), False))
    lines += [(f"  ^ {finding.text}", True) for rest in of_event.values() for finding in rest]
    return "\n".join(_window(lines))


def _depth(event: Mapping[str, Any]) -> int:
    kind = str(event.get("type"))
    if kind.startswith("content_block_"):
        return 2 if kind == "content_block_delta" else 1
    if kind.startswith("response.output_item.") or "output_index" not in event:
        return 1 if "output_index" in event else 0
    inner = any(key in event for key in ("content_index", "summary_index", "command_index"))
    of_part = kind.endswith(("_part.added", "_part.done"))
    return 3 if inner and not of_part else 2


def _place(event: Mapping[str, Any]) -> tuple[object, ...]:
    keys = ("type", "output_index", "content_index", "summary_index", "command_index", "item_id", "index")
    return tuple(brief(event.get(key)) for key in keys)


def _line(first: int, run: Sequence[Mapping[str, Any]]) -> str:
    event = run[0]
    name = str(event.get("type") or event.get("object") or "event").removeprefix("response.")
    item = event.get("item")
    places = [f"@{event['output_index']}"] if "output_index" in event else []
    if isinstance(item, dict):
        places.append(f"{item.get('type')} {item.get('id')} {item.get('status') or ''}".rstrip())
    elif "choices" in event:
        places.append(brief(event["choices"]))
    if len(run) > 1:
        places.append(f"x{len(run)}")
    if isinstance(event.get("delta"), str):
        places.append(brief("".join(str(delta.get("delta")) for delta in run)))
    return f"{first:5d} {'  ' * _depth(event)}{name} {' '.join(places)}".rstrip()


def _window(lines: Sequence[tuple[str, bool]]) -> list[str]:
    if len(lines) <= MAX_LINES:
        return [text for text, _ in lines]
    marked = [number for number, (_, marks) in enumerate(lines) if marks][: MAX_LINES // _AROUND] or [0]
    shown = sorted(
        {near for at in marked for near in range(at - _AROUND, at + _AROUND // 2)} & set(range(len(lines)))
    )
    drawn: list[str] = []
    for before, number in zip([-1, *shown], shown, strict=False):
        if number != before + 1:
            drawn.append("      ...")
        drawn.append(lines[number][0])
    return drawn if shown[-1] == len(lines) - 1 else [*drawn, "      ..."]
