"""Measures which lines and branches of vLLM's parsers run; prepended to the code of `vllm_harness_parse`.

Needs coverage.py on the path; the environment variable `VH_COVERAGE` names the file for the report.
"""

import atexit
import os

import coverage

_coverage = coverage.Coverage(
    branch=True,
    data_file=None,
    include=["*/vllm/tool_parsers/*", "*/vllm/reasoning/*", "*/vllm/parser/*"],
)
_coverage.start()


@atexit.register
def _report() -> None:
    _coverage.stop()
    _coverage.json_report(outfile=os.environ["VH_COVERAGE"], show_contexts=True)
