"""The files that a project needs for its first test: pyproject.toml, models.yaml and the test."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from vllm_harness._configuration.model_entries import ModelsFileError, load_models
from vllm_harness._environments.installer import InstallError, run_uv
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.plain_yaml import plain_yaml
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import quiet
from vllm_harness.cli.welcome import DISTRIBUTION

MODELS_PATH = "models.yaml"
TEST_PATH = "tests/test_vllm_server.py"
_HEADER = f"# Model entries: `vllm-harness models --models-file {MODELS_PATH}` lists them.\n"
_BLANKS = """\
    # Fill in what fits the model; `vllm-harness models check --models-file models.yaml` checks the names.
    # tool_call_parser: hermes       # vLLM's name of the parser, without which no test sees a call
    # reasoning_parser: qwen3        # or reasoning
    # hardware: {gpus: 1, gpu_memory_gib: 24}
    # capabilities: [tools, auto_tools, reasoning, structured_output]    # what tests may use
"""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_TEST = '''\
"""A client against a real vLLM server. On the scripted lane the server says what the test scripts."""

import pytest

pytestmark = pytest.mark.vllm_model("{model}")


def test_the_client_gets_the_answer(vllm_server, openai_client, script, check_body):
    script("The capital of France is Paris.")
    response = openai_client.responses.create(model=vllm_server.model, input="What is the capital of France?")
    check_body(response)
    assert "Paris" in response.output_text
'''


class FileState(StrEnum):
    """Whether a file was written."""

    WRITTEN = "written"
    LEFT = "left"
    TO_DO = "to do"


@dataclass(frozen=True)
class FileStep:
    """What `init` did with one file of the project.

    Attributes:
        state: whether the file was written.
        path: the file, relative to the project.
        note: what was written, why nothing was written, or what to do.
        addition: the text that the user has to add by hand.
    """

    state: FileState
    path: str
    note: str
    addition: str = ""


@dataclass(frozen=True)
class NewEntry:
    """The model entry of a project.

    Attributes:
        name: the key of the entry in models.yaml.
        lane: the lane that the project's first test runs on.
        document: the content of a models.yaml that has only this entry.
        blanks: comments for the end of the entry, with the keys that the user has to fill in.
    """

    name: str
    lane: str
    document: dict[str, Any]
    blanks: str = ""

    @property
    def text(self) -> str:
        """The document as YAML."""
        document = plain_yaml(self.document, default_flow_style=None, width=110)
        return _HEADER + document + self.blanks

    @property
    def note(self) -> str:
        """A description of the entry, and of what is missing in it."""
        if not self.blanks:
            return f"the entry {self.name}"
        return (
            f"the entry {self.name} of the live lane, for one GPU with 24 GiB; fill in the parsers and "
            "capabilities, which are commented out"
        )


def new_entry(model: str) -> NewEntry:
    """The harness's own entry for a name or a hub id, or a new entry of the live lane for another hub id.

    Raises:
        ModelsFileError: the model is neither a known name nor a hub id.
    """
    ours = load_models()
    try:
        known = ours.get(model)
    except ModelsFileError:
        if not _HUB_ID.fullmatch(model):
            raise
        return _live_entry(model)
    document = read_yaml(ours.path).data
    lane = "scripted" if "scripted" in known.lanes else "live"
    return NewEntry(known.name, lane, {**document, "models": {known.name: document["models"][known.name]}})


def _live_entry(hub_id: str) -> NewEntry:
    name = hub_id.partition("/")[2].lower()
    body = {"hub": {"id": hub_id}, "family": name, "lanes": ["live"]}
    return NewEntry(name, "live", {"models": {name: body}}, _BLANKS)


def own_files(project: Path, entry: NewEntry) -> list[FileStep]:
    """Adds the dependency, the model entry and the first test."""
    return [add_dependency(project), write_entry(project, entry), write_test(project, entry)]


def add_dependency(project: Path) -> FileStep:
    """Adds the harness to the development dependencies of pyproject.toml."""
    requirement = f"{DISTRIBUTION}>={version(DISTRIBUTION)}"
    path = project / "pyproject.toml"
    if not path.exists():
        return FileStep(
            FileState.LEFT,
            path.name,
            f"there is no such file; install the harness for the tests: pip install '{requirement}'",
        )
    if DISTRIBUTION in _required(tomllib.loads(path.read_text())):
        return FileStep(FileState.LEFT, path.name, f"it requires {DISTRIBUTION} already")
    # uv would write the package indexes from its environment variables into the file
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    add = ("add", "--project", project, "--dev", "--frozen", "--no-python-downloads", requirement)
    try:
        with temporary_folder() as folder:  # uv leaves a lock file there
            run_uv(*add, progress=quiet, environ={**environ, "TMPDIR": str(folder)})
    except InstallError:
        return FileStep(
            FileState.TO_DO, path.name, "uv cannot edit it; add to the development dependencies:", requirement
        )
    return FileStep(FileState.WRITTEN, path.name, f"{requirement} in the dependency group dev")


def write_entry(project: Path, entry: NewEntry) -> FileStep:
    """Writes models.yaml with the entry."""
    path = project / MODELS_PATH
    if not path.exists():
        path.write_text(entry.text)
        return FileStep(FileState.WRITTEN, MODELS_PATH, entry.note)
    try:
        load_models(path).get(entry.name)
    except ModelsFileError:
        return FileStep(FileState.TO_DO, MODELS_PATH, f"it lacks the entry {entry.name}; add:", entry.text)
    return FileStep(FileState.LEFT, MODELS_PATH, f"it has the entry {entry.name} already")


def write_test(project: Path, entry: NewEntry) -> FileStep:
    """Writes the first test."""
    path = project / TEST_PATH
    if path.exists():
        return FileStep(FileState.LEFT, TEST_PATH, "it exists already")
    path.parent.mkdir(exist_ok=True)
    path.write_text(_TEST.format(model=entry.name))
    return FileStep(FileState.WRITTEN, TEST_PATH, "a test of the Responses API")


def _required(pyproject: dict[str, Any]) -> Iterator[str]:
    """The names of all distributions that a project requires, including its groups and extras."""
    project = pyproject.get("project", {})
    extras = project.get("optional-dependencies", {})
    groups = pyproject.get("dependency-groups", {})
    for requirement in chain(project.get("dependencies", []), *extras.values(), *groups.values()):
        with suppress(InvalidRequirement, TypeError):
            yield canonicalize_name(Requirement(requirement).name)
