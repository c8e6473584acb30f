"""The table of verdicts by defect and version: made from runs, stored in a file, used to update entries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml
from packaging.version import Version

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import ENTRIES, Defects
from vllm_harness._defects.repro.verdict import Measured, Verdict, expected_verdict
from vllm_harness._files.strict import StrictModel

FILE = ENTRIES.with_name("measured.yaml")
LETTERS: dict[Verdict, str] = {
    "reproduced": "x",
    "fixed": ".",
    "not applicable": "-",
    "other failure": "?",
}
UNMEASURED = " "
HEADING = """\
# Which release shows which defect, as measured on servers. Made by `vllm-harness repro table RUN... --write`.
# x: shows it; .: is right; -: lacks the parser, flag or API; ?: answers otherwise; blank: not measured.
"""
_VERSIONS = re.compile(r"^versions:.*\n", re.MULTILINE)
_BEFORE = re.compile(
    r"^(?:upstream|request|says|expected|actual|pattern|deviations|failures|repro|evidence):", re.M
)


class Table(StrictModel):
    """A table of verdicts.

    Attributes:
        versions: the versions of the columns, oldest first.
        verdicts: the rows by defect id: strings with a letter of `LETTERS` for each version.
    """

    versions: tuple[str, ...]
    verdicts: dict[str, str]

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> Table:
        """Makes the table of verdicts; the last verdict for a cell counts."""
        return cls._of_cells({(each.id, each.version): LETTERS[each.verdict] for each in measured})

    @classmethod
    def _of_cells(cls, cells: Mapping[tuple[str, str], str]) -> Table:
        versions = sorted({version for _, version in cells}, key=Version)
        ids = sorted({defect for defect, _ in cells})
        rows = {defect: "".join(cells.get((defect, each), UNMEASURED) for each in versions) for defect in ids}
        return cls(versions=tuple(versions), verdicts=rows)

    @classmethod
    def read(cls, path: Path = FILE) -> Table:
        """Reads the table from a file."""
        return cls.model_validate(yaml.safe_load(path.read_text()))

    def with_later(self, later: Table, kept: Collection[str]) -> Table:
        """Replaces cells with those that were measured later.

        Args:
            later: the table of later measurements.
            kept: the ids whose rows are kept, so that the rows of removed entries are dropped.
        """
        cells = {place: letter for place, letter in self._cells().items() if place[0] in kept}
        return self._of_cells({**cells, **later._cells()})

    def _cells(self) -> dict[tuple[str, str], str]:
        return {
            (defect, version): letter
            for defect, row in self.verdicts.items()
            for version, letter in zip(self.versions, row, strict=False)
            if letter != UNMEASURED
        }

    def write(self, path: Path = FILE) -> None:
        """Writes the table to a file."""
        rows = "".join(f"  {defect}: {row!r}\n" for defect, row in self.verdicts.items())
        path.write_text(f"{HEADING}versions: [{', '.join(self.versions)}]\nverdicts:\n{rows}")

    def row(self, defect: str) -> dict[Version, Verdict]:
        """The measured verdicts of a defect by version."""
        verdicts = {letter: verdict for verdict, letter in LETTERS.items()}
        letters = zip(self.versions, self.verdicts.get(defect, ""), strict=False)
        return {Version(version): verdicts[letter] for version, letter in letters if letter in verdicts}


def specifier(verdicts: Mapping[Version, Verdict]) -> str | None:
    """Makes the PEP 440 specifier of the versions that show a defect; None if no version does.

    A version between two measured versions counts as the older of them.
    """
    ordered = sorted(version for version, verdict in verdicts.items() if verdict in ("reproduced", "fixed"))
    showing = [version for version in ordered if verdicts[version] == "reproduced"]
    if not showing:
        return None
    parts = [f">={_short(showing[0])}"]
    for version in ordered:
        if version > showing[-1]:
            parts.append(f"<{_short(version)}")
            break
        if version > showing[0] and verdicts[version] == "fixed":
            parts.append(f"!={_short(version)}.*")
    return ",".join(parts)


def contradicted(defects: Defects, table: Table) -> dict[str, dict[Version, Verdict]]:
    """Finds the verdicts, reproduced or fixed, that contradict the versions of their entries, by id."""
    contradictions = {}
    for defect in defects.values():
        wrong: dict[Version, Verdict] = {
            version: verdict
            for version, verdict in table.row(defect.id).items()
            if verdict in ("reproduced", "fixed") and verdict != expected_verdict(defect, str(version))
        }
        if wrong:
            contradictions[defect.id] = wrong
    return contradictions


def write_versions(defect: Defect, versions: str, folder: Path = ENTRIES) -> None:
    """Writes the versions of an entry into its file, and leaves the rest unchanged."""
    path = folder / f"{defect.id}.yaml"
    text = path.read_text()
    line = f"versions: '{versions}'\n"
    if _VERSIONS.search(text):
        path.write_text(_VERSIONS.sub(line, text, count=1))
    elif place := _BEFORE.search(text):
        path.write_text(text[: place.start()] + line + text[place.start() :])


def _short(version: Version) -> str:
    return f"{version.major}.{version.minor}"
