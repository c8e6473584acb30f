"""Known deviations: findings that are expected on some versions, and whose end is itself a finding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict

from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._protocol.core.rules import KD101


def _of_a_rule(code: str) -> str:
    from vllm_harness._protocol.rules import RULES, UNCOVERED  # all modules with rules

    if code not in RULES and code[:2] not in UNCOVERED:
        raise ValueError(f"no rule has the code {code!r}; vllm-harness validate explain lists all codes")
    return code


def _a_specifier(versions: str) -> str:
    try:
        SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise ValueError(f"not a version specifier such as '>=0.22,<0.26': {versions!r}") from error
    return versions


RuleCode = Annotated[str, AfterValidator(_of_a_rule)]
Versions = Annotated[str, AfterValidator(_a_specifier)]
"""A PEP 440 specifier of versions (`>=0.22,<0.26`); empty for all."""


@cache
def holds(versions: str, version: str) -> bool:
    """Whether a specifier holds for a version, such as `0.32.0`.

    Raises:
        ProtocolInputError: `version` is no version.
    """
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion as error:
        raise ProtocolInputError(f"{version!r} is no version") from error


class KnownDeviation(BaseModel):
    """A deviation from the published API that a person has judged.

    Attributes:
        code: code of the finding.
        reference: where it is reported (`vllm#46940`).
        versions: versions it holds for, as a PEP 440 specifier (`<0.26`); empty for all.
        note: one sentence.
        path: JSON path, `*` for any part of it; empty for any path.
        expected: what the finding says was expected, as JSON, `*` for any part of it; empty for anything.
        kind: type of the object that the path lies in, such as `reasoning`; empty for any.

    Raises:
        ValidationError: `versions` is no specifier, or no rule has the code.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    code: RuleCode
    reference: str
    versions: Versions
    note: str
    path: str = ""
    expected: str = ""
    kind: str = ""

    def holds_for(self, version: str) -> bool:
        """Whether it is expected on a version; raises as `holds`."""
        return holds(self.versions, version)

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this deviation."""
        return (
            finding.code == self.code
            and (not self.path or fnmatchcase(_plain_path(finding.path), _plain_path(self.path)))
            and (not self.expected or fnmatchcase(finding.expected, self.expected))
            and self.kind in ("", finding.kind)
        )


def apply_known(
    findings: Iterable[Finding],
    deviations: Sequence[KnownDeviation],
    version: str,
    *,
    exercised: Collection[str] = (),
) -> list[Finding]:
    """Marks known findings, and reports deviations that have gone.

    A stream alone cannot tell that a deviation is gone: it may just not have come by what shows it. The
    caller collects the findings of a whole run and names the deviations which the run was sure to come by.

    Args:
        findings: of one stream or of a whole run.
        deviations: the known ones.
        version: version of the server.
        exercised: references of the deviations which the run was sure to show if they were still there.

    Returns:
        All findings, those of a deviation that holds for this version with `known` set; then KD101 for every
        exercised deviation that holds for this version and did not occur.

    Raises:
        ProtocolInputError: `version` is no version.
    """
    expected = [deviation for deviation in deviations if deviation.holds_for(version)]
    seen: set[KnownDeviation] = set()
    marked = []
    for finding in findings:
        match = next((deviation for deviation in expected if deviation.covers(finding)), None)
        if match is not None:
            seen.add(match)
            finding = replace(finding, known=match.reference)
        marked.append(finding)
    gone = [known for known in expected if known.reference in exercised and known not in seen]
    return marked + [
        KD101.finding(
            known.path or "$",
            f"{known.code} on {known.versions or 'every version'}",
            "nothing",
            code=known.code,
            reference=known.reference,
            version=version,
        )
        for known in gone
    ]


def _plain_path(path: str) -> str:
    """A JSON path whose brackets are not taken for a set of characters."""
    return path.replace("[", "(").replace("]", ")")
