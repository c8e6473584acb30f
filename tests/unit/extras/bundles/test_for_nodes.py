"""Which bundles the nodes of a cluster can set themselves up from, as the machine of the command sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness.extras.bundles import for_nodes
from vllm_harness.extras.bundles.for_nodes import bundles_for, outfit_of
from vllm_harness.extras.bundles.harness_identity import Carried, carried
from vllm_harness.extras.bundles.install import read_manifest
from vllm_harness.extras.bundles.place import BundleError


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs, whatever runs the tests."""
    monkeypatch.setattr(for_nodes, "default_device", lambda: "cpu")


@pytest.fixture
def ours(bundle: Path) -> Path:
    """A bundle that carries the harness that runs here."""
    return edited(bundle, harness=carried())


def edited(bundle: Path, **values: Any) -> Path:
    """The bundle with other values in its manifest."""
    manifest = read_manifest(bundle)
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **values}))
    return bundle


@pytest.mark.parametrize("spec", ["0.32.0", "installed", "installed:/opt/python", "tree:/vllm@0.31.0"])
def test_one_that_fits(ours: Path, spec: str) -> None:
    (found,) = bundles_for([ours], [spec], tests=True)
    assert (found.folder, found.manifest["vllm"]) == (ours, "0.32.0")


def test_its_harness_runs_from_then_on(ours: Path) -> None:
    bundles = bundles_for([ours], [])
    outfit = outfit_of(bundles, None)
    assert f"bundles/{bundles[0].identity}/" in outfit.runtime_env["py_executable"]


def other(**values: str) -> Carried:
    """The harness that runs here, but for these values."""
    return {**carried(), **values}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"python": "3.10"}, r"is for Python 3\.10 .*: run it with python3\.10"),
        ({"machine": "riscv64"}, r"riscv64.*: make one on such a machine"),
        ({"without_torch": True}, "made without torch, and nodes make themselves from a bundle alone"),
        ({"lock": "00000000"}, r"another vllm-0\.32\.0-cpu\.lock"),
        ({"vllm": "0.31.0"}, "another vllm-0.31.0-cpu.lock"),
        ({"format": 1}, "has format 1"),
        ({"harness": other(version="0.0.9", code="0")}, r"carries vllm-harness 0\.0\.9, and"),
        ({"harness": other(code="0")}, "with other code, and"),
        ({"harness": other(tests="0")}, "other tests than those of this checkout"),
    ],
)
def test_what_does_not_fit_is_refused(ours: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        bundles_for([edited(ours, **values)], ["0.32.0"], tests=True)


def test_tests_need_not_be_the_same_where_none_run(ours: Path) -> None:
    assert bundles_for([edited(ours, harness=other(tests="0"))], ["0.32.0"])


def test_one_made_before_bundles_said_what_they_carry(bundle: Path) -> None:
    with pytest.raises(UsageError, match=r"carries vllm-harness of before.*\n  try: make the bundle again"):
        bundles_for([bundle], ["0.32.0"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("0.31.0", r"vLLM 0\.31\.0 for cpu, and the bundles have vLLM 0\.32\.0 for cpu"),
        ("0.33.0@0.32.0", r"cannot make the graft 0\.33\.0@0\.32\.0"),
    ],
)
def test_a_vllm_that_none_carries_is_refused(ours: Path, spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bundles_for([ours], ["0.32.0", spec])


def test_one_of_another_device_is_refused(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_nodes, "default_device", lambda: "cuda")
    with pytest.raises(UsageError, match=r"0\.32\.0 for cuda, and the bundles have vLLM 0\.32\.0 for cpu"):
        bundles_for([ours], ["0.32.0"])


def test_every_damaged_part_is_named(ours: Path) -> None:
    (ours / "part-0002").write_bytes(bytes(1000))
    (ours / "part-0003").unlink()
    with pytest.raises(BundleError, match=r"part-0002 is damaged .*; part-0003 is missing"):
        bundles_for([ours], ["0.32.0"])
