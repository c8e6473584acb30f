"""An import hook that replaces modules that the test files import and that this process must not import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vllm_harness.extras.upstream import tests_utils
from vllm_harness.extras.upstream.vllm_process import VllmProcess

UTILS = "tests.utils"
ROOT_CONFTEST = "tests.conftest"
"""Upstream's root conftest, which imports vLLM and torch and defines fixtures for other folders."""
REMOTE_PACKAGES = ("vllm", "torch")


class _Hub:
    """Replaces the model hub's client and downloads nothing, since the stand-ins need no weights."""

    def snapshot_download(self, repo_id: str, **_: Any) -> str:
        return repo_id


_OWN = {"vllm.transformers_utils.repo_utils": {"hf_api": _Hub}}


class StandInFinder(MetaPathFinder, Loader):
    """Finds replacements for `tests.utils`, upstream's root conftest, and the modules of vLLM and torch.

    Args:
        vllm_process: the process that holds the real objects of vLLM and torch.
    """

    def __init__(self, vllm_process: VllmProcess) -> None:
        self._vllm_process = vllm_process

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec for a module that is replaced; None for any other module."""
        if fullname in (UTILS, ROOT_CONFTEST) and path:
            origin = Path(next(iter(path)), f"{fullname.rpartition('.')[2]}.py")
            spec = ModuleSpec(fullname, self, origin=str(origin))
            spec.has_location = True
            return spec
        if fullname.partition(".")[0] in REMOTE_PACKAGES:
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python create the module object."""

    def exec_module(self, module: ModuleType) -> None:
        """Fills a module with the replacements of its names."""
        if module.__name__ == UTILS:
            module.__dict__.update({k: v for k, v in vars(tests_utils).items() if not k.startswith("__")})
            assert module.__file__
            module.__dict__["VLLM_PATH"] = Path(module.__file__).parent.parent
            module.__dict__["__getattr__"] = _missing
        elif module.__name__ != ROOT_CONFTEST:
            module.__dict__.update(_OWN.get(module.__name__, {}))
            module.__dict__["__getattr__"] = self._lookup(module.__name__)

    def _lookup(self, module: str) -> Callable[[str], Any]:
        def lookup(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return self._vllm_process.lookup(module, name)

        return lookup


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    pytest.skip(f"tests.utils.{name} has no stand-in", allow_module_level=True)


def install(vllm_process: VllmProcess) -> StandInFinder:
    """Installs the finder before Python's own finders; the caller must remove it from `sys.meta_path`."""
    finder = StandInFinder(vllm_process)
    sys.meta_path.insert(0, finder)
    return finder
