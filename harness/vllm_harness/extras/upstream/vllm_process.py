"""Gives test files access to objects of vLLM and torch that are in a process of the server environment.

A test file that imports, for example, `vllm.config.ModelConfig` gets a `RemoteObject`. The other process does
what the test does with the object, using the real vLLM of the server environment.
"""

from __future__ import annotations

import pickle
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from vllm_harness._environments.spec import Environment
from vllm_harness._errors import HarnessError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._server.launch import plan_launch
from vllm_harness.extras.upstream.stand_ins import load_stand_ins, stand_in_entry

_WORKER = Path(__file__).parent / "in_vllm" / "vllm_harness_calls.py"


class RemoteCallError(HarnessError):
    """An operation on a vLLM object raised an error, or is impossible from another process."""


class VllmProcess:
    """A process of the server environment, started when it is first needed.

    Args:
        environment: the environment in which vLLM is installed.
        scripted: whether to replace a model's id with the folder of the model's stand-in.
    """

    def __init__(self, environment: Environment, *, scripted: bool) -> None:
        self._environment = environment
        self._scripted = scripted
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary = ExitStack()

    def lookup(self, module: str, name: str = "") -> RemoteObject:
        """A reference to a vLLM or torch module, or to an object in it, which is resolved on first use."""
        return RemoteObject(self, f"{module}:{name}")

    def request(self, *request: Any) -> Any:
        """Sends a request and returns the answer; see `vllm_harness_calls` for their formats.

        Raises:
            AttributeError: the operation raised AttributeError in the other process.
            RemoteCallError: the operation raised another error, or the other process has ended.
        """
        process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        _Request(process.stdin, self._scripted, self._environment).dump(request)
        process.stdin.flush()
        try:
            kind, value = _Answer(process.stdout, self).load()
        except EOFError:
            raise RemoteCallError(f"the process of {self._environment.describe()} has ended") from None
        if kind == "error":
            raise (AttributeError if value.startswith("AttributeError:") else RemoteCallError)(value)
        return RemoteObject(self, value) if kind == "kept" else value

    def stop(self) -> None:
        """Kills the process, and removes its temporary files."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        self._temporary.close()

    def _start(self) -> subprocess.Popen[bytes]:
        folder = self._temporary.enter_context(temporary_folder())
        environ = self._environment.environ() | {"HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)}
        # a test's thread may end before this process; the worker then ends when its standard input does
        in_main_thread = threading.current_thread() is threading.main_thread()
        prefix = killed_with_parent() if in_main_thread else []
        self._process = subprocess.Popen(
            [*prefix, self._environment.python, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        return self._process


class RemoteObject:
    """A reference to an object in the other process, which does attribute accesses and calls for it.

    As a base class it is ignored, so that files whose classes derive from vLLM's can be imported.
    """

    def __init__(self, process: VllmProcess, reference: int | str) -> None:
        self._process = process
        self._reference = reference

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._process.request("get", self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._process.request("call", self, args, kwargs)

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __reduce__(self) -> Any:
        raise RemoteCallError("an object of the other process cannot be copied")


class _Request(pickle.Pickler):
    def __init__(self, file: Any, scripted: bool, environment: Environment) -> None:
        self._file = file
        self._scripted = scripted
        self._environment = environment
        super().__init__(file)

    def dump(self, request: Any) -> None:
        super().dump(self._with_stand_ins(request))

    def persistent_id(self, value: Any) -> int | str | None:
        return value._reference if isinstance(value, RemoteObject) else None

    def _with_stand_ins(self, value: Any) -> Any:
        """The value with each model's id replaced with the folder of the model's stand-in."""
        if isinstance(value, tuple):
            return tuple(map(self._with_stand_ins, value))
        if isinstance(value, dict):
            return {key: self._with_stand_ins(item) for key, item in value.items()}
        if self._scripted and isinstance(value, str) and value in load_stand_ins().models:
            return plan_launch(stand_in_entry(value), self._environment, lane="scripted").model
        return value


class _Answer(pickle.Unpickler):
    def __init__(self, file: Any, process: VllmProcess) -> None:
        self._process = process
        super().__init__(file)

    def persistent_load(self, reference: int) -> RemoteObject:
        return RemoteObject(self._process, reference)
