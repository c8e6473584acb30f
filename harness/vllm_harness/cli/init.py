"""`vllm-harness init`: adds a first test to a project."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import typer

from vllm_harness._errors import UsageError
from vllm_harness._extensions import WORKFLOW, load
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.project_files import MODELS_PATH, TEST_PATH, FileStep, new_entry, own_files


def init(
    project: Annotated[Path, typer.Argument(help="The folder of the project.")] = Path(),
    model: str = "qwen3",
    ci: Literal["github"] | None = None,
) -> None:
    """Add a dependency on vllm-harness, a model entry and a first test to a project.

    No file is overwritten: the command lists the files that it left alone, and
    what to add to them by hand. A model for which the harness has no entry
    gets a new entry for the live lane. --ci adds a workflow, which in a checkout
    of vLLM reviews each change.
    """
    if not project.is_dir():
        raise UsageError(
            f"{project} is {'a file, not' if project.exists() else 'not'} a folder",
            hint="name the folder of an existing project",
        )
    entry = new_entry(model)
    try:
        make = load(WORKFLOW, "--ci") if ci else own_files
        steps: list[FileStep] = make(project, entry)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{project}: {error}",
            hint="fix that line, and run the command again: it overwrites nothing",
        ) from None
    console = plain_console()
    for step in steps:
        console.print(f"{step.state:7}  {step.path}: {step.note}")
        if step.addition:
            console.print(step.addition.rstrip())
    if TEST_PATH not in {step.path for step in steps}:
        return
    if (project / "pyproject.toml").exists():
        console.print("\nto leave out --vllm-models-file, add to pyproject.toml:")
        console.print(f'[tool.pytest.ini_options]\nvllm_models_file = "{MODELS_PATH}"', markup=False)
    options = f"--vllm-models-file {MODELS_PATH} --vllm-model {entry.name} --vllm-lane {entry.lane}"
    place = "" if project == Path() else f" in {project}"
    console.print(f"\nrun the test{place}:\n  $ pytest {options} {TEST_PATH}")
