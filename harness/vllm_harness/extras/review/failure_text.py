"""Shows a failure as text: what the model writes, in which chunks, what came, and what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_harness._terminal.tables import escaped
from vllm_harness.extras.review.verdict import FailureKind, Message, Parting, ShownFailure, Step

WIDTH = 80
_LONGEST = 600
"""The longest text of a model that is shown whole, in characters."""
_BEFORE, _AFTER = 3, 2
"""How many chunks to show before and after the first wrong one."""
_FAMILIES = 6
_STANDARD = {
    "the meaning": "expected, from what the model means",
    "the first delivery": "expected, as when the answer is not streamed",
}
_PLACES = {
    "every_cut": "in two chunks, cut after token {}",
    "random_cuts": "in chunks of random sizes, drawn with seed {}",
    "whole": "at once, not streamed",
    "all": "in one chunk, and the token that ends the turn in another",
    "all_with_end": "in one chunk, with the token that ends the turn",
    "held_back": "token by token, its text held back as for a stop string",
}


def kind_lines(number: int, kind: FailureKind, width: int = WIDTH) -> Iterator[str]:
    """Yields the lines that show a kind of failure by its example.

    Args:
        number: the number of the kind, from 1 on.
        kind: the kind.
        width: the width of the lines, which only commands exceed.
    """
    every = sum(kind.cases.values())
    yield f"{number}. {kind.title} ({kind.severity}): {every} {'case' if every == 1 else 'cases'}"
    yield from (f"   {line}" for line in failure_lines(kind.example, width - 3))
    if every > 1:
        families = [f"{family} {count}" for family, count in kind.cases.items()]
        more = f" and {len(families) - _FAMILIES} more families" if len(families) > _FAMILIES else ""
        yield from _folded("   All cases: ", ", ".join(families[:_FAMILIES]) + more, width)


def failure_lines(failure: ShownFailure, width: int = WIDTH) -> Iterator[str]:
    """Yields the lines that show one failure."""
    yield f"{failure.family}, {failure.group}: {escaped(failure.case)}"
    if failure.text:
        yield "the model writes:"
        yield from _folded("  ", _abridged(failure.text), width)
        yield f"it arrives {_place(failure.delivery)}"
    if failure.steps:
        yield from _step_lines(failure, width)
    yield f"{_STANDARD.get(failure.standard, 'expected')}:"
    yield from _message_lines(failure.expected, width)
    yield "came:"
    yield from _message_lines(failure.actual, width)
    if failure.parting:
        yield from _parting_lines(failure.parting, width)
    if failure.command:
        yield "show it again:"
        yield f"  {failure.command}"


def _place(delivery: str) -> str:
    shape, _, at = delivery.partition(", ")
    api, _, chunks = shape.rpartition(":")
    words = _PLACES.get(chunks)
    if chunks.startswith("tokens_"):
        size, _, end = chunks.removeprefix("tokens_").partition("_")
        words = "token by token" if size == "1" else f"in chunks of {size} tokens"
        words += ", the end of the turn in the last" if end else ""
    words = (words or chunks).format(int(at) - 1 if chunks == "random_cuts" and at else at)
    return f"{words}, over {api}" if api else words


def _step_lines(failure: ShownFailure, width: int) -> Iterator[str]:
    """A line for each chunk; of many, only those around the first wrong one."""
    steps = failure.steps
    wrong = failure.parting.chunk if failure.parting else None
    first, last = _shown(len(steps), wrong)
    yield "chunk by chunk (what the model writes -> what vLLM sends; > is wrong):"
    if first > 1:
        yield f"  ... {first - 1} chunks before, all right so far"
    for number in range(first, last + 1):
        mark = ">" if number == wrong else " "
        yield from _folded(f" {mark}{number:3} ", _step(steps[number - 1]), width)
    if last < len(steps):
        yield f"  ... {len(steps) - last} more chunks"


def _shown(count: int, wrong: int | None) -> tuple[int, int]:
    if count <= _BEFORE + _AFTER + 3:
        return 1, count
    middle = wrong or count
    first = max(1, min(middle - _BEFORE, count - _BEFORE - _AFTER))
    return first, min(count, first + _BEFORE + _AFTER)


def _step(step: Step) -> str:
    texts = (("reasoning", step.reasoning), ("text", step.content))
    sent = [f"{name} {text!r}" for name, text in texts if text]
    for call in step.calls:
        details = (call.name or "", repr(call.arguments) if call.arguments else "")
        sent.append(" ".join(filter(None, (f"call {call.index}", *details))))
    return f"{step.text!r} -> {', '.join(sent) or 'nothing'}"


def _message_lines(message: Message, width: int) -> Iterator[str]:
    texts = (("reasoning", message.reasoning), ("text", message.content))
    lines = [f"{name}: {text!r}" for name, text in texts if text]
    for number, (name, arguments) in enumerate(message.calls):
        lines.append(f"call {number}: {name or 'without a name'} {escaped(arguments)}")
    lines += [*filter(None, [message.rule]), *message.error.splitlines()]
    for line in lines or ["an empty answer"]:
        yield from _folded("  ", _abridged(line), width)


def _parting_lines(parting: Parting, width: int) -> Iterator[str]:
    chunk = f", from chunk {parting.chunk} on" if parting.chunk else ""
    yield f"they part in {parting.where}{chunk}:"
    if parting.common:
        yield from _folded("  after     ", repr(parting.common), width)
    for name, text in (("expected", parting.expected), ("came", parting.actual)):
        yield from _folded(f"  {name:10}", repr(text) if text else "nothing more", width)


def _abridged(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"


def _folded(start: str, text: str, width: int) -> Iterator[str]:
    """A text in lines of at most this width; the further lines are indented like the first."""
    room = max(20, width - len(start))
    lines = [piece for line in text.split("\n") for piece in _pieces(escaped(line), room)] or [""]
    yield f"{start}{lines[0]}"
    yield from (f"{' ' * len(start)}{line}" for line in lines[1:])


def _pieces(line: str, room: int) -> Sequence[str]:
    return [line[place : place + room] for place in range(0, len(line), room)] or [""]
