"""The static imports of vLLM's package: which of its files a module's own imports reach.

Followed are the imports of the packages that hold parsers. Of the rest of vLLM only what these import
themselves counts: beyond that nearly every module reaches every other. A module that hands a name on, by an
import or an assignment, leads only to where that name comes from, and imports for type checkers lead nowhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLLOWED = ("vllm.parser", "vllm.reasoning", "vllm.tool_parsers")
"""The packages that hold parsers."""


@dataclass(frozen=True)
class Import:
    """An import: of a module, or of a name from it."""

    module: str
    name: str | None = None


class ModuleSource:
    """The code of a module.

    Args:
        module: its name.
        path: its file.
    """

    def __init__(self, module: str, path: Path) -> None:
        self.tree = ast.parse(path.read_bytes())
        self._package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All that it imports of vLLM when it runs, in functions too."""
        return tuple(self.imports_in(self.tree))

    @cached_property
    def at_import(self) -> tuple[Import, ...]:
        """What it imports of vLLM as soon as it is imported itself."""
        return tuple(self.imports_in(self.tree, in_functions=False))

    @cached_property
    def handed_on(self) -> dict[str, tuple[Import, ...]]:
        """The names that it imports, or assigns from what it imports, with these imports."""
        known: dict[str, tuple[Import, ...]] = {
            name: (each,) for node in self.tree.body for name, each in self._bound(node)
        }
        defined = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                used = _names(node.value)
                if not used & defined:
                    needed = tuple(each for name in sorted(used) for each in known.get(name, ()))
                    known |= dict.fromkeys(set().union(*map(_names, node.targets)), needed)
        return known

    @cached_property
    def constants(self) -> dict[str, object]:
        """The values of names that are assigned literals."""
        found: dict[str, object] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                try:
                    found[node.targets[0].id] = ast.literal_eval(node.value)
                except ValueError:
                    continue
        return found

    def imports_in(self, node: ast.AST, *, in_functions: bool = True) -> Iterator[Import]:
        """What a part of it imports of vLLM, but for type checkers."""
        if not in_functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        yield from (each for _, each in self._bound(node))
        skipped = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
        for child in ast.iter_child_nodes(node):
            if child not in skipped:
                yield from self.imports_in(child, in_functions=in_functions)

    def _bound(self, node: ast.AST) -> Iterator[tuple[str, Import]]:
        """The names that a statement imports of vLLM."""
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
    """vLLM's package, read without being imported.

    Args:
        folder: of the package.
        followed: the packages in it whose imports are followed.
    """

    def __init__(self, folder: Path, followed: tuple[str, ...] = FOLLOWED) -> None:
        self._folder = folder
        self._followed = followed
        self._sources: dict[str, ModuleSource | None] = {}

    def source(self, module: str) -> ModuleSource | None:
        """The code of a module; None where there is no such file, or it is no Python."""
        if module not in self._sources:
            try:
                self._sources[module] = ModuleSource(module, self._folder / self.file(module))
            except (OSError, SyntaxError, ValueError):
                self._sources[module] = None
        return self._sources[module]

    def file(self, module: str) -> str:
        """The file of a module, below the package, whether it is there or not."""
        below = Path(*module.split(".")[1:])
        folder = below / "__init__.py"
        return folder.as_posix() if (self._folder / folder).is_file() else f"{below.as_posix()}.py"

    def reached(self, imports: Iterable[Import]) -> set[str]:
        """The files that imports lead to, by their paths below the package."""
        files: set[str] = set()
        seen: set[Import] = set()
        left = list(imports)
        while left:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                files.update(map(self.file, self._with_packages(each.module)))
                left += self._behind(each)
        return files

    def _behind(self, each: Import) -> Iterable[Import]:
        """What an import leads to."""
        if each.name and self._is_module(f"{each.module}.{each.name}"):
            return (Import(f"{each.module}.{each.name}"),)
        source = self.source(each.module)
        if source is None:
            return ()
        if each.name in source.handed_on:
            return source.handed_on[each.name]
        return source.imports if is_below(each.module, self._followed) else ()

    def _is_module(self, name: str) -> bool:
        return (self._folder / self.file(name)).is_file()

    def modules(self, package: str) -> Iterator[str]:
        """The modules of a package in it, and of those below."""
        folder = self._folder.joinpath(*package.split(".")[1:])
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(self._folder).with_suffix("").parts
            yield ".".join(["vllm", *(parts[:-1] if parts[-1] == "__init__" else parts)])

    def names_any(self, module: str, words: Iterable[str]) -> bool:
        """Whether a word stands anywhere in the file of a module, which is quicker than reading its code."""
        text = (self._folder / self.file(module)).read_bytes()
        return any(word.encode() in text for word in words)

    def _with_packages(self, module: str) -> Iterator[str]:
        """A module, and the packages above it whose imports are followed."""
        while True:
            yield module
            module = module.rpartition(".")[0]
            if not is_below(module, self._followed):
                return


def is_below(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of these packages, or in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
