"""Replaces one of vLLM's modules with changed code, in a forked server before it serves."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any


def load_changed(module: str, code: str, importers: Sequence[str], mark: str) -> None:
    """Imports a module again from changed code, and unloads the modules that imported it.

    Args:
        module: the name of the module.
        code: the path of the changed file.
        importers: the modules that import it, directly or not; they are loaded again when next imported.
        mark: the path of a file to create once the changed code has run.

    Raises:
        SystemExit: the code cannot be imported, so that the server does not start.
    """
    path = sys.modules[module].__file__
    assert path is not None
    sys.meta_path.insert(0, _Changed(module, path, Path(code).read_text()))
    for name in (module, *importers):
        _forget(name)
    try:
        import_module(module)
    except Exception as error:
        raise SystemExit(f"{code} cannot be imported as {module}: {error!r}") from error
    Path(mark).touch()


class _Changed(SourceFileLoader):
    """Finds one module, and loads it from changed code instead of its file."""

    def __init__(self, module: str, path: str, code: str) -> None:
        super().__init__(module, path)
        self._code = compile(code, path, "exec")

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self.name:
            return None
        return spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=self._inside()
        )

    def get_code(self, _: str) -> CodeType:
        return self._code

    def _inside(self) -> list[str] | None:
        """The folder of the submodules, if the module is a package."""
        path = Path(self.path)
        return [str(path.parent)] if path.name == "__init__.py" else None


def _forget(name: str) -> None:
    """Unloads a module, and removes it as an attribute of its package, which imports could still use."""
    module = sys.modules.pop(name, None)
    package, _, last = name.rpartition(".")
    holder = sys.modules.get(package)
    if module is not None and getattr(holder, last, None) is module:
        delattr(holder, last)
