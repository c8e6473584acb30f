"""The site's files that are not pages: reports, scripts, and the compatibility table as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vllm_harness.extras.site.paths import model_page, report_file, script_file
from vllm_harness.extras.site.render import address
from vllm_harness.extras.site.site import SIGNS, Site, rank
from vllm_harness.extras.site.table import FamilyOnVersion
from vllm_harness.extras.triage.severity import severity_of


def files(site: Site) -> Iterator[tuple[str, str]]:
    """The path and text of each defect's report and script, and of the table as JSON."""
    for defect, exported in site.exported.items():
        yield report_file(defect), exported.files.report
        yield script_file(defect), exported.files.script
    yield "compatibility.json", f"{json.dumps(_as_json(site), indent=1, sort_keys=True)}\n"


def _as_json(site: Site) -> dict[str, Any]:
    return {
        "features": {feature.value: feature.meaning for feature in site.table.features},
        "families": {
            family.name: {
                "model": family.model,
                "tool_parser": family.tool_parser,
                "reasoning_parser": family.reasoning_parser,
                "page": address(model_page(family.name)),
                "versions": {
                    column.label: _column_as_json(measured)
                    for column, measured in site.table.families[family.name].items()
                },
            }
            for family in site.shown_families
        },
        "defects": {
            defect.id: {
                "title": defect.title,
                "class": defect.kind,
                "severity": severity_of(defect),
                "upstream": defect.upstream.reference,
                "versions": {
                    version: SIGNS[letter] for version, letter in site.letters(defect.id) if letter in SIGNS
                },
            }
            for defect in sorted(site.table.defects.values(), key=rank)
        },
    }


def _column_as_json(measured: FamilyOnVersion) -> dict[str, Any]:
    if measured.start_error:
        return {"vllm": measured.described, "no parser": measured.start_error}
    return {
        "vllm": measured.described,
        "features": {
            feature.value: {
                "state": standing.state,
                "cases": len(standing.cases),
                "failed": len(standing.failed),
                "defects": sorted(standing.defects),
                "without a defect": len(standing.unexplained),
            }
            for feature, standing in measured.features.items()
        },
    }
