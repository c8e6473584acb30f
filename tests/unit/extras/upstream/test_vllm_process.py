"""Objects that live in another process, and imports that are replaced by such objects."""

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
from vllm_harness.extras.upstream.vllm_process import RemoteCallError, RemoteObject, VllmProcess


@pytest.fixture
def vllm_process() -> Iterator[VllmProcess]:
    """A process that runs this interpreter, since these tests need no vLLM."""
    python = Path(sys.executable)
    process = VllmProcess(Environment("installed", python, "3", "0", "cpu", None), scripted=True)
    yield process
    process.stop()


def _module(finder: StandInFinder, name: str, path: list[str] | None = None) -> ModuleType:
    spec = finder.find_spec(name, path)
    assert isinstance(spec, ModuleSpec)
    module = ModuleType(name)
    module.__file__ = spec.origin
    finder.exec_module(module)
    return module


def test_values_are_copied_if_they_can_be(vllm_process: VllmProcess) -> None:
    assert vllm_process.lookup("json", "dumps")({"a": [1]}) == '{"a": [1]}'
    assert vllm_process.lookup("os", "path").join("a", "b") == "a/b"
    lock = vllm_process.lookup("threading", "Lock")()
    assert isinstance(lock, RemoteObject)
    assert lock.acquire() is True
    assert lock.locked() is True
    assert vllm_process.lookup("operator", "call")(lock.locked) is True
    with pytest.raises(RemoteCallError, match="JSONDecodeError"):
        vllm_process.lookup("json", "loads")("{")
    assert not hasattr(lock, "no_such_name")
    assert vllm_process.lookup("json", "dumps")([]) == "[]"  # the process still answers


def test_remote_objects_serve_as_base_classes_and_annotations(vllm_process: VllmProcess) -> None:
    config = vllm_process.lookup("json", "JSONDecoder")

    class Derived(config):
        kind: config | None = None

    assert Derived().kind is None


def test_the_imports_of_a_test_file_are_replaced(vllm_process: VllmProcess) -> None:
    finder = StandInFinder(vllm_process)
    utils = _module(finder, "tests.utils", ["/vllm/tests"])
    assert utils.RemoteOpenAIServer is RemoteOpenAIServer
    assert Path("/vllm") == utils.VLLM_PATH
    with pytest.raises(pytest.skip.Exception, match=r"tests\.utils\.fork_new_process has no stand-in"):
        utils.fork_new_process  # noqa: B018
    assert not [name for name in vars(_module(finder, "tests.conftest", ["/vllm/tests"])) if name[0] != "_"]
    assert isinstance(_module(finder, "vllm.config").ModelConfig, RemoteObject)
    hub = _module(finder, "vllm.transformers_utils.repo_utils").hf_api()
    assert hub.snapshot_download("a/model") == "a/model"
    assert finder.find_spec("tests.other", ["/vllm/tests"]) is None
    assert finder.find_spec("json", None) is None
