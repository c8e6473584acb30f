"""The cluster options, what is sent to nodes, and the record of the nodes on which cells ran."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._machine.shard import Needs, ThisMachine
from vllm_harness.cli.arguments import with_address
from vllm_harness.cli.executor import executor_of, resume
from vllm_harness.cli.main import app
from vllm_harness.extras.cluster.options import checked_bundles
from vllm_harness.extras.cluster.places import Placement, Places
from vllm_harness.extras.cluster.shipping import SHIP, make_wheel, pins, runtime_env
from vllm_harness.extras.load.client import LocalClient
from vllm_harness.extras.load.command import _clients


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["regression", "--ray"], ["regression", "--ray", "auto"]),
        (["regression", "--ray", "--run", "a"], ["regression", "--ray", "auto", "--run", "a"]),
        (["regression", "--ray", "10.0.0.1:6379"], ["regression", "--ray", "10.0.0.1:6379"]),
        (["regression", "--ray=10.0.0.1:6379"], ["regression", "--ray=10.0.0.1:6379"]),
        ([], []),
    ],
)
def test_an_address_may_be_left_out(given: list[str], parsed: list[str]) -> None:
    assert with_address(given) == parsed


def test_without_ray_cells_run_on_this_machine(tmp_path: Path) -> None:
    with executor_of("", 3, tmp_path) as executor:
        assert isinstance(executor, ThisMachine)
        assert executor.deal(100, apart=True) == 3


def test_jobs_cannot_be_combined_with_ray(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--jobs"), executor_of("auto", 3, tmp_path):
        pass


def test_clients_require_ray(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["load", "etl-three-turns", "--model", "qwen3", "--clients", "2"])
    assert isinstance(answer.exception, UsageError)
    assert answer.exception.message == "--clients needs --ray"
    with _clients("", None, tmp_path) as (clients, reach):
        assert isinstance(clients, LocalClient)
        assert reach == {}


@pytest.mark.parametrize(
    ("address", "given"),
    [
        ("", ["--vllm", "0.32.0", "--run", "there"]),
        ("h:1", ["--vllm", "0.32.0", "--run", "there", "--ray", "h:1"]),
    ],
)
def test_a_run_resumes_with_its_own_command(address: str, given: list[str], tmp_path: Path) -> None:
    command = ["--vllm", "0.32.0", "--run=elsewhere"] + (["--ray", "old:1"] if address else [])
    (tmp_path / "command.json").write_text(json.dumps(command))
    called: list[list[str]] = []
    resume("regression", str(tmp_path), address, called.append)
    assert called == [[str(tmp_path) if word == "there" else word for word in given]]


def test_a_run_resumes_with_other_bundles_if_named(tmp_path: Path) -> None:
    (tmp_path / "command.json").write_text(json.dumps(["--ray", "h:1", "--bundle", "a", "--bundle=b"]))
    called: list[list[str]] = []
    for bundles in (None, [Path("c"), Path("d")]):
        resume("regression", str(tmp_path), "", called.append, bundles=bundles)
    run = ["--run", str(tmp_path)]
    assert called[0] == ["--ray", "h:1", "--bundle", "a", "--bundle=b", *run]
    assert called[1] == ["--ray", "h:1", *run, "--bundle", "c", "--bundle", "d"]


@pytest.mark.parametrize(
    "command",
    [
        ["regression", "--parsers", "step3"],
        ["mutants", "serving"],
        ["run", "--model", "qwen3"],
        ["repro", "--all"],
        ["repro", "bisect", "vllm-46940", "--good", "0.26.0", "--bad", "0.24.0"],
        ["load", "etl-three-turns", "--model", "qwen3"],
    ],
)
def test_bundles_require_ray(command: list[str]) -> None:
    answer = CliRunner().invoke(app, [*command, "--bundle", "out"])
    assert isinstance(answer.exception, UsageError), answer.output
    assert "add --ray" in answer.exception.hint


def test_bundles_are_refused_if_nodes_have_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHIP, "0")
    with pytest.raises(UsageError, match=SHIP):
        checked_bundles([Path("out")])


def test_a_missing_run_cannot_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not hold a run"):
        resume("regression", str(tmp_path), "", lambda _: None)


def test_placements_are_written_at_once_and_added_up(tmp_path: Path) -> None:
    places = Places(tmp_path / "run")
    for number, node in enumerate(("a", "b", "a", "a"), start=1):
        places.add(Placement(f"cell {number}", "shard", node, 2.0, begun=number // 3 + 1, at=3.0 * number))
        assert len((tmp_path / "run" / "places.jsonl").read_text().splitlines()) == number
    first, second = places.uses()
    assert (first.node, first.cells, first.again, first.busy_s, first.at_a_time) == ("a", 3, 2, 6.0, 0.5)
    assert (second.node, second.cells, second.again) == ("b", 1, 0)


def test_the_harness_is_sent_as_a_wheel_with_pinned_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHIP, "1")
    made = runtime_env(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    *packages, own = made["uv"]["packages"]
    assert own.endswith(wheel.name)
    assert packages == pins()
    assert {"httpx2", "pydantic", "uv"} <= {pin.partition("==")[0] for pin in packages}
    assert not any(pin.startswith(("ray", "mypy")) for pin in packages)


def test_the_packages_of_an_extra_are_sent_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHIP, "1")
    *packages, _ = runtime_env(tmp_path, extra="load")["uv"]["packages"]
    names = {pin.partition("==")[0] for pin in packages}
    assert {"aiohttp", "hdrhistogram", "multidict"} <= names
    assert not {"aiohttp", "ray", "mypy"} & {pin.partition("==")[0] for pin in pins()}


def test_nothing_is_sent_if_the_nodes_have_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHIP, "0")
    assert set(runtime_env(tmp_path)) == {"env_vars"}
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(SHIP, "perhaps")
    with pytest.raises(HarnessError, match="perhaps"):
        runtime_env(tmp_path)


def test_the_wheel_of_a_checkout_has_its_locks(tmp_path: Path) -> None:
    names = zipfile.ZipFile(make_wheel(tmp_path)).namelist()
    assert "vllm_harness/_data/env/vllm-0.32.0-cpu.lock" in names
    assert "vllm_harness/extras/cluster/on_node.py" in names
    assert "vllm_harness/_data/env/ray.lock" not in names


def test_needs_are_described() -> None:
    assert str(Needs(2, 64, 8, "H100")) == "2 CPUs, 64 GiB, 8 GPUs of the type H100"
