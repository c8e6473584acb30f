"""Puts other code in the place of one of vLLM's modules, in a forked server before it serves."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any


def load_changed(module: str, code: str, importers: Sequence[str], mark: str) -> None:
    """Has a module, and those that imported it, imported anew, the module itself from another file's code.

    Args:
        module: its name.
        code: the file that stands in for its own.
        importers: the modules that import it, or a module that does; they are loaded when next asked for.
        mark: a file that is made when the other code has run.

    Raises:
        SystemExit: the code cannot be imported; the server does not start then.
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
    """Finds and loads one module from other code than its file's."""

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
        """Where the modules of a package are; None of a module."""
        path = Path(self.path)
        return [str(path.parent)] if path.name == "__init__.py" else None


def _forget(name: str) -> None:
    """Takes a module out of what is loaded, and out of its package, from which it could be imported still."""
    module = sys.modules.pop(name, None)
    package, _, last = name.rpartition(".")
    holder = sys.modules.get(package)
    if module is not None and getattr(holder, last, None) is module:
        delattr(holder, last)
