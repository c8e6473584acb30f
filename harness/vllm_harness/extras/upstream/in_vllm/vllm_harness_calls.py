"""Runs in an interpreter that has vLLM, and uses vLLM's objects on behalf of another process.

A request is a pickle on standard input, `("get", object, name)` or `("call", object, args, kwargs)`. The
answer is `("value", value)`, `("kept", number)` or `("error", text)`. Objects whose types vLLM or torch
defines stay in this process, and requests and answers refer to them by number.
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
objects: list[Any] = []


class PickledAnswer(pickle.Pickler):
    """Pickles an answer; objects that stay in this process become numbers."""

    def persistent_id(self, value: Any) -> int | None:
        defined_by = value if isinstance(value, KINDS) else type(value)
        module = getattr(defined_by, "__module__", None) or getattr(defined_by, "__name__", "")
        if isinstance(value, types.ModuleType) or str(module).partition(".")[0] in HERE_ONLY:
            return keep(value)
        return None


class Request(pickle.Unpickler):
    """Unpickles a request; a number refers to an object in this process, a string is `MODULE:NAME`."""

    def persistent_load(self, reference: Any) -> Any:
        if isinstance(reference, int):
            return objects[reference]
        module_name, _, name = reference.partition(":")
        module = importlib.import_module(module_name)
        if not name:
            return module
        try:
            return getattr(module, name)
        except AttributeError:
            return importlib.import_module(f"{module_name}.{name}")


def keep(value: Any) -> int:
    """Stores a value in this process; returns its number."""
    objects.append(value)
    return len(objects) - 1


def pickled(value: Any) -> bytes:
    """Pickles an answer with a value, or with the value's number if it cannot be pickled."""
    out = io.BytesIO()
    try:
        PickledAnswer(out).dump(("value", value))
    except Exception:
        return pickle.dumps(("kept", keep(value)))
    return out.getvalue()


def answer(requests: Any) -> bytes:
    """Reads the next request, and returns the pickled answer."""
    try:
        what, target, *rest = Request(requests).load()
        return pickled(getattr(target, rest[0]) if what == "get" else target(*rest[0], **rest[1]))
    except EOFError:
        raise
    except Exception as error:
        return pickle.dumps(("error", f"{type(error).__name__}: {error}"))


def main() -> None:
    """Answers requests until the other process closes the pipe."""
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
