"""Why a server did not start: rules over its log, its exit code and the machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vllm_harness.machine.gpus import describe_gpus
from vllm_harness.server import errors
from vllm_harness.server.leases.ports import describe_holder

TAIL_BYTES = 400_000
PREFIX = re.compile(r"^\((?:APIServer|EngineCore\S*|Worker\S*|VllmWorker\S*)[^)]*\)\s*")


@dataclass(frozen=True)
class CauseRule:
    """One cause.

    Attributes:
        error: class that is raised.
        pattern: matches the decisive line; its groups may be used in `headline` and by `advise`.
        headline: what happened, with `{0}` for the first group.
        advise: what to try, given the match.
    """

    error: type[errors.StartupError]
    pattern: re.Pattern[str]
    headline: str
    advise: Callable[[re.Match[str]], str]


def _rule(
    error: type[errors.StartupError],
    pattern: str,
    headline: str,
    advise: str | Callable[[re.Match[str]], str],
) -> CauseRule:
    return CauseRule(error, re.compile(pattern), headline, advise if callable(advise) else lambda _: advise)


def _nearest_parser(match: re.Match[str]) -> str:
    known = re.findall(r"[\w.-]+", match.group(2))
    near = get_close_matches(match.group(1), known, n=3, cutoff=0.4)
    return f"nearest names: {', '.join(near)}" if near else f"this vLLM knows: {', '.join(sorted(known))}"


def _room_for_cache(_: re.Match[str]) -> str:
    return (
        "lower --max-model-len, or raise --gpu-memory-utilization, on CPU VLLM_CPU_KVCACHE_SPACE; "
        f"on the GPUs: {describe_gpus()}"
    )


def _gpu_holders(_: re.Match[str]) -> str:
    return (
        "free the GPU or lower --gpu-memory-utilization, --max-model-len or --max-num-seqs; "
        f"now on the GPUs: {describe_gpus()}"
    )


# the first rule that matches decides, so the more particular cause stands first
RULES: tuple[CauseRule, ...] = (
    _rule(
        errors.UnknownParser,
        r"invalid (?:tool call parser|tool parser|reasoning parser): (\S+) \(chose from \{(.*?)\}",
        "vLLM has no parser named {0}",
        _nearest_parser,
    ),
    _rule(
        errors.UnknownParser,
        r"(?:[Tt]ool|[Rr]easoning) parser:? '(\S+?)' not found.*?[Aa]vailable(?: parsers)?: (.*)",
        "vLLM has no parser named {0}",
        _nearest_parser,
    ),
    _rule(
        errors.UnknownParser,
        r"(?:tool|reasoning) parser `(\S+?)` is not registered \(choose from: (.*?)\)",
        "vLLM's Rust front end has no parser named {0}",
        _nearest_parser,
    ),
    _rule(
        errors.UnknownFlag,
        r"error: unrecognized arguments: (.+)",
        "this vLLM does not know: {0}",
        "`vllm-harness models check` compares the flags of an entry with a vLLM version",
    ),
    _rule(
        errors.UnknownFlag,
        r"error: argument (\S+): (.+)",
        "this vLLM refuses the value of {0}",
        "see the line above for what it accepts",
    ),
    _rule(
        errors.DamagedWeights,
        r"(?:SafetensorError|Error while deserializing header|PytorchStreamReader failed|"
        r"not enough (?:tensor )?data.*safetensors|incomplete metadata|"
        r"struct\.error: unpack requires a buffer)",
        "a weights file is damaged",
        "fetch the weights again: `vllm-harness assets fetch`, or remove them from the hub's cache",
    ),
    _rule(
        errors.GatedModel,
        r"(?:GatedRepoError|gated repo|Access to model \S+ is restricted|401 Client Error.*huggingface)",
        "the model is gated",
        "accept its licence on the hub and set HF_TOKEN",
    ),
    _rule(
        errors.ModelNotFound,
        r"(?:RepositoryNotFoundError|is not a local folder and is not a valid model identifier|Repo id must)",
        "there is no such model, neither as a folder nor on the hub",
        "check the path or the hub id; a private model needs HF_TOKEN",
    ),
    _rule(
        errors.HubUnreachable,
        r"(?:couldn't connect to '?https?://\S+|LocalEntryNotFoundError|OfflineModeIsEnabled|"
        r"Cannot reach https?://\S+|outgoing traffic has been disabled|HF_HUB_OFFLINE|"
        r"Max retries exceeded with url|Name or service not known|Temporary failure in name resolution)",
        "the model hub cannot be reached and the model is not in the local cache",
        "the scripted lane needs no weights (--lane scripted); else download the model where there is a "
        "network, or name a local folder",
    ),
    _rule(
        errors.UnsupportedArchitecture,
        r"(?:Model architectures (.+?) (?:are not supported|failed to be inspected)|"
        r"does not recognize this architecture|has no vLLM implementation)",
        "this vLLM does not support the model's architecture",
        "use a vLLM that lists it, or another model; `vllm-harness env list` shows the versions at hand",
    ),
    _rule(
        errors.NoCudaDevice,
        r"(?:No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|"
        r"Failed to infer device type|Torch not compiled with CUDA enabled)",
        "there is no CUDA device for this vLLM",
        "run `nvidia-smi`; without a GPU: `vllm-harness env create 0.32.0 --device cpu`",
    ),
    _rule(
        errors.CpuMemoryTooSmall,
        r"(?:Free memory on (?:device )?(?:cpu|CPU|NUMA|node)|"
        r"[Nn]ot enough (?:available )?memory.*(?:NUMA|node|CPU)|"
        r"[Aa]vailable memory.*(?:NUMA|node)|VLLM_CPU_KVCACHE_SPACE)",
        "there is too little free memory on the NUMA node",
        "lower --gpu-memory-utilization (it counts on CPU too) or VLLM_CPU_KVCACHE_SPACE, "
        "or stop what holds memory",
    ),
    _rule(
        errors.KvCacheTooSmall,
        r"(?:KV cache is needed, which is larger than|No available memory for the cache blocks)",
        "the KV cache does not hold one request of the model's length",
        _room_for_cache,
    ),
    _rule(
        errors.GpuOutOfMemory,
        r"(?:CUDA out of memory|torch\.OutOfMemoryError|Free memory on device cuda|"
        r"is less than desired GPU memory utilization)",
        "there is too little GPU memory",
        _gpu_holders,
    ),
    _rule(
        errors.PortTaken,
        r"(?:[Aa]ddress already in use|error while attempting to bind on address)",
        "the port is taken",
        "leave the port out: the harness leases a free one",
    ),
    _rule(
        errors.WrongTorchBuild,
        r"(?:undefined symbol|libcudart|libtorch\S*: cannot open|lib\S+\.so\S*: cannot open shared object|"
        r"operator torchvision::nms does not exist)",
        "vLLM's kernels do not fit the installed torch",
        "`vllm-harness env verify`, or make the environment anew from its lock (`vllm-harness env create`)",
    ),
    _rule(
        errors.MissingOperator,
        r"(?:'_OpNamespace' '(\w+)' object has no attribute '(\w+)'|"
        r"(?:[Nn]o such operator|operator|schema for operator|[Cc]ould not find schema for) (_C\w*)::(\w+))",
        "vLLM's Python code needs the operator {0}::{1}, which these kernels do not have",
        "take the kernels of a release nearer to this vLLM (`vllm-harness env list` shows those there are)",
    ),
    _rule(
        errors.MissingPackage,
        r"(?:No module named '?([\w.]+)'?|PackageNotFoundError: .*?(\S+)$)",
        "a Python package is missing in the server's environment",
        "`vllm-harness env verify`; for an installed vLLM, `pip install` what the line names",
    ),
)

ENGINE_KILLED = re.compile(
    r"Failed core proc\(s\): \{[^}]*: -9\b|died unexpectedly.*(?:signal 9|exitcode[ =]-9)"
)
LOOKS_DECISIVE = re.compile(r"(?:Error|error:|Exception|CRITICAL|FATAL|Killed)")


def diagnose(
    *, log_path: Path, exit_code: int | None, oom_kills: int, port: int | None = None
) -> errors.StartupError:
    """The error for a server that ended before it was ready.

    Args:
        log_path: its log.
        exit_code: its exit code, negative for a signal, None where it could not be learned.
        oom_kills: OOM kills that the kernel counted in this control group while it started.
        port: its port, to name who holds it.
    """
    lines = log_lines(log_path)
    how = _exit_words(exit_code)
    if oom_kills and (exit_code == -9 or _first(ENGINE_KILLED, lines)):
        return errors.KilledByOom(
            f"the kernel's OOM killer ended vLLM ({how})",
            hint="give it more memory, or lower VLLM_CPU_KVCACHE_SPACE and --max-model-len",
            lines=lines[-3:],
            log_path=log_path,
        )
    for rule in RULES:
        if found := _first(rule.pattern, lines):
            line, match = found
            groups = [group for group in match.groups() if group] or [""]
            advice = rule.advise(match)
            if rule.error is errors.PortTaken and port is not None:
                advice = f"{advice}; it is held by {describe_holder(port)}"
            return rule.error(
                f"vLLM did not start ({how}): {rule.headline.format(*groups)}",
                hint=advice,
                lines=[line],
                log_path=log_path,
            )
    return errors.StartupError(
        f"vLLM did not start ({how})",
        hint="read the log; the harness does not know this cause yet",
        lines=[line for line in lines if LOOKS_DECISIVE.search(line)][-3:] or lines[-3:],
        log_path=log_path,
    )


def log_lines(log_path: Path) -> list[str]:
    """The last lines of a log without vLLM's process prefix; empty where there is no log."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [PREFIX.sub("", line).rstrip() for line in text.splitlines() if line.strip()]


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> tuple[str, re.Match[str]] | None:
    for line in lines:
        if match := pattern.search(line):
            return _clipped(line, match), match
    return None


def _clipped(line: str, match: re.Match[str], width: int = 400) -> str:
    if len(line) <= width:
        return line
    start = max(0, match.start() - 40)
    return f"{line[start : start + width]}…"


def _exit_words(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
