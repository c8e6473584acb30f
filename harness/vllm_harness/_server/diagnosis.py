"""Diagnoses why a server did not start, from its log, its exit code and the state of the machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vllm_harness._machine.gpus import describe_gpus
from vllm_harness._server import errors
from vllm_harness._server.leases.ports import describe_holder

TAIL_BYTES = 400_000
PREFIX = re.compile(r"^\((?:APIServer|EngineCore\S*|Worker\S*|VllmWorker\S*)[^)]*\)\s*")


@dataclass(frozen=True)
class CauseRule:
    """How to recognise the cause of a failed start in a server's log.

    Attributes:
        error: the error class for this cause.
        pattern: regex for the decisive line; `headline` and `advice` may use its groups.
        headline: what happened, with `{0}` for the first group.
        advice: what to try, or a function that returns it for the match.
    """

    error: type[errors.StartupError]
    pattern: str
    headline: str
    advice: str | Callable[[re.Match[str]], str]


def _nearest_parser(match: re.Match[str]) -> str:
    known = re.findall(r"[\w.-]+", match.group(2))
    near = get_close_matches(match.group(1), known, n=3, cutoff=0.4)
    return (
        f"use one of the nearest names: {', '.join(near)}"
        if near
        else f"use one of: {', '.join(sorted(known))}"
    )


def _with_gpus(advice: str) -> Callable[[re.Match[str]], str]:
    return lambda _: f"{advice}; the GPUs now: {describe_gpus()}"


# the first rule that matches decides, so the more specific cause comes first
RULES: tuple[CauseRule, ...] = (
    CauseRule(
        errors.UnknownParser,
        r"invalid (?:tool call parser|tool parser|reasoning parser): (\S+) \(chose from \{(.*?)\}",
        "vLLM has no parser named {0}",
        _nearest_parser,
    ),
    CauseRule(
        errors.UnknownParser,
        r"(?:[Tt]ool|[Rr]easoning) parser:? '(\S+?)' not found.*?[Aa]vailable(?: parsers)?: (.*)",
        "vLLM has no parser named {0}",
        _nearest_parser,
    ),
    CauseRule(
        errors.UnknownParser,
        r"(?:tool|reasoning) parser `(\S+?)` is not registered \(choose from: (.*?)\)",
        "vLLM's Rust front end has no parser named {0}",
        _nearest_parser,
    ),
    CauseRule(
        errors.UnknownFlag,
        r"error: unrecognized arguments: (.+)",
        "this vLLM does not know the flag {0}",
        "run `vllm-harness models check`, which compares the flags of an entry with a vLLM version",
    ),
    CauseRule(
        errors.UnknownFlag,
        r"error: argument (\S+): (.+)",
        "this vLLM does not accept the value of {0}",
        "use a value that the line above names",
    ),
    CauseRule(
        errors.DamagedWeights,
        r"(?:SafetensorError|Error while deserializing header|PytorchStreamReader failed|"
        r"not enough (?:tensor )?data.*safetensors|incomplete metadata|"
        r"struct\.error: unpack requires a buffer)",
        "a weights file is damaged",
        "fetch the weights again: `vllm-harness env assets fetch`, or remove them from the hub's cache",
    ),
    CauseRule(
        errors.GatedModel,
        r"(?:GatedRepoError|gated repo|Access to model \S+ is restricted|401 Client Error.*huggingface)",
        "the model is gated",
        "accept its licence on the hub and set HF_TOKEN",
    ),
    CauseRule(
        errors.ModelNotFound,
        r"(?:RepositoryNotFoundError|is not a local folder and is not a valid model identifier|Repo id must)",
        "the model is neither a folder nor a repository on the hub",
        "check the path or the hub id; a private model needs HF_TOKEN",
    ),
    CauseRule(
        errors.HubUnreachable,
        r"(?:couldn't connect to '?https?://\S+|LocalEntryNotFoundError|OfflineModeIsEnabled|"
        r"Cannot reach https?://\S+|outgoing traffic has been disabled|HF_HUB_OFFLINE|"
        r"Max retries exceeded with url|Name or service not known|Temporary failure in name resolution)",
        "the model hub cannot be reached and the model is not in the local cache",
        "use the scripted lane, which needs no weights; or download the model on a machine "
        "with network, or name a local folder",
    ),
    CauseRule(
        errors.UnsupportedArchitecture,
        r"(?:Model architectures (.+?) (?:are not supported|failed to be inspected)|"
        r"does not recognize this architecture|has no vLLM implementation)",
        "this vLLM does not support the model's architecture",
        "use a vLLM version that supports it (`vllm-harness env list` shows those here), or another model",
    ),
    CauseRule(
        errors.NoCudaDevice,
        r"(?:No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|"
        r"Failed to infer device type|Torch not compiled with CUDA enabled)",
        "this vLLM needs a CUDA device and finds none",
        "run `nvidia-smi`; without a GPU: `vllm-harness env create 0.32.0 --device cpu`",
    ),
    CauseRule(
        errors.CpuMemoryTooSmall,
        r"(?:Free memory on (?:device )?(?:cpu|CPU|NUMA|node)|"
        r"[Nn]ot enough (?:available )?memory.*(?:NUMA|node|CPU)|"
        r"[Aa]vailable memory.*(?:NUMA|node)|VLLM_CPU_KVCACHE_SPACE)",
        "there is too little free memory on the NUMA node",
        "lower --gpu-memory-utilization (it counts on CPU too) or VLLM_CPU_KVCACHE_SPACE, "
        "or end other processes that use memory",
    ),
    CauseRule(
        errors.KvCacheTooSmall,
        r"(?:KV cache is needed, which is larger than|No available memory for the cache blocks)",
        "the KV cache does not hold a request of the model's full length",
        _with_gpus("lower --max-model-len, or raise --gpu-memory-utilization, on CPU VLLM_CPU_KVCACHE_SPACE"),
    ),
    CauseRule(
        errors.GpuOutOfMemory,
        r"(?:CUDA out of memory|torch\.OutOfMemoryError|Free memory on device cuda|"
        r"is less than desired GPU memory utilization)",
        "there is too little GPU memory",
        _with_gpus("free the GPU or lower --gpu-memory-utilization, --max-model-len or --max-num-seqs"),
    ),
    CauseRule(
        errors.PortTaken,
        r"(?:[Aa]ddress already in use|error while attempting to bind on address)",
        "the port is taken",
        "leave the port out; the harness then leases a free port",
    ),
    CauseRule(
        errors.WrongTorchBuild,
        r"(?:undefined symbol|libcudart|libtorch\S*: cannot open|lib\S+\.so\S*: cannot open shared object|"
        r"operator torchvision::nms does not exist)",
        "vLLM's kernels do not fit the installed torch",
        "run `vllm-harness env verify`, or make the environment again (`vllm-harness env create`)",
    ),
    CauseRule(
        errors.MissingOperator,
        r"(?:'_OpNamespace' '(\w+)' object has no attribute '(\w+)'|"
        r"(?:[Nn]o such operator|operator|schema for operator|[Cc]ould not find schema for) (_C\w*)::(\w+))",
        "vLLM's Python code needs the operator {0}::{1}, which these kernels do not have",
        "use the kernels of a release nearer to this vLLM (`vllm-harness env list` shows the releases)",
    ),
    CauseRule(
        errors.MissingPackage,
        r"(?:No module named '?([\w.]+)'?|PackageNotFoundError: .*?(\S+)$)",
        "a Python package is missing in the server's environment",
        "run `vllm-harness env verify`; for an installed vLLM, `pip install` the package that the line names",
    ),
)

ENGINE_KILLED = r"Failed core proc\(s\): \{[^}]*: -9\b|died unexpectedly.*(?:signal 9|exitcode[ =]-9)"
ENGINE_FATAL = "EngineCore encountered a fatal error"
RAISED = re.compile(r"(?:^|\] )((?:\w+\.)*\w*(?:Error|Exception): .*)")
LOOKS_DECISIVE = re.compile(r"(?:Error|error:|Exception|CRITICAL|FATAL|Killed)")


def diagnose(
    *, log_path: Path, exit_code: int | None, oom_kills: int, port: int | None = None
) -> errors.StartupError:
    """Makes the exception for a server that ended before it was ready.

    Args:
        exit_code: the exit code of the server, negative for a signal; None if it is unknown.
        oom_kills: number of OOM kills that the kernel counted during the start.
    """
    lines = log_lines(log_path)
    ending = _exit_description(exit_code)
    if oom_kills and (exit_code == -9 or _first(ENGINE_KILLED, lines)):
        return errors.KilledByOom(
            f"the kernel's OOM killer ended vLLM ({ending})",
            hint="give the server more memory, or lower VLLM_CPU_KVCACHE_SPACE and --max-model-len",
            lines=lines[-3:],
            log_path=log_path,
        )
    for rule in RULES:
        if decisive := _first(rule.pattern, lines):
            line, match = decisive
            groups = [group for group in match.groups() if group] or [""]
            advice = rule.advice(match) if callable(rule.advice) else rule.advice
            if rule.error is errors.PortTaken and port is not None:
                advice = f"{advice}; it is held by {describe_holder(port)}"
            return rule.error(
                f"vLLM did not start ({ending}): {rule.headline.format(*groups)}",
                hint=advice,
                lines=[line],
                log_path=log_path,
            )
    return errors.StartupError(
        f"vLLM did not start ({ending})",
        hint="read the whole log: no rule of the harness recognises this cause",
        lines=[line for line in lines if LOOKS_DECISIVE.search(line)][-3:] or lines[-3:],
        log_path=log_path,
    )


def last_words(log_path: Path) -> list[str]:
    """Shows why a server ended while in use: its engine's exception, or else the last lines of its log."""
    lines = log_lines(log_path)
    fatal = [number for number, line in enumerate(lines) if ENGINE_FATAL in line]
    after = lines[fatal[-1] + 1 :] if fatal else []
    raised = [match[1] for line in after if (match := RAISED.search(line))]
    return raised[:1] or lines[-5:]


def log_lines(log_path: Path) -> list[str]:
    """The last lines of a log, without vLLM's process prefix; empty if there is no log."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [PREFIX.sub("", line).rstrip() for line in text.splitlines() if line.strip()]


def _first(pattern: str, lines: Sequence[str]) -> tuple[str, re.Match[str]] | None:
    for line in lines:
        if match := re.search(pattern, line):
            return _truncated(line, match), match
    return None


def _truncated(line: str, match: re.Match[str], width: int = 400) -> str:
    if len(line) <= width:
        return line
    start = max(0, match.start() - 40)
    return f"{line[start : start + width]}…"


def _exit_description(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
