"""A pytest plugin (`-p`) that collects the tests without running them, and writes the text of each."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from vllm_harness.extras.mutants.plans import COLLECTED, TestText


def pytest_configure(config: pytest.Config) -> None:
    """Collects the tests without running them if an environment variable names the file to write."""
    if path := os.environ.get(COLLECTED):
        config.option.collectonly = True
        config.pluginmanager.register(CollectionPlugin(Path(path)))


class CollectionPlugin:
    """The pytest hook that writes the texts of the tests."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Writes the text of every test."""
        with self._path.open("w") as file:
            for item in items:
                print(TestText(test=item.nodeid, text=_text(item)).model_dump_json(), file=file)


def _text(item: pytest.Item) -> str:
    """The source code of a test's function, and the values of its parameters."""
    code = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
    case = getattr(item, "callspec", None)
    values = {name: value for name, value in case.params.items() if name[0] != "_"} if case else ""
    return f"{code}\n{values}"
