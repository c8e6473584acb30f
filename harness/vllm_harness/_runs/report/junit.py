"""Reports a run as JUnit XML, in the form that pytest writes (xunit2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.run import RecordedRun, counts, duration_s

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_SKIPPED = {
    Outcome.SKIPPED: "skipped",
    Outcome.KNOWN: "known defect",
    Outcome.NOT_JUDGED: "not judged",
}


def junit(run: RecordedRun) -> str:
    """Makes a suite for each target; a known defect becomes a skip that names it, as in pytest."""
    root = Element("testsuites", name=_xml(f"vllm-harness {run.header.kind}"))
    for target in run.targets.values():
        cases = [case for case in run.cases if case.target == target.id]
        suite = SubElement(root, "testsuite", _suite(run, target.id, cases))
        properties = SubElement(suite, "properties")
        for name, value in (("vllm", target.vllm), ("environment", target.environment)):
            SubElement(properties, "property", name=name, value=_xml(value))
        suite.extend(map(_case, cases))
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _suite(run: RecordedRun, name: str, cases: list[CaseRecord]) -> dict[str, str]:
    number = counts(cases)
    seconds = sum(case.seconds or 0 for case in cases)
    return {
        "name": _xml(name),
        "tests": str(len(cases)),
        "failures": str(number[Outcome.FINDING]),
        "errors": str(number[Outcome.CANCELLED]),
        "skipped": str(sum(number[outcome] for outcome in _SKIPPED)),
        "time": f"{seconds or duration_s(run):.3f}",
        "timestamp": datetime.fromtimestamp(run.header.started, UTC).isoformat(timespec="seconds"),
    }


def _case(case: CaseRecord) -> Element:
    element = Element(
        "testcase",
        classname=_xml(case.group or case.target),
        name=_xml(case.title or case.id.partition("::")[2] or case.id),
        time=f"{case.seconds or 0:.3f}",
    )
    if named := list(_properties(case)):
        properties = SubElement(element, "properties")
        for name, value in named:
            SubElement(properties, "property", name=name, value=_xml(value))
    if case.outcome is Outcome.FINDING:
        failure = SubElement(element, "failure", message=_xml(_message(case)))
        failure.text = _xml("\n".join([*(finding.text for finding in case.findings), case.details]).strip())
    elif case.outcome is Outcome.CANCELLED:
        SubElement(element, "error", message=_xml(case.reason or "it was interrupted")).text = _xml(
            case.details
        )
    elif case.outcome in _SKIPPED:
        defects = ", ".join(case.defects) if case.outcome is Outcome.KNOWN else ""
        message = ": ".join(filter(None, [defects, case.reason]))
        SubElement(element, "skipped", type=_SKIPPED[case.outcome], message=_xml(message))
    return element


def _properties(case: CaseRecord) -> Iterator[tuple[str, str]]:
    yield from (("defect", defect) for defect in case.defects)
    yield from (("covers", behaviour) for behaviour in case.covers)
    if case.attempts > 1:
        yield "attempts", str(case.attempts)


def _message(case: CaseRecord) -> str:
    return case.reason or next((finding.text for finding in case.findings), "a finding")


def _xml(text: str) -> str:
    """Escapes the characters that XML does not allow."""
    return _NOT_XML.sub(lambda match: ascii(match[0])[1:-1], text)
