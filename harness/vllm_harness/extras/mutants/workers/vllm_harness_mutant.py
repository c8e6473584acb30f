"""Puts other code into the functions of one of vLLM's modules, in a server. Called by a parser plugin."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def put(module: str, file: str) -> None:
    """Gives each function of a module, and each method of its classes, the code that a like file has.

    Raises:
        SystemExit: the file lacks one of them, or one needs other variables; vLLM would only log an error.
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
    """Those that stand in the module's own file, also within a property, a class method or a cache."""
    for thing in tuple(vars(holder).values()):  # looking at a deferred model of pydantic completes it
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
