"""The functions that the fork server replaces in vLLM, so that servers fork, and sleep while they wait.

A patch that does not fit a release is reported in the fork server's log, and by a test that runs in the
interpreter of each release.
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
    """The replacement of a function or method of vLLM.

    Attributes:
        place: module of the original and, after a colon, its qualified name.
        make: takes the original and returns the replacement; its docstring states the reason.
        releases: the vLLM releases that contain the original, as a version specifier; empty for all.
        everywhere: whether to also replace it in the vLLM modules that have imported it by name.
        needed: whether the fork server cannot do without it.
    """

    place: str
    make: Callable[[Any], Any]
    releases: str = ""
    everywhere: bool = False
    needed: bool = False

    def apply(self) -> None:
        """Replaces the original with the replacement."""
        holder, name = _holder(self.place)
        original = getattr(holder, name)
        replacement = self.make(original)
        setattr(holder, name, replacement)
        for path, module in list(sys.modules.items()) if self.everywhere else ():
            if path.startswith("vllm.") and vars(module).get(name) is original:
                setattr(module, name, replacement)


def apply_patches() -> None:
    """Applies this release's patches; reports those that do not fit, and exits if one of them is needed."""
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
    """Whether this vLLM matches a version specifier; a source tree without a version counts as the newest."""
    release = re.match(r"\d+\.\d+\.\d+", importlib.import_module("vllm").__version__)
    return (release[0] if release else "9999") in SpecifierSet(releases)


def lookup(place: str) -> Any:
    """The object at a place (see `Patch`). Raises ImportError or AttributeError."""
    return getattr(*_holder(place))


def _holder(place: str) -> tuple[Any, str]:
    """The module or class that contains the object at a place, and the object's name in it."""
    module, _, path = place.partition(":")
    *parents, name = path.split(".")
    return reduce(getattr, parents, importlib.import_module(module)), name


def _fork(_: Any) -> Any:
    """On CPU, vLLM would spawn its engine and workers, which would import everything again."""
    context = multiprocessing.get_context("fork")
    return lambda: context


def _ask_in_fork(ask_in_subprocess: Any) -> Any:
    """To inspect a model's class, vLLM would start an interpreter and import itself again."""

    def ask_in_fork(ask: Callable[[], Any]) -> Any:
        def ask_with_plugins() -> Any:
            lookup(PLUGINS)()
            return ask()

        # no answer means that the inspection failed; vLLM's own function then shows why
        return answer_of_fork(ask_with_plugins) or ask_in_subprocess(ask)

    return ask_in_fork


def _register_once(register: Any) -> Any:
    """Each worker would spend 0.5 s on another scan for Triton kernels to replace by the platform's."""
    done = register.__globals__["_registry"]

    def register_once(overrides: dict[str, Any]) -> None:
        if any(done.get(name, (None, None))[1] is not ours for name, ours in overrides.items()):
            register(overrides)

    return register_once


def _sleep(_: Any) -> Any:
    """Engine and worker would spin until a message is in their queue, which occupies a core."""
    return lambda: time.sleep(LOOK_EVERY_S)


def _wait_for_message(idle_wait: Any) -> Any:
    """vLLM would spin after a message; this waits as if idle, but briefly, as the next may come soon."""

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        last_read = self.last_read
        recent = time.monotonic() <= last_read + self.busy_loop_s
        self.last_read = float("-inf")
        idle_wait(self, min(timeout_ms or LISTEN_MS, LISTEN_MS) if recent else timeout_ms)
        self.last_read = last_read

    return wait


def _notify_each_time(send: Any) -> Any:
    """Every other message to a waiting process would be lost, and each token would take LISTEN_MS longer."""
    # the writer's socket holds one message, and drops the next until it knows that the first was received; it
    # checks that now and then (zmq's max_command_delay), or at once when its events are read
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
