"""The data that the pages are made from."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from packaging.version import Version

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.entry import Defect
from vllm_harness._scripted.families import Family
from vllm_harness.extras.site import workarounds
from vllm_harness.extras.site.scripts import ExportedDefect
from vllm_harness.extras.site.table import Column, Compatibility
from vllm_harness.extras.site.workarounds import Verdicts, Workaround
from vllm_harness.extras.triage.severity import SEVERITIES, severity_of
from vllm_harness.extras.triage.table import LETTERS, UNMEASURED, Table

CLASSES = ("defect", "deviation", "arguable", "feature gap")
SIGNS = {"x": "shows it", ".": "is right", "-": "has no such parser, flag or API", "?": "answers otherwise"}
BEGINNING = date(2026, 1, 1)
"""The date of defects that have no date of their own."""


@dataclass(frozen=True)
class Site:
    """The data that all pages are made from.

    Attributes:
        table: the compatibility table, made from parser regression runs.
        measured: which release shows which defect, as measured on servers.
        families: the model families, by name.
        entries: the model entries.
        exported: the report and script for defects, by defect id.
    """

    table: Compatibility
    measured: Table
    families: Mapping[str, Family]
    entries: tuple[ModelEntry, ...]
    exported: Mapping[str, ExportedDefect]

    @cached_property
    def shown_families(self) -> tuple[Family, ...]:
        """The families that occur in a run, sorted by the names of their models."""
        families = (self.families[name] for name in self.table.families if name in self.families)
        return tuple(sorted(families, key=lambda family: (model_name(family).casefold(), family.name)))

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(model_name(family) for family in self.shown_families)

    def label(self, family: Family) -> str:
        """The common name of a family's model, plus the family's name if several have the same model."""
        name = model_name(family)
        return name if self._names[name] < 2 else f"{name} ({family.name})"

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """All releases that were measured in a run or on a server, the newest first."""
        versions = {*self.measured.versions, *(column.version for column in self.table.columns)}
        return tuple(sorted(versions, key=Version, reverse=True))

    @cached_property
    def _verdicts(self) -> dict[str, Verdicts]:
        return {defect: self.measured.row(defect) for defect in self.table.defects}

    def verdicts(self, defect: Defect) -> Verdicts:
        """The verdict on a defect for each version on whose server it was measured."""
        return self._verdicts[defect.id]

    def is_known_of(self, defect: Defect, version: str) -> bool:
        """Whether a version has a defect, as measured on a server, or else according to its entry."""
        verdict = self.verdicts(defect).get(Version(version))
        return defect.holds_for(version) if verdict is None else verdict == "reproduced"

    def letters(self, defect: str) -> list[tuple[str, str]]:
        """The measured versions, each with the letter for the verdict on a defect."""
        letters = self.measured.verdicts.get(defect, "").ljust(len(self.measured.versions))
        return [
            (version, letter if letter in LETTERS.values() else UNMEASURED)
            for version, letter in zip(self.measured.versions, letters, strict=False)
        ]

    @cached_property
    def of_every_model(self) -> tuple[Defect, ...]:
        """The defects that do not depend on a parser or a model, the worst first."""
        defects = self.table.defects.values()
        return ordered(defect for defect in defects if not defect.families and not defect.models)

    def models_of(self, family: Family) -> tuple[ModelEntry, ...]:
        """The model entries for a family: its own, and those with the same parsers."""
        parsers = family.tool_parser, family.reasoning_parser
        return tuple(
            entry
            for entry in self.entries
            if entry.name == family.entry or (entry.tool_call_parser, entry.reasoning_parser) == parsers
        )

    def on_servers(self, family: Family, column: Column) -> tuple[Defect, ...]:
        """The defects that a family has on servers of a version, but that its runs did not show."""
        measured = self.table.families[family.name].get(column)
        shown = measured.shown.keys() if measured else ()
        names = {entry.name for entry in self.models_of(family)}
        return ordered(
            defect
            for defect in self.table.defects.values()
            if defect.id not in shown
            and column.frontend in defect.frontends
            and (family.name in defect.families or names & {*defect.models})
            and self.is_known_of(defect, column.version)
        )

    def around(self, defect: Defect, family: str, column: Column) -> list[Workaround]:
        """The workarounds for a defect of a family on a version."""
        measured = self.table.families[family].get(column)
        verdicts = self.verdicts(defect)
        if measured and defect.id in measured.shown:
            return workarounds.of_parser(self.table, defect, family, column, verdicts)
        return self.around_on_servers(defect, column.version)

    def around_on_servers(self, defect: Defect, version: str) -> list[Workaround]:
        """The workarounds for a defect that servers of a version show, whatever the model."""
        return workarounds.of_servers(defect, version, self.verdicts(defect))


def ordered(defects: Iterator[Defect]) -> tuple[Defect, ...]:
    """Sorts defects, the worst first."""
    return tuple(sorted(defects, key=rank))


def rank(defect: Defect) -> tuple[int, int, str]:
    """The sort key of a defect: its class, then its severity, then its id."""
    return CLASSES.index(defect.kind), SEVERITIES.index(severity_of(defect)), defect.id


def model_name(family: Family) -> str:
    """The common name of a family's model."""
    if "/" in family.model:
        return family.model.rpartition("/")[2]
    return family.model if " " not in family.model else family.name


def command(family: Family, entry: ModelEntry | None = None) -> str:
    """The command that serves a family's model with the family's parsers."""
    model = family.model if "/" in family.model else "MODEL"
    variables = [f"{name}={shlex.quote(value)}" for name, value in family.env.items()]
    words = [*variables, "vllm", "serve", model]
    if family.tool_parser:
        words += ["--enable-auto-tool-choice", "--tool-call-parser", family.tool_parser]
    if family.reasoning_parser:
        words += ["--reasoning-parser", family.reasoning_parser]
    if entry and entry.chat_template:
        words += ["--chat-template", entry.chat_template]
    return " ".join(words)


def request_fields(family: Family) -> str:
    """The fields that a family's requests need beyond OpenAI's, as JSON; empty if there are none."""
    return json.dumps(family.request, indent=2) if family.request else ""


def day_of(defect: Defect) -> date:
    """The date when a defect was last judged, or last searched for upstream."""
    return max(filter(None, (defect.judged, defect.upstream.searched_on)), default=BEGINNING)
