"""Workarounds for a defect, from measurements in which the same cases do not show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from vllm_harness._defects.entry import Defect, FailureSelector
from vllm_harness._defects.repro.verdict import Verdict
from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness.extras.site.features import Feature, is_token_by_token
from vllm_harness.extras.site.table import Column, Compatibility, DefectFailures
from vllm_harness.extras.triage.severity import severity_of

MOST_BACK = 3
"""An earlier release is suggested only if it is at most this many minor releases back."""
_GUARDS = {
    "wrong data": "validate each answer with your schema before you use it; nothing else shows the defect",
    "lost data": "store the text with the calls, and send the request again if an expected call is missing",
    "broken output": "parse the arguments before you run a call; treat invalid JSON as a failed answer",
    "error": "catch the error, and send the request again",
    "delay": "set a time limit in the client",
}
Verdicts = Mapping[Version, Verdict]


@dataclass(frozen=True)
class Workaround:
    """What to do about a defect, and the evidence that it helps.

    Attributes:
        what: the instruction, without a full stop.
        why: the evidence that was measured.
        avoids: whether it avoids the defect; if not, a client only notices the defect.
    """

    what: str
    why: str
    avoids: bool = True


_UNFORCED = Workaround(
    "leave `tool_choice` at `auto`, without strict tools", "it shows only if a request constrains calls"
)


def of_parser(
    table: Compatibility, defect: Defect, family: str, column: Column, verdicts: Verdicts
) -> list[Workaround]:
    """The workarounds for a defect of a family's parsers, the least intrusive first.

    Args:
        table: the compatibility table.
        defect: the defect.
        family, column: the family and the version that show it.
        verdicts: the verdict on the defect for each version, measured on servers.
    """
    shown = table.families[family][column].shown[defect.id]
    found = [*_of_request(shown), *_of_frontend(table, defect, family, column)]
    if other := _other_release(table, defect, family, column, shown, verdicts):
        found.append(other)
    return found or [*_guard(defect)]


def of_servers(defect: Defect, version: str, verdicts: Verdicts) -> list[Workaround]:
    """The workarounds for a defect that servers show, whatever the model.

    Args:
        defect: the defect.
        version: the version that shows it.
        verdicts: the verdict on the defect for each version, measured on servers.
    """
    found = [*_of_entry(defect)]
    if other := _measured_elsewhere(version, verdicts):
        found.append(other)
    return found or [*_guard(defect)]


def _of_request(shown: DefectFailures) -> Iterator[Workaround]:
    """The workarounds that consist of changing the request or the stream."""
    deliveries = shown.deliveries
    streamed = [delivery for delivery in deliveries if delivery.is_streamed]
    if all(delivery.shape is Chunking.HELD_BACK for delivery in deliveries):
        yield Workaround(
            "send no `stop` strings with a streamed request",
            "it shows only if the server holds back text for a stop string",
        )
    elif len(streamed) == len(deliveries):
        yield Workaround("do not stream", "it does not show if the same cases are not streamed")
    elif not streamed:
        yield Workaround("stream the answer", "it does not show if the same cases are streamed")
    if len(streamed) == len(deliveries) and not any(map(is_token_by_token, streamed)):
        yield Workaround(
            "limit streams to one token a step: no speculative decoding, no `--stream-interval` above 1",
            "it shows only if several tokens arrive at once, which may also happen under load",
        )
    if shown.features == {Feature.FORCED}:
        yield _UNFORCED


def _of_frontend(table: Compatibility, defect: Defect, family: str, column: Column) -> Iterator[Workaround]:
    other = Column(column.version, "rust" if column.frontend == "python" else "python")
    if _is_free(table, defect, family, other, table.families[family][column].shown[defect.id]):
        name = other.frontend.capitalize()
        yield Workaround(
            f"use the front end in {name}", f"{other.label} ran the same cases and does not show it"
        )


def _is_free(
    table: Compatibility, defect: Defect, family: str, column: Column, shown: DefectFailures
) -> bool:
    """Whether a column ran the case groups in which a defect shows elsewhere, but does not show it."""
    measured = table.families[family].get(column)
    if measured is None or measured.start_error or defect.id in measured.shown:
        return False
    return {failure.group for failure in shown.failures} <= measured.groups.keys()


def _other_release(
    table: Compatibility,
    defect: Defect,
    family: str,
    column: Column,
    shown: DefectFailures,
    verdicts: Verdicts,
) -> Workaround | None:
    free = [
        other
        for other in table.columns
        if other.frontend == column.frontend and _is_free(table, defect, family, other, shown)
    ]
    if other := _nearest((Version(column.version) for column in free), column.version):
        return Workaround(f"use vLLM {other}", f"{other} ran the same cases and does not show it")
    return _measured_elsewhere(column.version, verdicts)


def _measured_elsewhere(version: str, verdicts: Verdicts) -> Workaround | None:
    if other := _nearest((each for each, verdict in verdicts.items() if verdict == "fixed"), version):
        return Workaround(f"use vLLM {other}", f"a server of {other} was measured, and does not show it")
    return None


def _nearest(versions: Iterable[Version], version: str) -> Version | None:
    """The first later version, or else the latest earlier one that is not too old."""
    ordered, here = sorted(versions), Version(version)
    later = [version for version in ordered if version > here]
    near = [
        version
        for version in ordered
        if (version.major, version.minor + MOST_BACK) >= (here.major, here.minor)
    ]
    return later[0] if later else near[-1] if near else None


def _of_entry(defect: Defect) -> Iterator[Workaround]:
    """The workarounds that follow from a defect's entry."""
    if not defect.failures and len(defect.apis) == 1 and defect.apis[0] in ("responses", "messages"):
        yield Workaround("use Chat Completions", "the fault is in the code of the other API")
    if defect.failures and all(_is_streamed_only(failure) for failure in defect.failures):
        yield Workaround("do not stream", "its entry names streams only")
    if defect.failures and all(failure.groups == ("forced",) for failure in defect.failures):
        yield _UNFORCED


def _is_streamed_only(selector: FailureSelector) -> bool:
    return bool(selector.deliveries) and all(Delivery.parse(code).is_streamed for code in selector.deliveries)


def _guard(defect: Defect) -> Iterator[Workaround]:
    if guard := _GUARDS.get(severity_of(defect)):
        yield Workaround(guard, "no measured release, delivery or request avoids it", avoids=False)
