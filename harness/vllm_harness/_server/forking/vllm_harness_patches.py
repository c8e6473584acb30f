"""What the fork server replaces in vLLM, so that servers start by forks and wait asleep: a table of patches.

A patch that no longer fits a release that it is for is reported by its name: in the fork server's log, and by
the contract test, which asks the interpreter of each release.
"""

from __future__ import annotations

import importlib
import multiprocessing
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from packaging.specifiers import SpecifierSet
from vllm_harness_forked import answer_of_fork

LOOK_EVERY_S = 0.0002
LISTEN_MS = 10
QUEUE = "vllm.distributed.device_communicators.shm_broadcast"
PLUGINS = "vllm.plugins:load_general_plugins"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A function or method of vLLM that is replaced.

    Attributes:
        place: its module and, after a colon, its name, which follows that of its class.
        make: makes the replacement of the original; its docstring says why.
        releases: the releases of vLLM that have it, as a version specifier; empty: all.
        everywhere: it is replaced as well in the modules of vLLM that have imported it.
        needed: there is no fork server without it.
    """

    place: str
    make: Callable[[Any], Any]
    releases: str = ""
    everywhere: bool = False
    needed: bool = False

    def apply(self) -> None:
        """Puts the replacement in place of the original."""
        holder, name = _holder(self.place)
        original = getattr(holder, name)
        replacement = self.make(original)
        setattr(holder, name, replacement)
        for path, module in list(sys.modules.items()) if self.everywhere else ():
            if path.startswith("vllm.") and vars(module).get(name) is original:
                setattr(module, name, replacement)


def apply_patches() -> None:
    """Applies the patches for this release, reports those that do not fit, and exits where one is needed."""
    for patch in PATCHES:
        try:
            if is_for(patch.releases):
                patch.apply()
        except Exception as error:
            report = f"a patch does not fit this vLLM: {patch.place}, {error!r} ({patch.make.__doc__})"
            if patch.needed:
                sys.exit(report)
            print(report, flush=True)


def is_for(releases: str) -> bool:
    """Whether this vLLM is one of some releases; a working tree without a version is the newest."""
    release = re.match(r"\d+\.\d+\.\d+", importlib.import_module("vllm").__version__)
    return (release[0] if release else "9999") in SpecifierSet(releases)


def found(place: str) -> Any:
    """What a place has, see `Patch`. Raises ImportError or AttributeError."""
    return getattr(*_holder(place))


def _holder(place: str) -> tuple[Any, str]:
    """The module or class that holds what is at a place, and its name there."""
    module, _, path = place.partition(":")
    *parents, name = path.split(".")
    return reduce(getattr, parents, importlib.import_module(module)), name


def _fork(_: Any) -> Any:
    """On CPU vLLM would spawn engine and workers, which imports everything again."""
    context = multiprocessing.get_context("fork")
    return lambda: context


def _ask_in_fork(ask_in_subprocess: Any) -> Any:
    """To look at a model's class in a new interpreter, vLLM would import itself once more."""

    def ask_in_fork(ask: Callable[[], Any]) -> Any:
        def ask_with_plugins() -> Any:
            found(PLUGINS)()
            return ask()

        # without an answer the class can't be had: vLLM's own way shows why
        return answer_of_fork(ask_with_plugins) or ask_in_subprocess(ask)

    return ask_in_fork


def _register_once(register: Any) -> Any:
    """A worker's own scan for Triton's kernels, to put the platform's in their place, takes 0.5 s."""
    done = register.__globals__["_registry"]

    def register_once(overrides: dict[str, Any]) -> None:
        if any(done.get(name, (None, None))[1] is not ours for name, ours in overrides.items()):
            register(overrides)

    return register_once


def _sleep(_: Any) -> Any:
    """Engine and worker spin until their queue has a message, which takes a core."""
    return lambda: time.sleep(LOOK_EVERY_S)


def _wait_for_message(idle_wait: Any) -> Any:
    """vLLM spins after a message; this waits as when idle, at first not long, for one that came too early."""

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        last_read = self.last_read
        recent = time.monotonic() <= last_read + self.busy_loop_s
        self.last_read = float("-inf")
        idle_wait(self, min(timeout_ms or LISTEN_MS, LISTEN_MS) if recent else timeout_ms)
        self.last_read = last_read

    return wait


def _notify_each_time(send: Any) -> Any:
    """Every second message to a waiting engine or worker is lost, and each token takes LISTEN_MS more."""
    # the writer's socket holds one message and drops the next until it has seen that the first was taken,
    # which it checks now and then (zmq's max_command_delay); reading its events makes it check at once
    events = importlib.import_module("zmq").EVENTS

    def notify(self: Any) -> None:
        self.local_notify_socket.getsockopt(events)
        send(self)

    return notify


PATCHES = (
    Patch(place="vllm.utils.system_utils:get_mp_context", make=_fork, everywhere=True, needed=True),
    Patch(place="vllm.model_executor.models.registry:_run_in_subprocess", make=_ask_in_fork),
    Patch(place="vllm.triton_utils.dispatcher:register_kernels", make=_register_once, releases=">=0.31.0"),
    Patch(place=f"{QUEUE}:sched_yield", make=_sleep),
    Patch(place=f"{QUEUE}:SpinCondition.wait", make=_wait_for_message),
    Patch(place=f"{QUEUE}:SpinCondition.notify", make=_notify_each_time),
)
