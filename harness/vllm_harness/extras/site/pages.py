"""Makes the pages of the site as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vllm_harness._defects.entry import Defect, ReproStep
from vllm_harness._defects.repro.reproducer import is_reproducible
from vllm_harness._regression.results.selections import Failure, selections_of
from vllm_harness._scripted.families import Family
from vllm_harness.extras.site.changes import changes_of
from vllm_harness.extras.site.features import Feature
from vllm_harness.extras.site.paths import (
    defect_page,
    model_feed,
    model_page,
    release_page,
    report_file,
    rule_page,
    script_file,
)
from vllm_harness.extras.site.render import rendered
from vllm_harness.extras.site.site import (
    CLASSES,
    SIGNS,
    Site,
    command,
    model_name,
    ordered,
    request_fields,
)
from vllm_harness.extras.site.table import Column, DefectFailures, FamilyOnVersion, FeatureState, is_minor
from vllm_harness.extras.triage.severity import severity_of

UPSTREAM = "https://github.com/vllm-project/vllm/issues/"
MOST_FAILURES = 20
"""The maximum number of failures not explained by a defect that a page shows for a version."""


def pages(site: Site) -> Iterator[tuple[str, str]]:
    """The path and Markdown of each page of the site, except those of the manual."""
    common = _common(site)
    yield "index.md", rendered("index.md.jinja", "index.md", common)
    for family in site.shown_families:
        page = model_page(family.name)
        yield page, rendered("model.md.jinja", page, {**common, **_model(site, family)})
    yield "defects/index.md", rendered("defects.md.jinja", "defects/index.md", {**common, **_defects(site)})
    for defect in site.table.defects.values():
        page = defect_page(defect.id)
        yield page, rendered("defect.md.jinja", page, {**common, **_defect(site, defect)})
    yield (
        "releases/index.md",
        rendered("releases.md.jinja", "releases/index.md", {**common, **_releases(site)}),
    )
    for version in site.versions:
        page = release_page(version)
        yield page, rendered("release.md.jinja", page, {**common, **_release(site, version)})


def rule_addition(site: Site, code: str) -> str:
    """The text to add to a rule's page: the defects that the rule finds; empty if there are none."""
    defects = ordered(
        iter(
            defect
            for defect in site.table.defects.values()
            if any(place.code == code for place in defect.deviations)
        )
    )
    return (
        rendered("rule.md.jinja", rule_page(code), {**_common(site), "defects": defects}) if defects else ""
    )


def _common(site: Site) -> dict[str, Any]:
    return {
        "site": site,
        "table": site.table,
        "columns": tuple(reversed(site.table.columns)),
        "features": site.table.features,
        "State": FeatureState,
        "label": site.label,
        "model_page": model_page,
        "defect_page": defect_page,
        "release_page": release_page,
        "rule_page": rule_page,
        "severity_of": severity_of,
        "is_minor": is_minor,
        "summary": _summary,
        "spoken": _spoken,
        "worst": partial(_worst, features=site.table.features),
        "model_feed": model_feed,
    }


def _summary(measured: FamilyOnVersion | None, features: Iterable[Feature]) -> str:
    """The state of a family on a version, in a word or two."""
    if measured is None:
        return "not measured"
    if measured.start_error:
        return "no parser"
    broken = [feature for feature in features if measured.state(feature) is FeatureState.BROKEN]
    minor = [feature for feature in features if measured.state(feature) is FeatureState.MINOR]
    if broken:
        return f"{len(broken)} broken"
    return f"{len(minor)} minor" if minor else "all works"


def _spoken(measured: FamilyOnVersion | None, features: Iterable[Feature]) -> str:
    """The state of each feature in full, for screen readers."""
    if measured is None or measured.start_error:
        return _summary(measured, features)
    by_state = {
        state: [feature.value for feature in features if measured.state(feature) is state]
        for state in (FeatureState.BROKEN, FeatureState.MINOR, FeatureState.WORKS)
    }
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in by_state.items() if names)


def _model(site: Site, family: Family) -> dict[str, Any]:
    measured = site.table.families[family.name]
    entries = site.models_of(family)
    template = next((entry for entry in entries if entry.chat_template), None)
    return {
        "family": family,
        "name": model_name(family),
        "measured": measured,
        "command": command(family, template),
        "fields": request_fields(family),
        "template": template.chat_template if template else "",
        "entries": entries,
        "parts": [
            _part(site, family, column) for column in reversed(site.table.columns) if column in measured
        ],
        "siblings": [
            other
            for other in site.shown_families
            if other is not family
            and (model_name(other) == model_name(family) or _share_tool_parser(other, family))
        ],
    }


def _share_tool_parser(one: Family, other: Family) -> bool:
    return one.tool_parser is not None and one.tool_parser == other.tool_parser


def _part(site: Site, family: Family, column: Column) -> dict[str, Any]:
    """The values for the part of a family's page about one version."""
    measured = site.table.families[family.name][column]
    shown = ordered(site.table.defects[each] for each in measured.shown)
    return {
        "column": column,
        "measured": measured,
        "rows": [
            (defect, measured.shown[defect.id], site.around(defect, family.name, column)) for defect in shown
        ],
        "on_servers": [
            (defect, site.around(defect, family.name, column)) for defect in site.on_servers(family, column)
        ],
        "of_every_model": [
            defect for defect in site.of_every_model if site.is_known_of(defect, column.version)
        ],
        "unexplained": list(measured.unexplained.items())[:MOST_FAILURES],
        "more_unexplained": max(0, len(measured.unexplained) - MOST_FAILURES),
    }


def _defects(site: Site) -> dict[str, Any]:
    return {
        "by_class": {
            kind: ordered(defect for defect in site.table.defects.values() if defect.kind == kind)
            for kind in CLASSES
        },
        "versions": site.measured.versions,
        "letters": {defect: site.letters(defect) for defect in site.table.defects},
        "signs": SIGNS,
    }


def _defect(site: Site, defect: Defect) -> dict[str, Any]:
    return {
        "defect": defect,
        "letters": site.letters(defect.id),
        "signs": SIGNS,
        "upstream_url": _upstream_url(defect),
        "request": _request(defect),
        "says": _says(defect.says),
        "families": [site.families[family] for family in defect.families if family in site.table.families],
        "rules": sorted({place.code for place in defect.deviations}),
        "seen": list(_seen(site, defect)),
        "around": list(_around(site, defect)),
        "commands": _commands(defect),
        "exported": site.exported.get(defect.id),
        "report_file": report_file(defect.id),
        "script_file": script_file(defect.id),
    }


def _upstream_url(defect: Defect) -> str:
    number = (defect.upstream.reference or "").removeprefix("vllm#")
    return f"{UPSTREAM}{number}" if number.isdigit() else ""


def _request(defect: Defect) -> str:
    """The smallest request (or requests) that show a defect, with bodies as JSON."""
    if defect.request:
        return json.dumps(defect.request, indent=2, ensure_ascii=False)
    steps = defect.repro.steps if defect.repro else ()
    return "\n\n".join(f"{step.method} {step.path}\n{_body(step)}".strip() for step in steps)


def _body(step: ReproStep) -> str:
    return step.content or "" if step.body is None else json.dumps(step.body, indent=2, ensure_ascii=False)


def _says(says: Any) -> str:
    if says is None or isinstance(says, str):
        return says or ""
    return json.dumps(says, indent=2, ensure_ascii=False)


def _commands(defect: Defect) -> list[str]:
    """The commands that reproduce a defect on a server, and in the parsers alone."""
    in_parsers = [selections_of(defect)[0].command] if defect.failures else []
    on_server = [f"vllm-harness repro {defect.id}"] if is_reproducible(defect) else []
    return [f"$ {command}" for command in (*on_server, *in_parsers)]


def _seen(site: Site, defect: Defect) -> Iterator[dict[str, Any]]:
    """A row for each family whose runs show a defect, with the simplest failure on the newest version."""
    by_family: dict[str, list[tuple[Column, DefectFailures]]] = {}
    for family, column, shown in site.table.showing(defect.id):
        by_family.setdefault(family, []).append((column, shown))
    for family, shown_on in by_family.items():
        shown_on.sort(key=lambda pair: pair[0].order, reverse=True)
        failure, answer = _smallest(shown_on[0][1], {selector.case for selector in defect.failures})
        yield {
            "family": site.families[family],
            "columns": [column for column, _ in shown_on],
            "features": [
                feature for feature in Feature if any(feature in shown.features for _, shown in shown_on)
            ],
            "failure": failure,
            "answer": answer,
        }


def _smallest(shown: DefectFailures, named: set[str]) -> tuple[Failure, str]:
    """The failure (and answer) of a case that the defect entry names, or else of the shortest case name."""
    return min(
        shown.failures.items(), key=lambda pair: (pair[0].case not in named, len(pair[0].case), str(pair[0]))
    )


def _around(site: Site, defect: Defect) -> Iterator[tuple[str, list[Any]]]:
    """The workarounds for a defect on the newest version that shows it, each list with its models' names."""
    newest: dict[str, Column] = {}
    for family, column, _ in site.table.showing(defect.id):
        newest[family] = max(column, newest.get(family, column), key=lambda each: each.order)
    by_ways: dict[tuple[Any, ...], list[str]] = {}
    for family, column in newest.items():
        ways = tuple(site.around(defect, family, column))
        by_ways.setdefault(ways, []).append(f"{site.label(site.families[family])} on {column.label}")
    for ways, names in by_ways.items():
        yield ", ".join(dict.fromkeys(names)), list(ways)
    if not newest:
        shown = [version for version in site.versions if site.is_known_of(defect, version)]
        if shown:
            yield f"vLLM {shown[0]}", site.around_on_servers(defect, shown[0])


def _releases(site: Site) -> dict[str, Any]:
    return {
        "rows": [
            {
                "version": version,
                "changes": changes_of(site, version),
                "known": sum(site.is_known_of(defect, version) for defect in site.table.defects.values()),
                "states": _states(site, Column(version)),
            }
            for version in site.versions
        ]
    }


def _states(site: Site, column: Column) -> Counter[str]:
    """How many families are in each state on a version."""
    measured = (columns.get(column) for columns in site.table.families.values())
    return Counter(_worst(each, site.table.features) for each in measured if each)


def _worst(measured: FamilyOnVersion, features: Iterable[Feature]) -> str:
    """The worst state of any feature of a family."""
    if measured.start_error:
        return FeatureState.NO_PARSER
    states = {measured.state(feature) for feature in features}
    return next(
        (state for state in (FeatureState.BROKEN, FeatureState.MINOR) if state in states), FeatureState.WORKS
    )


def _release(site: Site, version: str) -> dict[str, Any]:
    column = Column(version)
    rust = Column(version, "rust")
    known = [defect for defect in site.table.defects.values() if site.is_known_of(defect, version)]
    return {
        "version": version,
        "release_columns": [each for each in (column, rust) if each in site.table.columns],
        "changes": changes_of(site, version),
        "every_model": [
            (defect, site.around_on_servers(defect, version))
            for defect in site.of_every_model
            if site.is_known_of(defect, version)
        ],
        "counts": Counter(defect.kind for defect in known),
        "known": len(known),
        "states": _states(site, column),
    }
