"""`vllm-harness init --ci github`: a workflow for a project, and the action for a checkout of vLLM."""

from __future__ import annotations

from pathlib import Path

from vllm_harness._environments.tree import has_vllm
from vllm_harness._files.paths import data_path
from vllm_harness.cli.project_files import MODELS_PATH, TEST_PATH, FileState, FileStep, NewEntry, own_files

WORKFLOW = ".github/workflows/vllm-harness.yml"
ACTION = ".github/actions/vllm-harness/action.yml"
_HEAD = """\
name: vLLM harness
on:
  pull_request:
concurrency:
  group: vllm-harness-${{ github.ref }}
  cancel-in-progress: true
"""
_CACHE = """\
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - uses: actions/cache@v4
        with:
          path: |
            ~/.cache/uv
            ~/.cache/vllm-harness/assets
          key: vllm-harness-${{ runner.os }}
"""
_REVIEW = f"""\
{_HEAD}permissions: {{contents: read, pull-requests: write}}
jobs:
  review:
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
        with: {{fetch-depth: 0}} # the base of the pull request must be known
{_CACHE}\
      - id: review
        uses: ./.github/actions/vllm-harness
        with: {{comment: "true"}}
      - uses: actions/upload-artifact@v4
        if: always()
        with: {{name: vllm-harness-review, path: "${{{{ steps.review.outputs.folder }}}}"}}
"""
_TESTS = f"""\
{_HEAD}permissions: {{contents: read}}
jobs:
  tests:
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
{_CACHE}\
      - run: pip install 'vllm-harness[asyncio]' # and the project itself, if its tests import it
      - run: vllm-harness doctor --servers 1
      - run: pytest --vllm-models-file {MODELS_PATH} --vllm-model {{model}} --vllm-lane {{lane}} {TEST_PATH}
"""


def write_workflow(project: Path, entry: NewEntry) -> list[FileStep]:
    """Writes a GitHub workflow: it reviews changes to vLLM, or runs the first test, which is added too.

    Args:
        project: the folder of the project.
        entry: the model entry of the first test.
    """
    if not has_vllm(project):
        text = _TESTS.replace("{model}", entry.name).replace("{lane}", entry.lane)
        step = _written(project, WORKFLOW, text, "runs the first test for each pull request")
        return [*own_files(project, entry), step]
    action = data_path("ci/action/action.yml").read_text()
    return [
        _written(project, ACTION, action, "the action that reviews a change"),
        _written(project, WORKFLOW, _REVIEW, "reviews each pull request"),
    ]


def _written(project: Path, name: str, text: str, note: str) -> FileStep:
    path = project / name
    if path.exists():
        return FileStep(FileState.LEFT, name, "it exists already")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return FileStep(FileState.WRITTEN, name, note)
