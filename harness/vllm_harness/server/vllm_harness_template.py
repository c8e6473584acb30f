"""The fork template: imports vLLM once, then forks a supervised server for each request.

Run by the server's interpreter as `python vllm_harness_template.py SOCKET LINGER_S`; imports nothing of the
harness but supervisor.py beside it. It starts no torch computation and touches no CUDA: thread pools and
CUDA contexts do not survive a fork. A client connects to the socket (one JSON line each way) and requests:

    {"op": "fork", "config": {...}} with two descriptors, control and status
        forks a supervisor, which forks the server; supervisor.py describes the messages on the two pipes
    {"op": "template", "socket": PATH, "model": FOLDER, "harmony": BOOL, "env": {...}}
        forks a template that has the model's tokenizer loaded as well
    {"op": "hold"}
        lives as long as this client is connected
    {"op": "leave"}
        from now on ends as soon as no client is connected
    {"op": "dismiss"}
        ends now, unless another client holds it; answers whether it ends

A template ends when no client has held it for LINGER_S seconds, or none is connected and its socket is gone
from its path, as with the whole folder; servers live on with their owners. Who only connects, to see whether
it is there, does not prolong its life.
"""

from __future__ import annotations

import array
import atexit
import copy
import ctypes
import gc
import importlib
import importlib.util
import inspect
import json
import logging
import multiprocessing
import os
import pickle
import pkgutil
import re
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

# imported with all their submodules, as far as this version of vLLM has them
PACKAGES = (
    *("vllm.entrypoints.openai", "vllm.entrypoints.serve", "vllm.entrypoints.generate"),
    *("vllm.entrypoints.scale_out", "vllm.entrypoints.anthropic", "vllm.entrypoints.launchers"),
    *("vllm.parser", "vllm.reasoning", "vllm.tool_parsers", "vllm.renderers", "vllm.tokenizers"),
    *("vllm.transformers_utils.chat_templates", "vllm.plugins.lora_resolvers"),
    *("vllm.model_executor.layers.quantization.online", "model_hosting_container_standards"),
    "prometheus_fastapi_instrumentator",
)
MODULES = (
    "vllm",
    *("vllm.entrypoints.cli.main", "vllm.entrypoints.cli.openai", "vllm.entrypoints.cli.serve"),
    *("vllm.entrypoints.cli.benchmark.main", "vllm.entrypoints.cli.collect_env"),
    *("vllm.entrypoints.cli.run_batch", "vllm.entrypoints.cli.launch"),
    *("vllm.v1.engine.async_llm", "vllm.v1.engine.core", "vllm.v1.engine.core_client"),
    *("vllm.v1.executor.multiproc_executor", "vllm.v1.executor.uniproc_executor"),
    *("vllm.v1.sample.logits_processor", "vllm.v1.structured_output.backend_xgrammar"),
    *("vllm.v1.structured_output.backend_guidance", "vllm.triton_utils.dispatcher"),
    *("vllm.model_executor.model_loader.default_loader", "vllm.model_executor.model_loader.dummy_loader"),
    *("vllm.model_executor.models.gpt_oss", "vllm.model_executor.models.llama"),
    *("vllm.model_executor.models.qwen3", "xgrammar", "openai_harmony", "pycountry.db"),
    *("transformers.models.auto.tokenization_auto", "compressed_tensors", "torch._dynamo", "torch._inductor"),
    *(
        "uvicorn.protocols.http.httptools_impl",
        "uvicorn.lifespan.on",
        "referencing.jsonschema",
    ),
)
MODULES_OF = {
    "cpu": (
        "vllm.v1.worker.cpu_worker",
        "vllm.v1.worker.cpu_model_runner",
        "vllm.v1.attention.backends.cpu_attn",
    ),
    "cuda": (
        "vllm.v1.worker.gpu_worker",
        "vllm.v1.worker.gpu_model_runner",
        "vllm.v1.attention.backends.triton_attn",
    ),
}
"""By the device that vLLM runs on."""

SUPERVISOR = "vllm_harness_supervisor"
PROXY = "vllm_harness_proxy"
"""In front of a server that takes no middleware; see there."""
FIRST_CLIENT_S = 60.0
CREDENTIALS = struct.Struct("3i")  # of the other end of a Unix socket: pid, uid, gid
# the variables in which vLLM names the cores of a worker, by OpenMP library, and the pattern of their values
BINDINGS = {"OMP_PLACES": r"(.+)", "GOMP_CPU_AFFINITY": r"(.+)", "KMP_AFFINITY": r"proclist=\[(.+?)\]"}
LOOK_EVERY_S = 0.0002
LISTEN_MS = 10
INSPECTION_LIMIT_S = 120.0
CUDA_ERROR_NOT_INITIALIZED = 3
SPARE_COPIES = 2  # of a tokenizer, for the render threads of the API server


def main() -> None:
    """Imports, then serves; a fork unwinds to here and becomes a supervisor, a server, or a template."""
    path, linger_s, starter = sys.argv[1], float(sys.argv[2]), os.getppid()
    supervisor = _load_supervisor()
    _import_all()
    _fork_everything()
    _inspect_in_forks()
    _override_kernels()
    _wait_asleep()
    os.register_at_fork(after_in_child=_bind_openmp)
    _freeze()
    while True:
        become = Template(path, linger_s, supervisor, starter).serve()
        if not isinstance(become, NextTemplate):
            _leave(become)
        path, starter = become.path, os.getppid()
        become.preload()
        _freeze()


def _leave(become: Callable[[], int] | None) -> NoReturn:
    """Ends as an interpreter does, without freeing the heap, which would take half a second."""
    try:
        code: object = become() if become else 0
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


class NextTemplate:
    """A fork that becomes a template itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.path: str = request["socket"]
        self._request = request

    def preload(self) -> None:
        """Loads the model's tokenizer, and the Harmony encoding where the model uses it."""
        os.environ.update(self._request["env"])
        _preload_tokenizer(self._request["model"])
        if self._request["harmony"]:
            _preload_harmony()


class Template:
    """Listens for requests and forks.

    Args:
        path: the Unix socket.
        linger_s: seconds without a client after which it ends.
        supervisor: the module supervisor.py.
        starter: process id of its parent; when that has ended before a client connected, the template ends.
    """

    def __init__(self, path: str, linger_s: float, supervisor: Any, starter: int) -> None:
        self._starter = starter
        self._linger_s = linger_s
        self._supervisor = supervisor
        self._clients: list[socket.socket] = []
        self._holders: set[socket.socket] = set()
        self._patience_s = FIRST_CLIENT_S
        self._dismissed = False
        self._path = Path(path)
        self._listener = _listener(self._path)
        self._file = self._path.lstat()

    def serve(self) -> Callable[[], int] | NextTemplate | None:
        """Returns in each fork what it is to become; in the template itself None, at its end."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        idle_since = time.monotonic()
        wanted = False
        while not self._dismissed and (
            self._clients or (self._can_be_found() and time.monotonic() - idle_since < self._patience_s)
        ):
            if self._holders:
                idle_since, self._patience_s, wanted = time.monotonic(), self._linger_s, True
            elif not wanted and os.getppid() != self._starter:
                break
            ready, _, _ = select.select([self._listener, *self._clients], [], [], 0.2)
            _reap()
            for each in ready:
                if each is self._listener:
                    self._clients += _accepted(self._listener)
                elif (become := self._handle(each)) is not None:
                    return become
        if self._can_be_found():
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".json").unlink(missing_ok=True)  # its starter's note
        return None

    def _can_be_found(self) -> bool:
        """Whether its socket is still at its path."""
        try:
            return os.path.samestat(self._path.lstat(), self._file)
        except OSError:
            return False

    def _handle(self, client: socket.socket) -> Callable[[], int] | NextTemplate | None:
        try:
            data, descriptors = _receive(client)
        except OSError:
            data, descriptors = b"", []
        if not data:
            _close(descriptors)
            self._clients.remove(client)
            self._holders.discard(client)
            client.close()
            return None
        for line in data.splitlines():  # what is said of its life may come together
            request = json.loads(line)
            if request["op"] in ("fork", "template"):
                return self._fork(client, request, descriptors)
            self._be_held(client, request["op"])
        return None

    def _fork(
        self, client: socket.socket, request: dict[str, Any], descriptors: list[int]
    ) -> Callable[[], int] | NextTemplate | None:
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            return self._become(template, request, descriptors)
        _close(descriptors)
        with suppress(OSError):  # the client may have been killed meanwhile
            client.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        return None

    def _be_held(self, client: socket.socket, op: str) -> None:
        if op == "hold":
            self._holders.add(client)
        elif op == "leave":
            self._linger_s = self._patience_s = 0.0
        else:
            self._dismissed = not self._holders - {client}
            with suppress(OSError):
                client.sendall(json.dumps({"ends": self._dismissed}).encode() + b"\n")

    def _become(
        self, template: int, request: dict[str, Any], descriptors: list[int]
    ) -> Callable[[], int] | NextTemplate:
        self._listener.close()
        for client in self._clients:
            client.close()
        os.setsid()
        if request["op"] == "template":
            self._supervisor.die_with_parent(template)
            return NextTemplate(request)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        config = self._supervisor.Config(**request["config"])
        return lambda: _supervise(self._supervisor, config)


def _supervise(supervisor: Any, config: Any) -> int:
    become_server: list[Callable[[], int]] = []

    def launch(config: Any) -> ForkedServer:
        server = ForkedServer(supervisor, config)
        if server.pid == 0:
            become_server.append(lambda: _serve(config))
            raise _IsServer
        return server

    try:
        return int(supervisor.supervise(config, launch))
    except _IsServer:
        return become_server[0]()


class _IsServer(BaseException):
    """Raised in the forked server to unwind its supervisor's stack."""


class ForkedServer:
    """A server forked by its supervisor, with the interface that supervisor.py uses."""

    def __init__(self, supervisor: Any, config: Any) -> None:
        reader, writer = os.pipe()
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            supervisor.die_with_parent(parent)
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            _close_inherited()
            return
        os.close(writer)
        self.stdout = os.fdopen(reader, "rb")

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        """Its exit code."""
        while self.poll() is None:
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode


def _close_inherited() -> None:
    """Closes what the template has open, but not the driver's devices: NVML, once used, fails without."""
    for descriptor in range(3, 256):
        with suppress(OSError):
            if not str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/dev/nvidia"):
                os.close(descriptor)


def _find_further_packages() -> None:
    """Those that this server has and its template has not: packages that no other folder has."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [folder for folder in path if folder and folder not in sys.path]


def _serve(config: Any) -> int:
    """Becomes `vllm serve`."""
    os.environ.clear()
    os.environ.update(config.env)
    _set_log_level()
    _find_further_packages()
    tempfile.tempdir = None
    importlib.import_module("vllm_harness_shm").name_blocks(config.server_id)
    if config.first:
        runpy.run_path(config.first)
    sys.argv = ["vllm", *config.argv[config.argv.index("vllm.entrypoints.cli.main") + 1 :]]
    if Path(config.argv[1]).stem == PROXY:
        sys.argv += ["--uds", _fork_proxy(int(config.argv[2]))]
    entry = importlib.import_module("vllm.entrypoints.cli.main")
    return entry.main() or 0


def _set_log_level() -> None:
    """Gives vLLM's logger this server's level: it took its template's, unless a file configures it."""
    logger = logging.getLogger("vllm")
    if logger.handlers and not os.environ.get("VLLM_LOGGING_CONFIG_PATH"):
        level = os.environ.get("VLLM_LOGGING_LEVEL", "INFO").upper()
        logger.setLevel(level)
        for handler in logger.handlers:
            handler.setLevel(level)


def _fork_proxy(port: int) -> str:
    """Starts the proxy in front of this server, which ends with it; gives the socket to listen on."""
    proxy = importlib.import_module(PROXY)
    server = os.getpid()
    if os.fork() == 0:
        sys.modules[SUPERVISOR].die_with_parent(server)
        proxy.proxy(port).run()
        os._exit(0)
    return str(proxy.socket_path())


def _load_supervisor() -> Any:
    path = Path(__file__).with_name("supervisor.py")
    spec = importlib.util.spec_from_file_location(SUPERVISOR, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[SUPERVISOR] = module
    spec.loader.exec_module(module)
    return module


def _import_all() -> None:
    if titles := _import("setproctitle"):
        titles.getproctitle()  # it finds the memory of the title once, before os.environ.update hides it
    importlib.import_module("vllm")
    device = importlib.import_module("vllm.platforms").current_platform.device_type
    for name in (*MODULES, *MODULES_OF.get(device, ())):
        _import(name)
    for package in PACKAGES:
        found = _import(package)
        if found is not None:
            for module in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda _: None):
                _import(module.name)


def _import(name: str) -> Any:
    """The module; None where this version has none, or a package that it imports is not installed."""
    module = None
    try:
        module = importlib.import_module(name)
    except Exception as error:
        print(f"not preloaded: {name} ({type(error).__name__}: {error})", flush=True)
    if _cuda_is_initialized():
        sys.exit(f"to import {name} initializes CUDA, which does not survive a fork")
    return module


def _cuda_is_initialized() -> bool:
    """Whether this process has called cuInit; asked of the driver, since torch need not know."""
    driver = _cuda_driver()
    if driver is None:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)


@cache
def _cuda_driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _fork_everything() -> None:
    """Makes vLLM fork its engine and workers; on CPU it would spawn, which imports everything again."""
    fork = multiprocessing.get_context("fork")
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "get_mp_context" in vars(module):
            module.get_mp_context = lambda: fork  # type: ignore[attr-defined]


def _inspect_in_forks() -> None:
    """Has vLLM look at a model's class in a fork; in a new interpreter it would import itself once more."""
    registry: Any = sys.modules.get("vllm.model_executor.models.registry")
    in_subprocess = getattr(registry, "_run_in_subprocess", None)
    if in_subprocess is None:
        return
    plugins = importlib.import_module("vllm.plugins")

    def in_fork(ask: Callable[[], Any]) -> Any:
        reader, writer = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            sys.modules[SUPERVISOR].die_with_parent(parent)
            with suppress(BaseException):
                plugins.load_general_plugins()
                os.write(writer, pickle.dumps(ask()))
            os._exit(0)
        os.close(writer)
        answer = _read_all(reader, INSPECTION_LIMIT_S)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        # without an answer the class can't be had: vLLM's own way tells why
        return pickle.loads(answer) if answer else in_subprocess(ask)

    registry._run_in_subprocess = in_fork


def _read_all(descriptor: int, limit_s: float) -> bytes:
    """What a child writes until it closes its end; nothing where that takes too long."""
    deadline, data = time.monotonic() + limit_s, b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (more := file.read(1 << 16)):
                return data
            data += more
    return b""


def _override_kernels() -> None:
    """Puts the platform's kernels in place of Triton's, once; a worker's own scan takes 0.5 s."""
    try:
        dispatcher: Any = importlib.import_module("vllm.triton_utils.dispatcher")
        platform = importlib.import_module("vllm.platforms").current_platform
        register, done = dispatcher.register_kernels, dispatcher._registry

        def register_once(overrides: dict[str, Any]) -> None:
            if any(done.get(name, (None, None))[1] is not ours for name, ours in overrides.items()):
                register(overrides)

        dispatcher.register_kernels = register_once
        platform.register_triton_kernel_overrides()
    except (ImportError, AttributeError) as error:
        print(f"kernel overrides not prepared: {error}", flush=True)


def _wait_asleep() -> None:
    """Has engine and worker sleep until their queue has a message; vLLM spins, which takes a core."""
    queue: Any = sys.modules.get("vllm.distributed.device_communicators.shm_broadcast")
    if hasattr(queue, "sched_yield"):
        queue.sched_yield = lambda: time.sleep(LOOK_EVERY_S)
    if condition := getattr(queue, "SpinCondition", None):
        _wait_for_message(condition)


def _wait_for_message(condition: Any) -> None:
    """Waits for the writer's message, as vLLM does when idle; at first not long, since it may come too early.

    The writer's socket holds one message and drops the next until it has seen that the first was taken, which
    it checks now and then (zmq's max_command_delay). Reading its events makes it check at once; otherwise
    every second message is lost, and each token takes LISTEN_MS more.
    """
    idle_wait, send = condition.wait, condition.notify
    events = importlib.import_module("zmq").EVENTS

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        last_read = self.last_read
        recent = time.monotonic() <= last_read + self.busy_loop_s
        self.last_read = float("-inf")
        idle_wait(self, min(timeout_ms or LISTEN_MS, LISTEN_MS) if recent else timeout_ms)
        self.last_read = last_read

    def notify(self: Any) -> None:
        self.local_notify_socket.getsockopt(events)
        send(self)

    condition.wait, condition.notify = wait, notify


def _bind_openmp() -> None:
    """In a forked worker: applies the threads and cores that vLLM sets by variables at a spawn."""
    if threads := os.environ.get("OMP_NUM_THREADS"):
        importlib.import_module("torch").set_num_threads(int(threads))
    for name, pattern in BINDINGS.items():
        if cores := re.search(pattern, os.environ.get(name, "")):
            os.sched_setaffinity(0, {int(core) for core in re.findall(r"\d+", cores[1])})


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _preload_tokenizer(folder: str) -> None:
    """Loads a tokenizer in advance, as vLLM will; each process uses it once, further loads read it again."""
    auto = importlib.import_module("transformers").AutoTokenizer
    load = auto.from_pretrained
    ready: dict[str, Any] = {}

    def key(name: Any, args: Any, options: dict[str, Any]) -> str:
        return repr((str(name), args, sorted(options.items(), key=lambda item: item[0])))

    def from_pretrained(name: Any, *args: Any, **options: Any) -> Any:
        tokenizer = ready.pop(key(name, args, options), None)
        return load(name, *args, **options) if tokenizer is None else tokenizer

    def record(name: Any, *args: Any, **options: Any) -> Any:
        tokenizer = load(name, *args, **options)
        ready[key(name, args, options)] = tokenizer
        return tokenizer

    try:
        get_tokenizer = importlib.import_module("vllm.tokenizers").get_tokenizer
    except (ImportError, AttributeError):
        get_tokenizer = importlib.import_module("vllm.transformers_utils.tokenizer").get_tokenizer
    auto.from_pretrained = record
    try:
        tokenizer = get_tokenizer(folder)
        loaded = list(ready.values())
        auto.from_pretrained = lambda *_, **__: loaded[0]
        _look_for_processor(tokenizer)
        for each in loaded:
            _copy_in_advance(each)
        _read_vocabulary(tokenizer, folder)
    except Exception:
        traceback.print_exc()
    auto.from_pretrained = from_pretrained


def _copy_in_advance(tokenizer: Any) -> None:
    """Makes the vocabulary and the deep copies that vLLM takes of a tokenizer at start, seconds each."""
    vocabulary = tokenizer.get_vocab()
    vars(tokenizer)["get_vocab"] = lambda: vocabulary
    spares = [copy.deepcopy(tokenizer) for _ in range(SPARE_COPIES)]

    def deepcopy(memo: dict[int, Any]) -> Any:
        if spares:
            return spares.pop()
        vars(tokenizer).pop("__deepcopy__", None)  # shallow copies have it as well
        return copy.deepcopy(tokenizer, memo)

    vars(tokenizer)["__deepcopy__"] = deepcopy


def _read_vocabulary(tokenizer: Any, folder: str) -> None:
    """Has xgrammar read the vocabulary, as each server's first grammar does, half a second each."""
    info = importlib.import_module("xgrammar").TokenizerInfo
    read = info.from_huggingface
    config = importlib.import_module("transformers").AutoConfig.from_pretrained(folder)
    options = {"vocab_size": config.get_text_config().vocab_size}
    ready = read(tokenizer, **options)

    def named(given: Any) -> tuple[str, str]:
        return type(given).__name__, given.name_or_path  # vLLM makes the class anew for each

    def from_huggingface(given: Any, **asked: Any) -> Any:
        return ready if (named(given), asked) == (named(tokenizer), options) else read(given, **asked)

    info.from_huggingface = from_huggingface


def _look_for_processor(tokenizer: Any) -> None:
    """Has vLLM find, and remember, that a text model has no processor with a chat template of its own."""
    look = getattr(importlib.import_module("vllm.renderers.hf"), "_try_get_processor_chat_template", None)
    if look is not None:
        wanted = list(inspect.signature(look).parameters)[1:]
        look(tokenizer, **{name: False if name == "trust_remote_code" else None for name in wanted})


def _preload_harmony() -> None:
    for name in (
        "vllm.entrypoints.openai.parser.harmony_utils",
        "vllm.entrypoints.harmony_utils",
    ):
        try:
            importlib.import_module(name).get_encoding()
            return
        except (ImportError, AttributeError):
            continue


def _listener(path: Path) -> socket.socket:
    """Listens at a path, named through its folder: a socket's name has at most 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    half = f"{path.name}.{os.getpid()}"
    listener.bind(f"/proc/self/fd/{folder}/{half}")
    listener.listen(64)
    os.rename(half, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)
    return listener


def _accepted(listener: socket.socket) -> list[socket.socket]:
    """The next client; none where it belongs to another user, from whom nothing is read."""
    client = listener.accept()[0]
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(credentials)
    if uid == os.geteuid():
        return [client]
    print(f"refused: a client of another user (pid {pid}, uid {uid})", flush=True)
    client.close()
    return []


def _receive(client: socket.socket) -> tuple[bytes, list[int]]:
    """One line and the descriptors sent with it."""
    size = array.array("i").itemsize
    data, ancillary, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(2 * size))
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % size])
    while data and not data.endswith(b"\n"):
        more = client.recv(1 << 20)
        if not more:
            return b"", list(descriptors)
        data += more
    return data, list(descriptors)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
