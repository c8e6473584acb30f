"""Runs in an interpreter that has vLLM: does for another process what that one asks of vLLM's objects.

A request is a pickle on standard input, `("get", object, name)` or `("call", object, args, kwargs)`; the
answer is `("value", value)` or `("error", text)`. What the other process cannot have, since vLLM or torch
defines it, stays here and is named by its number.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import sys
import types
from typing import Any

HERE_ONLY = {"vllm", "torch", "transformers", "tokenizers"}
KINDS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
kept: list[Any] = []


class PickledAnswer(pickle.Pickler):
    """Pickles an answer; what stays here becomes its number."""

    def persistent_id(self, value: Any) -> int | None:
        defined_by = value if isinstance(value, KINDS) else type(value)
        module = getattr(defined_by, "__module__", None) or getattr(defined_by, "__name__", "")
        if isinstance(value, types.ModuleType) or str(module).partition(".")[0] in HERE_ONLY:
            return keep(value)
        return None


class Request(pickle.Unpickler):
    """Unpickles a request; a number is what was kept under it, a text a name of a module."""

    def persistent_load(self, reference: Any) -> Any:
        if isinstance(reference, int):
            return kept[reference]
        module, _, name = reference.partition(":")
        found = importlib.import_module(module)
        if not name:
            return found
        try:
            return getattr(found, name)
        except AttributeError:
            return importlib.import_module(f"{module}.{name}")


def keep(value: Any) -> int:
    """The number of a value, from now on."""
    kept.append(value)
    return len(kept) - 1


def pickled(value: Any) -> bytes:
    """An answer with a value, by its number where it cannot be pickled."""
    out = io.BytesIO()
    try:
        PickledAnswer(out).dump(("value", value))
    except Exception:
        return pickle.dumps(("kept", keep(value)))
    return out.getvalue()


def answer(requests: Any) -> bytes:
    """The answer to the next request."""
    try:
        what, target, *rest = Request(requests).load()
        return pickled(getattr(target, rest[0]) if what == "get" else target(*rest[0], **rest[1]))
    except EOFError:
        raise
    except Exception as error:
        return pickle.dumps(("error", f"{type(error).__name__}: {error}"))


def main() -> None:
    """Answers until the other process closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            answers.write(answer(sys.stdin.buffer))
        except EOFError:
            return
        answers.flush()


if __name__ == "__main__":
    main()
