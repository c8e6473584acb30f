"""The contents of the wheel and the source distribution, and a server test with only the wheel installed."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.conftest import CHECKOUT, Installation, Release

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
ACTION = "ci/action/action.yml"  # copied by `vllm-harness init --ci github`
TEST = """\
def test_the_script_is_the_answer(vllm_server, openai_client, script):
    script("The capital of France is Paris.")
    answer = openai_client.responses.create(model=vllm_server.model, input="What is the capital of France?")
    assert answer.output_text.strip() == "The capital of France is Paris."
"""


@pytest.fixture(scope="module")
def wheel_files(release: Release) -> set[str]:
    with zipfile.ZipFile(release.wheel) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def sdist_files(release: Release) -> set[str]:
    with tarfile.open(release.sdist) as sdist:
        return {member.name.partition("/")[2] for member in sdist if member.isfile()}


@pytest.fixture(scope="module")
def checkout_files() -> set[str]:
    """The files in the checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    return {name for name in listed.stdout.splitlines() if (CHECKOUT / name).exists()}


def test_the_wheel_holds_the_package_and_its_data(wheel_files: set[str], checkout_files: set[str]) -> None:
    package = {name.removeprefix("harness/") for name in checkout_files if name.startswith("harness/")}
    package -= {
        name for name in package if name.startswith("vllm_harness/extras/html/source/")
    }  # page.html is built from it
    env = {name for name in checkout_files if name.startswith("env/")} - {"env/harness.lock", "env/ray.lock"}
    data = {f"vllm_harness/_data/{name}" for name in {*env, "models.yaml", ACTION}}
    assert {name for name in wheel_files if ".dist-info/" not in name} == package | data


@pytest.mark.parametrize(
    "name",
    [
        "vllm_harness/py.typed",
        "vllm_harness/_data/models.yaml",
        "vllm_harness/_data/env/assets.yaml",
        "vllm_harness/_data/env/vllm-0.32.0-cpu.lock",
        "vllm_harness/_regression/cases/meanings.yaml",
        "vllm_harness/templates/llama3.1-json.jinja",
        "vllm_harness/_scripted/in_server/sitecustomize.py",
    ],
)
def test_the_wheel_has_what_a_user_needs(name: str, wheel_files: set[str]) -> None:
    assert name in wheel_files


def test_the_wheel_has_no_more_than_a_user_needs(wheel_files: set[str]) -> None:
    of_a_checkout = re.compile(
        r"(^|/)(tests?|bench\w*|scripts|ci|docs)/|(^|/)(conftest|test_\w+|bench\w*)\.py"
    )
    action = f"vllm_harness/_data/{ACTION}"
    assert [name for name in wheel_files - {action} if of_a_checkout.search(name)] == []


def test_no_module_of_the_wheel_imports_the_tests(release: Release, wheel_files: set[str]) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        modules = {name: wheel.read(name).decode() for name in wheel_files if name.endswith(".py")}
    assert [n for n, text in modules.items() if re.search(r"^\s*(from|import) tests\b", text, re.M)] == []


def test_the_sdist_is_a_checkout(sdist_files: set[str], checkout_files: set[str]) -> None:
    assert sdist_files - {"PKG-INFO"} == checkout_files


def test_the_metadata_says_what_pyproject_says(release: Release, wheel_files: set[str]) -> None:
    entry = next(name for name in wheel_files if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = message_from_bytes(wheel.read(entry))
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    required = map(Requirement, metadata.get_all("Requires-Dist", []))
    assert {str(each) for each in required if not each.marker} == {
        str(Requirement(each)) for each in PROJECT["dependencies"]
    }
    assert any(name.endswith("/licenses/LICENSE") for name in wheel_files)


def test_the_version_stands_in_one_place(installation: Installation, tmp_path: Path) -> None:
    result = installation.run("vllm-harness", "--version", within=tmp_path)
    assert (result.returncode, result.stdout.strip()) == (0, f"vllm-harness {PROJECT['version']}")


def test_the_installed_command_names_no_command_that_needs_a_checkout(
    installation: Installation, tmp_path: Path
) -> None:
    result = installation.run("vllm-harness", within=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "vllm-harness serve" in result.stdout
    assert "vllm-harness run" not in result.stdout


def test_the_installed_command_says_where_the_suites_are(installation: Installation, tmp_path: Path) -> None:
    result = installation.run("vllm-harness", "run", "--model", "qwen3", within=tmp_path)
    assert result.returncode == 2
    assert "scripts/run in a checkout" in result.stdout
    assert str(installation.folder) not in result.stdout


@pytest.mark.vllm_slow
def test_the_plugin_starts_a_server_where_only_the_wheel_is(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "test_answer.py").write_text(TEST)
    result = installation.run("pytest", "-q", "--vllm-model=qwen3", "--vllm-lane=scripted", within=tmp_path)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^1 passed", result.stdout, re.M), result.stdout
