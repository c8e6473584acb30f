"""Nodes that have Python and Ray, but no package index, are set up from a bundle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster.bare_nodes import make_ray, started
from tests.extras.cluster.cells import cells_of
from tests.extras.cluster.command import completed
from tests.extras.cluster.conftest import NODE, cluster_of
from tests.extras.cluster.leftovers import servers, wait_for

ISOLATED = ("unshare", *(["--map-root-user"] if os.getuid() else []), "--mount")
"""A prefix that runs a command in its own mount namespace: others do not see what it mounts."""
NOWHERE = "http://127.0.0.1:9/simple"
COMMAND = ("regression", "--vllm", "0.32.0", "--parsers", "step3", "--engine", "http", "--cases", "forced")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle with vLLM 0.32.0 for CPU, in parts of 49 MB, in a folder without other files."""
    pytest.importorskip("ray", reason="Ray is not installed; scripts/cluster makes an environment with it")
    probe = subprocess.run([*ISOLATED, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mount namespace can be made: {probe.stderr.strip()}")
    folder = tmp_path_factory.mktemp("made") / "bundle"
    options = ("--device", "cpu", "--vllm", "0.32.0", "--model", "qwen3", "--part-size", "49M")
    made = completed("env", "bundle", str(folder), *options)
    assert made.returncode == 0, made.stdout + made.stderr
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the command `ray` for the nodes, installed from a package index."""
    return make_ray(tmp_path_factory.mktemp("ray"))


@pytest.fixture
def head() -> Iterator[Any]:
    """A cluster whose head node has the bundle but runs no cells."""
    with cluster_of(1, **{**NODE, "num_cpus": 0}) as cluster:
        yield cluster


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)  # pytest would keep these gigabytes for three runs


def node(head: Any, ray: Path, home: Path, before: str) -> Any:
    """A node with a home folder and an address of its own, which cannot reach a package index."""
    environ = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        **dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"), NOWHERE),
        **dict.fromkeys(("npm_config_registry", "HF_ENDPOINT"), NOWHERE),
        "RAY_worker_niceness": "0",
    }
    arguments = f"--address={head.address} --node-ip-address=127.0.0.2"
    return started(ray, environ, arguments, before=before, within=ISOLATED)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("mount --bind '{damaged}' '{bundle}'", r"part-0003 is damaged \(its sha256 differs\)"),
        (
            "mount -t tmpfs none '{bundle}'; mount -t tmpfs -o size=1000m none \"$HOME\"",
            r"has 1\.0 GB free, but the bundle and its files take 1\.\d GB",
        ),
    ],
    ids=["a damaged part", "disk full"],
)
def test_a_node_that_cannot_be_set_up_says_why(
    head: Any, ray: Path, home: Path, bundle: Path, tmp_path: Path, before: str, why: str
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged, copy_function=os.link)
    (damaged / "part-0003").unlink()
    (damaged / "part-0003").write_bytes(bytes((bundle / "part-0003").stat().st_size))
    options = ("--run", str(tmp_path / "run"), "--ray", head.address, "--bundle", str(bundle))
    with node(head, ray, home, before.format(damaged=damaged, bundle=bundle)):
        ran = completed(*COMMAND, *options, ships=True)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 3, said
    assert re.search(f"no node of the cluster could be set up: .*{why}", said), said
    assert "part-0002" not in said
    assert not list(home.rglob(".venv"))


@pytest.mark.timeout(1800)
def test_the_cells_equal_those_of_one_machine(
    head: Any, ray: Path, home: Path, bundle: Path, tmp_path: Path
) -> None:
    here, there, again = (tmp_path / name for name in ("here", "there", "again"))
    one = completed(*COMMAND, "--run", str(here))
    options = ("--ray", head.address, "--bundle", str(bundle))
    with node(head, ray, home, f"mount -t tmpfs none '{bundle.parent}'"):
        ran = completed(*COMMAND, "--run", str(there), *options, ships=True)
        said = ran.stdout + ran.stderr
        assert ran.returncode == one.returncode, said + one.stdout + one.stderr
        parts = len(list(bundle.glob("part-*")))
        assert f": received {parts} of {parts} parts" in said
        assert ": making the harness's environment" in said
        assert len(cells_of(there)) == 1
        assert cells_of(there) == cells_of(here)

        (installed,) = (home / ".cache/vllm-harness/environments").glob("*/pyvenv.cfg")
        (own,) = (home / ".cache/vllm-harness/bundles").glob("*/vllm-harness/.venv/pyvenv.cfg")
        before = [path.stat().st_mtime_ns for path in (installed, own)]
        assert [path.name for path in own.parents[2].iterdir() if path.name != ".lock"] == ["vllm-harness"]
        ran = completed(*COMMAND, "--run", str(again), *options, ships=True)
        said = ran.stdout + ran.stderr
        assert ran.returncode == one.returncode, said
        assert cells_of(again) == cells_of(here)
        assert "received" not in said
        assert "making" not in said
        assert [path.stat().st_mtime_ns for path in (installed, own)] == before
        wait_for(lambda: not servers())


def test_a_damaged_part_is_refused_before_anything_is_sent(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged, copy_function=os.link)
    (damaged / "part-0002").unlink()
    ran = completed(*COMMAND, "--run", str(tmp_path / "run"), "--ray", "--bundle", str(damaged), ships=True)
    assert ran.returncode == 2
    assert "part-0002 is missing" in ran.stderr
    assert "connecting" not in ran.stderr
