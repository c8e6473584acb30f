"""Objects of another process, and the imports of a test file that become such objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from vllm_harness._environments.spec import Environment
from vllm_harness.extras.upstream.imports import StandInFinder
from vllm_harness.extras.upstream.tests_utils import RemoteOpenAIServer
from vllm_harness.extras.upstream.vllm_process import Elsewhere, Remote, RemoteFailure


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """A process of this interpreter, which needs no vLLM for what is asked of it here."""
    python = Path(sys.executable)
    where = Elsewhere(Environment("installed", python, "3", "0", "cpu", None), scripted=True)
    yield where
    where.stop()


def _module(finder: StandInFinder, name: str, path: list[str] | None = None) -> ModuleType:
    spec = finder.find_spec(name, path)
    assert isinstance(spec, ModuleSpec)
    module = ModuleType(name)
    module.__file__ = spec.origin
    finder.exec_module(module)
    return module


def test_what_can_be_copied_comes_and_the_rest_stays(elsewhere: Elsewhere) -> None:
    assert elsewhere.name("json", "dumps")({"a": [1]}) == '{"a": [1]}'
    assert elsewhere.name("os", "path").join("a", "b") == "a/b"
    lock = elsewhere.name("threading", "Lock")()
    assert isinstance(lock, Remote)
    assert lock.acquire() is True
    assert lock.locked() is True
    assert elsewhere.name("operator", "call")(lock.locked) is True
    with pytest.raises(RemoteFailure, match="JSONDecodeError"):
        elsewhere.name("json", "loads")("{")
    assert not hasattr(lock, "no_such_name")
    assert elsewhere.name("json", "dumps")([]) == "[]"  # it still answers


def test_a_file_can_be_imported_whose_classes_and_annotations_are_remote(elsewhere: Elsewhere) -> None:
    config = elsewhere.name("json", "JSONDecoder")

    class Derived(config):
        kind: config | None = None

    assert Derived().kind is None


def test_the_imports_of_a_test_file_are_stood_in_for(elsewhere: Elsewhere) -> None:
    finder = StandInFinder(elsewhere)
    utils = _module(finder, "tests.utils", ["/vllm/tests"])
    assert utils.RemoteOpenAIServer is RemoteOpenAIServer
    assert Path("/vllm") == utils.VLLM_PATH
    with pytest.raises(pytest.skip.Exception, match=r"tests\.utils\.fork_new_process has no stand-in"):
        utils.fork_new_process  # noqa: B018
    assert not [name for name in vars(_module(finder, "tests.conftest", ["/vllm/tests"])) if name[0] != "_"]
    assert isinstance(_module(finder, "vllm.config").ModelConfig, Remote)
    hub = _module(finder, "vllm.transformers_utils.repo_utils").hf_api()
    assert hub.snapshot_download("a/model") == "a/model"
    assert finder.find_spec("tests.other", ["/vllm/tests"]) is None
    assert finder.find_spec("json", None) is None
