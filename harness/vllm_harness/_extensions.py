"""The table of what the extras add; the core imports objects from extras only through it.

An extra is a package in `vllm_harness.extras`, with optional dependencies of the same name. An object in an
extra is referred to as `extra:module.attribute`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from vllm_harness._errors import UsageError

EXTRAS = "vllm_harness.extras"
COMMANDS: Mapping[str, str] = {
    "cassette convert": "foreign:command.convert",
    "defects export": "triage:export_command.export",
    "env bundle": "bundles:command.app",
    "gateway": "gateways:command.app",
    "load": "load:command.load",
    "models dialects": "templates:command.dialects",
    "mutants": "mutants:group.app",
    "mutants parsers": "mutants:parsers_command.mutants",
    "mutants serving": "mutants:command.mutants",
    "regression engines": "parity:engines.engines",
    "regression parity": "parity:command.parity_",
    "review": "review:command.app",
    "repro table": "triage:commands.table",
    "repro new": "triage:commands.new",
    "repro bisect": "triage:bisect_command.bisect_",
    "site": "site:command.site",
    "upstream": "upstream:command.app",
    "weights": "weights:command.check_weights",
}
"""Top-level commands and commands within groups, each mapped to a function or a command group."""
RECORDING = "recording.json"
"""The file that marks a folder as a recording of a gateway."""
COMPARE_RECORDINGS = "gateways:command.compare_recordings"
RECORDINGS: Mapping[str, str] = {
    ".har": "foreign:har.read",
    ".har.gz": "foreign:har.read",
    "interactions": "foreign:vcr.read",
    "turns": "foreign:turns.read",
}
"""Readers of foreign recordings, by file suffix or top-level key."""
RULES = ("gateways:rules",)
"""Modules of protocol rules."""
COMPARE_ANSWERS = "gateways:compare.compare_samples"
"""Finds the differences between an answer that came directly and one that came through a gateway."""
CLUSTER = "cluster:options.executor_on_nodes"
"""Makes the executor for `--ray`."""
SUITES_ON_CLUSTER = "cluster:run_suites.run_on_cluster"
REPORT_PAGE = "html:page.write"
CHANGED_FAMILIES = "review:families.run_changed"
FAILURES = "review:unexplained.show_unexplained"
WORKFLOW = "review:workflow.write_workflow"
CHANGED_TESTS = "review:suites.arguments_of_change"
GROWING_CASES = "costs:growing.cost_cases"
"""Makes the parser regression test cases of the group `cost`."""
MEASURED_IN_PROCESS = "costs:in_process.measure_all"
MEASURED_OVER_HTTP = "costs:run.measure_cell"
CURVE_MISMATCHES = "costs:curves.curve_mismatches"
COST_TABLE = "costs:table.show_costs"
CURVE_TABLE = "costs:repro.curve_table"
REPORT_OF_DEFECT = "triage:files.files_of"
"""Makes the report and the script of a reproduced defect."""
COST_OF_DEFECT = "costs:repro.cost_case"
SMALLEST_FAILURES = "triage:search.search_run"
"""Searches for the smallest meaning that shows each kind of failure of generated test cases."""
PARSER_COVERAGE = "mutants:parsers_command.show_coverage"


class MissingExtra(UsageError):
    """An extra is not installed."""


def load(place: str, what: str = "this") -> Any:
    """Loads an object from an extra.

    Args:
        place: the object, such as `load:command.load`, or a module, such as `gateways:rules`.
        what: what needs the extra, for the error message.

    Raises:
        MissingExtra: the extra is not installed.
    """
    extra, _, inside = place.partition(":")
    if not installed(extra):
        raise MissingExtra(
            f"{what} needs the extra `{extra}`, which is not installed",
            hint=f"pip install 'vllm-harness[{extra}]'",
        )
    module, _, attribute = inside.rpartition(".")
    imported = import_module(f"{EXTRAS}.{extra}.{module or attribute}")
    return getattr(imported, attribute) if module else imported


def installed(extra: str) -> bool:
    """Whether an extra is installed."""
    return find_spec(EXTRAS) is not None and find_spec(f"{EXTRAS}.{extra}") is not None


def rule_modules() -> Iterator[Any]:
    """The modules with protocol rules that installed extras add."""
    return (load(place) for place in RULES if installed(place.partition(":")[0]))
