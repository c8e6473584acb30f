"""Failures of serverless tests that need a later vLLM than the one under test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_harness.extras.upstream.results import TestResult
from vllm_harness.extras.upstream.run import UpstreamRun

KIMI = "tests/tool_use/test_kimi_k3_tool_parser.py"
LACKS = "AttributeError: 'ResponsesRequest' object has no attribute 'spaces_between_special_tokens'"
IMPORT = "ImportError: cannot import name 'new' from 'vllm.entrypoints' (/somewhere/vllm/entrypoints.py)"


def settled(file: str, test: str, failure: str, version: str, release: str = "0.33.0") -> str:
    """The final outcome of a test from one release that failed on another version."""
    servers: Any = SimpleNamespace(environment=SimpleNamespace(vllm_version=version))
    vllm_process: Any = None
    result = TestResult("failed", failure, server=False)
    UpstreamRun(servers, vllm_process, release=release).explain_failure(Path("/upstream", file), test, result)
    return result.outcome


@pytest.mark.parametrize(
    ("test", "failure", "version", "outcome"),
    [
        ("test_adjust_request_keeps_xtml_markers_contiguous[req1]", LACKS, "0.32.0", "newer"),
        ("test_adjust_request_keeps_xtml_markers_contiguous[req1]", LACKS, "0.33.0", "failed"),
        ("test_adjust_request_keeps_xtml_markers_contiguous[req1]", "AssertionError", "0.32.0", "failed"),
        ("test_adjust_request_keeps_xtml_markers_contiguous[req0]", LACKS, "0.32.0", "failed"),
        ("", IMPORT, "0.32.0", "newer"),
        ("", IMPORT, "0.33.0", "failed"),
        ("test_of_an_import", IMPORT, "0.32.0", "failed"),
        ("", "ModuleNotFoundError: No module named 'vllm.new'", "0.32.0", "newer"),
        ("", "ModuleNotFoundError: No module named 'numpy'", "0.32.0", "failed"),
    ],
)
def test_only_missing_features_of_earlier_releases_are_explained(
    test: str, failure: str, version: str, outcome: str
) -> None:
    assert settled(KIMI, test, failure, version) == outcome


def test_files_of_a_checkout_have_no_release_to_compare() -> None:
    assert settled(KIMI, "", IMPORT, "0.32.0", release="") == "failed"
