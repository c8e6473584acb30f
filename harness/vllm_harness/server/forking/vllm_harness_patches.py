"""What the fork server replaces in vLLM, so that servers start by forks and wait asleep: a table of patches.

A patch that no longer fits a release that it is for is reported by its name: in the fork server's log, and by
the contract test, which asks the interpreter of each release.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from vllm_harness_forked import answer_of_fork

LOOK_EVERY_S = 0.0002
LISTEN_MS = 10


@dataclass(frozen=True)
class Attribute:
    """Something of vLLM's that the fork server uses.

    Attributes:
        module, name: where it is; the name of a method follows that of its class.
        releases: the releases of vLLM that have it, as a version specifier; empty: all.
    """

    module: str
    name: str
    releases: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def expected(self) -> bool:
        """Whether this release has it."""
        return _release() in SpecifierSet(self.releases)

    def find(self) -> Any:
        """Its value; an error where this vLLM does not have it."""
        return getattr(*self._place())

    def _place(self) -> tuple[Any, str]:
        *path, last = self.name.split(".")
        return reduce(getattr, path, importlib.import_module(self.module)), last


@dataclass(frozen=True, kw_only=True)
class Patch(Attribute):
    """A function or method that is replaced.

    Attributes:
        make: makes the replacement of the original; its docstring says why.
        reads: what the replacement of a method reads of its object.
        everywhere: it is replaced as well in the modules of vLLM that have imported it.
        needed: there is no fork server without it.
    """

    make: Callable[[Any], Any]
    reads: tuple[str, ...] = ()
    everywhere: bool = False
    needed: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()} ({inspect.getdoc(self.make)})"

    def find(self) -> Any:
        """The original; an error where the replacement does not fit in its place."""
        original = super().find()
        given, taken = (inspect.signature(each).parameters for each in (original, self.make(original)))
        if len(given) != len(taken):
            raise TypeError(f"its parameters are {', '.join(given) or 'none'}")
        for name in self.reads:
            if name not in self._place()[0].__init__.__code__.co_names:
                raise AttributeError(f"its object has no {name}")
        return original

    def apply(self) -> None:
        """Puts the replacement in place of the original."""
        original = self.find()
        replacement = self.make(original)
        setattr(*self._place(), replacement)
        for name, module in list(sys.modules.items()) if self.everywhere else ():
            if name.startswith("vllm.") and vars(module).get(self.name) is original:
                setattr(module, self.name, replacement)


def misfits(attributes: Iterable[Attribute]) -> Iterator[tuple[Attribute, str]]:
    """Those that are not in this release as they should be, each with what is wrong."""
    for each in attributes:
        try:
            if each.expected:
                each.find()
        except Exception as error:
            yield each, f"does not fit this vLLM: {each}: {error!r}"


def apply_patches() -> None:
    """Applies the patches for this release, reports those that do not fit, and exits where one is needed."""
    lost = dict(misfits(PATCHES))
    for patch in PATCHES:
        if patch in lost:
            print(lost[patch], flush=True)
            if patch.needed:
                sys.exit(lost[patch])
        elif patch.expected:
            patch.apply()


@cache
def _release() -> Version:
    """This vLLM's, without what follows its numbers; a working tree without any is newer than all."""
    try:
        return Version(Version(importlib.import_module("vllm").__version__).base_version)
    except InvalidVersion:
        return Version("9999")


def _fork(_: Any) -> Any:
    """On CPU vLLM would spawn engine and workers, which imports everything again."""
    context = multiprocessing.get_context("fork")
    return lambda: context


def _ask_in_fork(ask_in_subprocess: Any) -> Any:
    """To look at a model's class in a new interpreter, vLLM would import itself once more."""

    def ask_in_fork(ask: Callable[[], Any]) -> Any:
        def ask_with_plugins() -> Any:
            PLUGINS.find()()
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
    """Engine and worker wait as when idle instead; at first not long, since a message may come too early."""

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        last_read = self.last_read
        recent = time.monotonic() <= last_read + self.busy_loop_s
        self.last_read = float("-inf")
        idle_wait(self, min(timeout_ms or LISTEN_MS, LISTEN_MS) if recent else timeout_ms)
        self.last_read = last_read

    return wait


def _notify_each_time(send: Any) -> Any:
    """Every second message is lost otherwise, and each token takes LISTEN_MS more.

    The writer's socket holds one message and drops the next until it has seen that the first was taken, which
    it checks now and then (zmq's max_command_delay). Reading its events makes it check at once.
    """
    events = importlib.import_module("zmq").EVENTS

    def notify(self: Any) -> None:
        self.local_notify_socket.getsockopt(events)
        send(self)

    return notify


PLUGINS = Attribute("vllm.plugins", "load_general_plugins")
QUEUE = "vllm.distributed.device_communicators.shm_broadcast"
PATCHES = (
    Patch("vllm.utils.system_utils", "get_mp_context", make=_fork, everywhere=True, needed=True),
    Patch("vllm.model_executor.models.registry", "_run_in_subprocess", make=_ask_in_fork),
    Patch("vllm.triton_utils.dispatcher", "register_kernels", ">=0.31.0", make=_register_once),
    Patch(QUEUE, "sched_yield", make=_sleep),
    Patch(QUEUE, "SpinCondition.wait", make=_wait_for_message, reads=("last_read", "busy_loop_s")),
    Patch(QUEUE, "SpinCondition.notify", make=_notify_each_time, reads=("local_notify_socket",)),
)
