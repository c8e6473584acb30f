"""A cluster has the same results as one machine: for HTTP cells, even if a node is lost, and all parsers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster.cells import Key, cells_of
from tests.extras.cluster.conftest import NODE, Begin, cluster_of
from tests.extras.cluster.leftovers import orphaned_blocks, servers, wait_for
from vllm_harness.extras.cluster.places import placements_in

VERSIONS = ("0.32.0", "0.33.0@0.32.0")
FAMILIES = ("step3", "glm45", "qwen3_thinking", "hermes_special")
GROUPS = ("canonical", "forced", "malformed")
"""All groups but `chunks`, as the load of the machine affects which tokens of a stream arrive together."""
CASES = ("call", "two calls", "call, required", "call, named", "call, name missing")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Three nodes, each of which runs one server at a time."""
    with cluster_of(3, **{**NODE, "num_cpus": 1}) as cluster:
        yield cluster


def differences(here: Path, there: Path) -> dict[Key, Any]:
    """Cell -> the fields and cases in which two runs differ."""
    by_cell: dict[Key, Any] = {}
    one, other = cells_of(here), cells_of(there)
    for key in one.keys() | other.keys():
        mine, theirs = one.get(key, {}), other.get(key, {})
        if mine != theirs:
            mine, theirs = ({**each, **each.get("cases", {})} for each in (mine, theirs))
            names = (mine.keys() | theirs.keys()) - {"cases"}
            by_cell[key] = {
                name: (mine.get(name), theirs.get(name))
                for name in names
                if mine.get(name) != theirs.get(name)
            }
    return by_cell


@pytest.mark.timeout(2400)
def test_http_cells_equal_those_of_one_machine_after_a_node_is_lost(
    begin: Begin, nodes: Any, tmp_path: Path
) -> None:
    here, there, before = tmp_path / "here", tmp_path / "there", orphaned_blocks()
    options = ["--engine", "http", "--vllm", ",".join(VERSIONS), "--parsers", ",".join(FAMILIES)]
    options += ["--cases", ",".join(GROUPS), *(word for name in CASES for word in ("--only", name))]
    expected = {(vllm, family, group) for vllm in VERSIONS for family in FAMILIES for group in GROUPS}
    assert len(expected) == 24

    several = begin("regression", "--run", str(there), *options, "--ray", nodes.address)
    wait_for(lambda: len(placements_in(there)) >= len(expected) // 3, 900)
    nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
    said, _ = several.communicate()
    placed = placements_in(there)
    assert Counter((each.shard, each.cell) for each in placed).most_common(1)[0][1] == 1
    assert len(placed) == len(expected)
    assert len({each.node for each in placed}) == 3
    assert "is gone" in said
    wait_for(lambda: not servers())
    assert orphaned_blocks() <= before

    one = begin("regression", "--run", str(here), *options, "--jobs", "2")
    one_said, _ = one.communicate()
    assert several.returncode == one.returncode, said + one_said
    assert set(cells_of(here)) == set(cells_of(there)) == expected
    assert differences(here, there) == {}


@pytest.mark.timeout(2400)
def test_in_process_cells_of_all_parsers_equal_those_of_one_machine(
    begin: Begin, nodes: Any, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    options = ("--vllm", VERSIONS[0], "--cases", "canonical")
    several = begin("regression", "--run", str(there), *options, "--ray", nodes.address)
    said, _ = several.communicate()
    one = begin("regression", "--run", str(here), *options, "--jobs", "2")
    one_said, _ = one.communicate()
    assert several.returncode == one.returncode, said + one_said
    assert len(cells_of(here)) > 60
    assert differences(here, there) == {}
    assert Counter(each.cell for each in placements_in(there)) == Counter(
        f"{family}.{group}" for _, family, group in cells_of(here)
    )
