"""Known deviations: findings that some versions of vLLM must show."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict

from vllm_harness._protocol.core.errors import ProtocolInputError

if TYPE_CHECKING:
    from vllm_harness._protocol.core.findings import Finding


def _checked_code(code: str) -> str:
    from vllm_harness._protocol.rules import RULES, UNCOVERED  # all modules with rules

    if code not in RULES and code[:2] not in UNCOVERED:
        raise ValueError(f"no rule has the code {code!r}; vllm-harness validate explain lists all codes")
    return code


def _checked_specifier(versions: str) -> str:
    try:
        SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise ValueError(f"not a version specifier such as '>=0.22,<0.26': {versions!r}") from error
    return versions


RuleCode = Annotated[str, AfterValidator(_checked_code)]
Versions = Annotated[str, AfterValidator(_checked_specifier)]
"""A PEP 440 version specifier (`>=0.22,<0.26`); empty for all versions."""


@cache
def holds(versions: str, version: str) -> bool:
    """Whether a version specifier matches a version, such as `0.32.0`.

    Raises:
        ProtocolInputError: `version` is not a valid version.
    """
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion as error:
        raise ProtocolInputError(f"{version!r} is not a valid version") from error


class KnownDeviation(BaseModel):
    """A deviation from the published API that a person has reviewed.

    Attributes:
        code: the code of the finding.
        reference: where the deviation is reported (`vllm#46940`).
        versions: the versions that have it, as a PEP 440 specifier (`<0.26`); empty for all.
        note: a sentence that describes the deviation.
        path: the JSON path, with `*` for any part of it; empty for any path.
        expected: the expected value of the finding, as JSON, with `*` for any part of it; empty for any.
        kind: the type of the object at the path, such as `reasoning`; empty for any.

    Raises:
        ValidationError: `versions` is not a version specifier, or no rule has the code.
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
        """Whether the deviation is expected on a version. Raises the same error as `holds`."""
        return holds(self.versions, version)

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is this deviation."""
        return (
            finding.code == self.code
            and (not self.path or fnmatchcase(_plain_path(finding.path), _plain_path(self.path)))
            and (not self.expected or fnmatchcase(finding.expected, self.expected))
            and self.kind in ("", finding.kind)
        )


def _plain_path(path: str) -> str:
    """A JSON path whose brackets `fnmatch` does not read as a set of characters."""
    return path.replace("[", "(").replace("]", ")")
