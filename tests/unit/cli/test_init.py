"""`vllm-harness init` in projects of several kinds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._testing.options import MODELS_FILE_INI
from vllm_harness.cli.main import app
from vllm_harness.cli.project_files import MODELS_PATH, TEST_PATH

PYPROJECT = '# kept\n[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = []\n'
UNNAMED = '[project]\nversion = "1"\n'


def init(project: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["init", str(project), *arguments])
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result


def states(result: Result) -> list[str]:
    """The state and the file of each step, in order."""
    assert result.exit_code == 0, result.output
    return re.findall(r"^((?:written|left|to do) +\S+):", result.output, re.M)


def test_a_project_gets_three_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    result = init(tmp_path)
    assert states(result) == [
        "written  pyproject.toml",
        f"written  {MODELS_PATH}",
        f"written  {TEST_PATH}",
    ]
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.startswith(PYPROJECT)
    [requirement] = tomllib.loads(text)["dependency-groups"]["dev"]
    assert requirement.startswith("vllm-harness>=")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models.yaml", "pyproject.toml", "tests"]
    compile((tmp_path / TEST_PATH).read_text(), TEST_PATH, "exec")


@pytest.mark.parametrize("model", [entry.name for entry in load_models()])
def test_the_entry_is_that_of_the_harness(model: str, tmp_path: Path) -> None:
    init(tmp_path, "--model", model)
    assert load_models(tmp_path / MODELS_PATH).get(model) == load_models().get(model)


def test_an_entry_is_found_by_its_hub_id(tmp_path: Path) -> None:
    assert "--vllm-model gpt-oss " in init(tmp_path, "--model", "openai/gpt-oss-20b").output


def test_another_model_of_the_hub_is_live(tmp_path: Path) -> None:
    result = init(tmp_path, "--model", "Acme/Big-7B")
    entry = load_models(tmp_path / MODELS_PATH).get("big-7b")
    assert (entry.hub.id, entry.lanes) == ("Acme/Big-7B", ("live",))
    assert "live" in result.output.splitlines()[-1]
    assert "fill in" in result.output
    text = (tmp_path / MODELS_PATH).read_text()
    (tmp_path / MODELS_PATH).write_text(
        text.replace("    # tool", "    tool").replace("    # cap", "    cap")
    )
    filled = load_models(tmp_path / MODELS_PATH).get("big-7b")
    assert (filled.tool_call_parser, "tools" in filled.capabilities) == ("hermes", True)
    assert '"big-7b"' in (tmp_path / TEST_PATH).read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    files = {
        "pyproject.toml": PYPROJECT.replace("[]", '["VLLM_harness"]'),
        MODELS_PATH: "models: {mine: {hub: {id: a/b}, family: mine, lanes: [live]}}\n",
        TEST_PATH: "# mine\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = init(tmp_path)
    assert states(result) == ["left     pyproject.toml", f"to do    {MODELS_PATH}", f"left     {TEST_PATH}"]
    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert "tokenizer: tokenizer-qwen3" in result.output


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    init(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {state[:4] for state in states(init(tmp_path))} == {"left"}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_line_to_add_is_named_if_uv_cannot_add_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(UNNAMED)
    result = init(tmp_path)
    assert states(result)[0] == "to do    pyproject.toml"
    assert "\nvllm-harness>=" in result.output
    assert (tmp_path / "pyproject.toml").read_text() == UNNAMED


def test_without_pyproject_the_command_to_install_is_named(tmp_path: Path) -> None:
    assert "pip install 'vllm-harness>=" in init(tmp_path).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "qwen33"], "did you mean qwen3"),
        (["--model", "a/b/c"], "unknown model 'a/b/c'"),
        (["--model", "../x y"], "unknown model"),
    ],
)
def test_an_unknown_model_writes_nothing(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        init(tmp_path, *arguments)
    assert raised.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder") as raised:
        init(tmp_path / "missing")
    assert raised.value.hint


def test_the_ini_key_of_the_models_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    assert f'{MODELS_FILE_INI} = "models.yaml"' in init(tmp_path).output


def test_a_malformed_pyproject_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(UsageError, match="at line 1"):
        init(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pyproject.toml"]
