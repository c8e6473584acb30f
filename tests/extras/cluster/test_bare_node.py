"""If a node has Python, Ray and a package index but no harness, the run sends the harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extras.cluster.bare_nodes import INDEX, address_in, make_ray, started
from tests.extras.cluster.command import completed
from tests.extras.cluster.leftovers import servers, wait_for
from vllm_harness._files.paths import cache_dir
from vllm_harness._runs.records import Outcome
from vllm_harness._runs.report.run import read_run


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node with an empty home folder, which shares only the download cache."""
    home = tmp_path_factory.mktemp("node")
    environ = {
        "HOME": str(home),
        "VLLM_HARNESS_CACHE": str(cache_dir()),
        "VLLM_HARNESS_STATE": str(home / "state"),
        "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"),
        "RAY_worker_niceness": "0",
    }
    head = f"--head --port=0 --include-dashboard=false --temp-dir='{home}/ray'"
    with started(make_ray(home), environ, head, before=INDEX) as output:
        yield address_in(output)


@pytest.mark.timeout(1200)
def test_the_suites_run_on_a_node_without_a_checkout(bare: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--model", "qwen3", "--lane", "scripted", "--vllm", "0.32.0", "--output", str(folder))
    ran = completed("run", *options, "--ray", bare, "--", "-k", "test_responses_basics", ships=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    cases = read_run(folder).of(Outcome.PASSED)
    assert len(cases) >= 8
    assert all(case.node for case in cases)
    wait_for(lambda: not servers())
