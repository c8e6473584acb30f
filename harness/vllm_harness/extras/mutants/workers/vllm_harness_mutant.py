"""Replaces the code of all functions in one vLLM module inside a running server. A parser plugin calls it."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def put(module: str, file: str) -> None:
    """Replaces the code of each function and method in a module with that from a changed copy of its file.

    Raises:
        SystemExit: the copy lacks a function, or changes its free variables; vLLM only logs other exceptions.
    """
    try:
        _put(module, file)
    except (KeyError, ValueError) as error:
        raise SystemExit(f"{file} does not fit {module}: {error!r}") from error


def _put(module: str, file: str) -> None:
    into = import_module(module)
    codes = {_place(code): code for code in _codes(compile(Path(file).read_text(), file, "exec"))}
    for function in _functions(into, into):
        function.__code__ = codes[_place(function.__code__)]


def _functions(module: ModuleType, holder: Any) -> Iterator[FunctionType]:
    """Yields the functions in the module's own file, also from properties, class methods and caches."""
    for thing in tuple(vars(holder).values()):  # a copy, as access to a deferred pydantic model adds values
        if isinstance(thing, type) and thing.__module__ == module.__name__:
            yield from _functions(module, thing)
        for part in ("fget", "fset", "__func__", "__wrapped__"):
            thing = getattr(thing, part, None) or thing
        if isinstance(thing, FunctionType) and thing.__code__.co_filename == module.__file__:
            yield thing


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
