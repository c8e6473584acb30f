"""Known deviations of models.yaml that have gone: a full run was sure to come by them and did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vllm_harness.protocol import Finding, KnownDeviation, apply_known

# the suites, relative to the checkout
SUITES = ("tests/behaviours", "tests/harmony", "tests/standard", "tests/defects")


def has_every_suite(root: Path, arguments: Iterable[str], ignored: Iterable[str], start: Path) -> bool:
    """Whether what pytest was asked to run holds all the suites, whole.

    Args:
        root: pytest's root folder.
        arguments: files, folders or node ids as pytest was given them.
        ignored: files or folders that it was told to leave out.
        start: the folder they are relative to.
    """
    folders = [(start / argument).resolve() for argument in arguments if "::" not in argument]
    suites = [(root / suite).resolve() for suite in SUITES]
    left_out = [(start / path).resolve() for path in ignored]
    return all(
        suite.is_dir()
        and any(suite.is_relative_to(folder) for folder in folders)
        and not any(suite.is_relative_to(path) or path.is_relative_to(suite) for path in left_out)
        for suite in suites
    )


def gone(known: Sequence[KnownDeviation], version: str, seen: Iterable[Finding]) -> list[str]:
    """What to say of each deviation that a full run did not see (KD101); see `session.Run.find_gone`.

    Args:
        known: the entry's, of all versions.
        version: version of the server.
        seen: one finding at least of each code and path.
    """
    every = {deviation.reference for deviation in known}
    findings = apply_known(seen, known, version, exercised=every)
    return [finding.text for finding in findings if finding.code == "KD101"]
