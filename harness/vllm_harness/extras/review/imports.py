"""Finds the files of vLLM's package that static imports reach.

Imports are followed through the packages with parsers. In the rest of vLLM, only what these packages import
directly counts, since nearly every module there reaches every other. A module that re-exports a name, by an
import or an assignment, leads only to the origin of that name. Imports for type checkers are ignored.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLLOWED = ("vllm.parser", "vllm.reasoning", "vllm.tool_parsers")
"""The packages with parsers."""


@dataclass(frozen=True)
class Import:
    """An import of a module, or of a name from it."""

    module: str
    name: str | None = None


class ModuleSource:
    """The source code of a module.

    Args:
        module: the name of the module.
        path: the file of the module.
    """

    def __init__(self, module: str, path: Path) -> None:
        self.tree = ast.parse(path.read_bytes())
        self._package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Its imports from vLLM, including those in functions."""
        return tuple(self.imports_in(self.tree))

    @cached_property
    def at_import(self) -> tuple[Import, ...]:
        """Its imports from vLLM that run when it is imported."""
        return tuple(self.imports_in(self.tree, in_functions=False))

    @cached_property
    def reexported(self) -> dict[str, tuple[Import, ...]]:
        """The names that it imports, or assigns from imported names, with their imports."""
        known: dict[str, tuple[Import, ...]] = {
            name: (imported,) for node in self.tree.body for name, imported in self._bound(node)
        }
        defined = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                used = _names(node.value)
                if not used & defined:
                    imports = tuple(imported for name in sorted(used) for imported in known.get(name, ()))
                    known |= dict.fromkeys(set().union(*map(_names, node.targets)), imports)
        return known

    @cached_property
    def constants(self) -> dict[str, object]:
        """The names to which it assigns literals, with their values."""
        constants: dict[str, object] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                with suppress(ValueError):
                    constants[node.targets[0].id] = ast.literal_eval(node.value)
        return constants

    def imports_in(self, node: ast.AST, *, in_functions: bool = True) -> Iterator[Import]:
        """The imports from vLLM in a part of the module, without those for type checkers."""
        if not in_functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        yield from (imported for _, imported in self._bound(node))
        skipped = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
        for child in ast.iter_child_nodes(node):
            if child not in skipped:
                yield from self.imports_in(child, in_functions=in_functions)

    def _bound(self, node: ast.AST) -> Iterator[tuple[str, Import]]:
        """The names that a statement imports from vLLM."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_below(alias.name, ("vllm",)):
                    yield alias.asname or alias.name, Import(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = self._absolute(node)
            if is_below(module, ("vllm",)):
                yield from ((alias.asname or alias.name, Import(module, alias.name)) for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


class Package:
    """The source code of vLLM's package.

    Args:
        folder: the folder of the package.
        followed: the packages in it whose imports are followed.
    """

    def __init__(self, folder: Path, followed: tuple[str, ...] = FOLLOWED) -> None:
        self._folder = folder
        self._followed = followed
        self._sources: dict[str, ModuleSource | None] = {}

    def source(self, module: str) -> ModuleSource | None:
        """The source code of a module; None if there is no such file, or it cannot be parsed."""
        if module not in self._sources:
            try:
                self._sources[module] = ModuleSource(module, self._folder / self.file(module))
            except (OSError, SyntaxError, ValueError):
                self._sources[module] = None
        return self._sources[module]

    def file(self, module: str) -> str:
        """The path of a module below the package, whether the file exists or not."""
        below = Path(*module.split(".")[1:])
        folder = below / "__init__.py"
        return folder.as_posix() if (self._folder / folder).is_file() else f"{below.as_posix()}.py"

    def reached(self, imports: Iterable[Import]) -> set[str]:
        """The files that imports reach, as paths below the package."""
        files: set[str] = set()
        seen: set[Import] = set()
        pending = list(imports)
        while pending:
            imported = pending.pop()
            if imported not in seen:
                seen.add(imported)
                files.update(map(self.file, self._with_packages(imported.module)))
                pending += self._next(imported)
        return files

    def _next(self, imported: Import) -> Iterable[Import]:
        """The imports that an import leads to."""
        module, name = imported.module, imported.name
        if name and (self._folder / self.file(f"{module}.{name}")).is_file():
            return (Import(f"{module}.{name}"),)
        source = self.source(module)
        if source is None:
            return ()
        if name in source.reexported:
            return source.reexported[name]
        return source.imports if is_below(module, self._followed) else ()

    def modules(self, package: str) -> Iterator[str]:
        """The names of the modules of a package, and of the packages below it."""
        folder = self._folder.joinpath(*package.split(".")[1:])
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(self._folder).with_suffix("").parts
            yield ".".join(["vllm", *(parts[:-1] if parts[-1] == "__init__" else parts)])

    def contains_any(self, module: str, words: Iterable[str]) -> bool:
        """Whether the file of a module contains any of the words, which is faster than parsing it."""
        text = (self._folder / self.file(module)).read_bytes()
        return any(word.encode() in text for word in words)

    def _with_packages(self, module: str) -> Iterator[str]:
        """A module, and the packages that contain it and whose imports are followed."""
        while True:
            yield module
            module = module.rpartition(".")[0]
            if not is_below(module, self._followed):
                return


def is_below(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of the packages, or is inside one of them."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
