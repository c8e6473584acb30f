"""Counts the retries by upstream's helpers, which repeat a request until the model does what a test needs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

_PREFIX = "retry_"
_COUNTED = "_vllm_harness_counted"


def count_retries(module: ModuleType, add: Callable[[int], None]) -> None:
    """Makes the helpers of a test module report how often they repeat a request.

    Args:
        module: the module, whose coroutine functions `retry_...` get the client as their first argument.
        add: called with the number of retries after each use of a helper.
    """
    for name, helper in list(vars(module).items()):
        if name.startswith(_PREFIX) and inspect.iscoroutinefunction(helper) and not hasattr(helper, _COUNTED):
            setattr(module, name, _counted(helper, add))


def _counted(helper: Callable[..., Any], add: Callable[[int], None]) -> Callable[..., Any]:
    @functools.wraps(helper)
    async def counted(client: Any, *args: Any, **kwargs: Any) -> Any:
        calls = [0]
        try:
            return await helper(_Calls(client, calls), *args, **kwargs)
        finally:
            add(max(0, calls[0] - 1))

    setattr(counted, _COUNTED, True)
    return counted


class _Calls:
    """Wraps a client, or an attribute of one, and counts its calls."""

    def __init__(self, of: Any, calls: list[int]) -> None:
        self._of = of
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        return _Calls(value, self._calls) if callable(value) or hasattr(value, "__dict__") else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls[0] += 1
        return self._of(*args, **kwargs)
