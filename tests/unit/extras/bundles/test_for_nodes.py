"""Which bundles are accepted for the nodes of a cluster, on the machine where the command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness.extras.bundles import for_nodes
from vllm_harness.extras.bundles.for_nodes import bundles_for, setup_plan_of
from vllm_harness.extras.bundles.harness_identity import HarnessIdentity, this_harness
from vllm_harness.extras.bundles.install import read_manifest
from vllm_harness.extras.bundles.place import BundleError


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that the machine has no GPU."""
    monkeypatch.setattr(for_nodes, "default_device", lambda: "cpu")


@pytest.fixture
def ours(bundle: Path) -> Path:
    """A bundle with the same harness as the running one."""
    return edited(bundle, harness=this_harness())


def edited(bundle: Path, **values: Any) -> Path:
    """Writes other values into the bundle's manifest, and returns the bundle."""
    manifest = read_manifest(bundle)
    (bundle / "manifest.json").write_text(json.dumps({**manifest, **values}))
    return bundle


@pytest.mark.parametrize("spec", ["0.32.0", "installed", "installed:/opt/python", "tree:/vllm@0.31.0"])
def test_a_bundle_that_fits_is_accepted(ours: Path, spec: str) -> None:
    (bundle,) = bundles_for([ours], [spec], tests=True)
    assert (bundle.folder, bundle.manifest["vllm"]) == (ours, "0.32.0")


def test_workers_run_the_harness_of_the_bundle(ours: Path) -> None:
    bundles = bundles_for([ours], [])
    plan = setup_plan_of(bundles, None)
    assert f"bundles/{bundles[0].identity}/" in plan.runtime_env["py_executable"]


def other(**values: str) -> HarnessIdentity:
    """Returns the identity of the running harness, with these values changed."""
    return {**this_harness(), **values}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"python": "3.10"}, r"is for Python 3\.10 .*: run it with python3\.10"),
        ({"machine": "riscv64"}, r"riscv64.*: make one for this platform"),
        ({"without_torch": True}, "made without torch, which nodes cannot get otherwise"),
        ({"lock": "00000000"}, r"another vllm-0\.32\.0-cpu\.lock"),
        ({"vllm": "0.31.0"}, "another vllm-0.31.0-cpu.lock"),
        ({"format": 1}, "has format 1"),
        ({"harness": other(version="0.0.9", code="0")}, r"contains vllm-harness 0\.0\.9, but"),
        ({"harness": other(code="0")}, "with different code, but"),
        ({"harness": other(tests="0")}, "the tests in .* differ from those of this checkout"),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(ours: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        bundles_for([edited(ours, **values)], ["0.32.0"], tests=True)


def test_tests_may_differ_if_none_run(ours: Path) -> None:
    assert bundles_for([edited(ours, harness=other(tests="0"))], ["0.32.0"])


def test_a_bundle_that_does_not_name_its_harness_is_refused(bundle: Path) -> None:
    with pytest.raises(UsageError, match=r"of an unknown version.*\n  try: make the bundle again"):
        bundles_for([bundle], ["0.32.0"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("0.31.0", r"vLLM 0\.31\.0 for cpu, but the bundles have vLLM 0\.32\.0 for cpu"),
        ("0.33.0@0.32.0", r"cannot make the graft 0\.33\.0@0\.32\.0"),
    ],
)
def test_a_vllm_that_no_bundle_contains_is_refused(ours: Path, spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bundles_for([ours], ["0.32.0", spec])


def test_a_bundle_for_another_device_is_refused(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_nodes, "default_device", lambda: "cuda")
    with pytest.raises(UsageError, match=r"0\.32\.0 for cuda, but the bundles have vLLM 0\.32\.0 for cpu"):
        bundles_for([ours], ["0.32.0"])


def test_every_damaged_part_is_named(ours: Path) -> None:
    (ours / "part-0002").write_bytes(bytes(1000))
    (ours / "part-0003").unlink()
    with pytest.raises(BundleError, match=r"part-0002 is damaged .*; part-0003 is missing"):
        bundles_for([ours], ["0.32.0"])
