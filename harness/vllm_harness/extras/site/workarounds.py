"""Ways around a defect, each taken from what was measured: where the same cases do not show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from vllm_harness._defects.entry import Defect, FailureSelector
from vllm_harness._defects.repro.severity import severity_of
from vllm_harness._defects.repro.verdict import Verdict
from vllm_harness._regression.cases.delivery import Chunking, Delivery
from vllm_harness.extras.site.features import Feature, is_token_by_token
from vllm_harness.extras.site.table import Column, Compatibility, DefectFailures

MOST_BACK = 3
"""How many minor releases back one is still worth a thought."""
_GUARDS = {
    "wrong data": "check what comes against your own schema before you act on it; nothing else shows it",
    "lost data": "keep the text beside the calls, and ask again where an expected call is missing",
    "broken output": "parse the arguments before you run a call; what is no JSON is a failed answer",
    "error": "catch the error, and ask again",
    "delay": "set a time limit in the client",
}
Verdicts = Mapping[Version, Verdict]


@dataclass(frozen=True)
class Workaround:
    """What to do, and what says that it helps.

    Attributes:
        what: in the imperative, without a full stop.
        why: what was measured.
        avoids: whether the defect does not show then; else a client only notices it.
    """

    what: str
    why: str
    avoids: bool = True


_UNFORCED = Workaround(
    "leave `tool_choice` at `auto`, without strict tools", "it shows only where a request constrains calls"
)


def of_parser(
    table: Compatibility, defect: Defect, family: str, column: Column, verdicts: Verdicts
) -> list[Workaround]:
    """The ways around a defect that a family's parsers show, the least intrusive first.

    Args:
        table: what works where.
        defect: which.
        family, column: where a run shows it.
        verdicts: what servers of each version were measured to do.
    """
    shown = table.families[family][column].shown[defect.id]
    found = [*_of_request(shown), *_of_frontend(table, defect, family, column)]
    if other := _other_release(table, defect, family, column, shown, verdicts):
        found.append(other)
    return found or [*_guard(defect)]


def of_servers(defect: Defect, version: str, verdicts: Verdicts) -> list[Workaround]:
    """The ways around a defect that servers show, whatever the model.

    Args:
        defect: which.
        version: that shows it.
        verdicts: what servers of each version were measured to do.
    """
    found = [*_of_entry(defect)]
    if other := _measured_elsewhere(version, verdicts):
        found.append(other)
    return found or [*_guard(defect)]


def _of_request(shown: DefectFailures) -> Iterator[Workaround]:
    """What another request avoids."""
    deliveries = shown.deliveries
    streamed = [delivery for delivery in deliveries if delivery.is_streamed]
    if all(delivery.shape is Chunking.HELD_BACK for delivery in deliveries):
        yield Workaround(
            "send no `stop` strings with a streamed request",
            "it shows only where text is held back for a stop string",
        )
    elif len(streamed) == len(deliveries):
        yield Workaround("do not stream", "it does not show where the same cases are not streamed")
    elif not streamed:
        yield Workaround("stream the answer", "it does not show where the same cases are streamed")
    if len(streamed) == len(deliveries) and not any(map(is_token_by_token, streamed)):
        yield Workaround(
            "keep a stream to one token a step: no speculative decoding, no `--stream-interval` above 1",
            "it shows only where several tokens arrive at once, as they also may under load",
        )
    if shown.features == {Feature.FORCED}:
        yield _UNFORCED


def _of_frontend(table: Compatibility, defect: Defect, family: str, column: Column) -> Iterator[Workaround]:
    other = Column(column.version, "rust" if column.frontend == "python" else "python")
    if _is_free(table, defect, family, other, table.families[family][column].shown[defect.id]):
        name = other.frontend.capitalize()
        yield Workaround(f"use {name}'s front end", f"{other.label} ran the same cases and does not show it")


def _is_free(
    table: Compatibility, defect: Defect, family: str, column: Column, shown: DefectFailures
) -> bool:
    """Whether a column ran the groups of cases that show a defect, and does not show it."""
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
    if other := _nearest((Version(each.version) for each in free), column.version):
        return Workaround(f"use vLLM {other}", f"{other} ran the same cases and does not show it")
    return _measured_elsewhere(column.version, verdicts)


def _measured_elsewhere(version: str, verdicts: Verdicts) -> Workaround | None:
    if other := _nearest((each for each, verdict in verdicts.items() if verdict == "fixed"), version):
        return Workaround(f"use vLLM {other}", f"a server of {other} was measured to be right")
    return None


def _nearest(versions: Iterable[Version], version: str) -> Version | None:
    """The first later one, else the last earlier one that is not far back."""
    ordered, here = sorted(versions), Version(version)
    later = [each for each in ordered if each > here]
    near = [each for each in ordered if (each.major, each.minor + MOST_BACK) >= (here.major, here.minor)]
    return later[0] if later else near[-1] if near else None


def _of_entry(defect: Defect) -> Iterator[Workaround]:
    """What its entry says of where it shows."""
    if not defect.failures and len(defect.apis) == 1 and defect.apis[0] in ("responses", "messages"):
        yield Workaround("use Chat Completions", "it is a fault of the code of the other API")
    if defect.failures and all(_is_streamed_only(each) for each in defect.failures):
        yield Workaround("do not stream", "its entry names streams alone")
    if defect.failures and all(each.groups == ("forced",) for each in defect.failures):
        yield _UNFORCED


def _is_streamed_only(selector: FailureSelector) -> bool:
    return bool(selector.deliveries) and all(Delivery.parse(code).is_streamed for code in selector.deliveries)


def _guard(defect: Defect) -> Iterator[Workaround]:
    if guard := _GUARDS.get(severity_of(defect)):
        yield Workaround(guard, "no release, delivery or request that was measured avoids it", avoids=False)
