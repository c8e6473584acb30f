"""Stand-in checkpoints: tiny models with a family's tokenizer, whose weights vLLM fills with dummy values.

A model entry in models.yaml describes the architecture of its stand-in; a family's stand-in is a tiny Llama.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from vllm_harness._configuration.model_entries import ModelEntry, StandIn
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "vocab.json", "merges.txt", "tokenizer.model", "tekken.json"),
)
SERVER_ARGS = (
    *("--load-format", "dummy", "--enforce-eager"),
    *("--max-model-len", "8192", "--max-num-seqs", "64", "--num-gpu-blocks-override", "1024"),
)
# On CUDA a block has 16 tokens instead of 128. The size of the KV cache is fixed, since vLLM would otherwise
# count the memory of all servers on the GPU. Triton's attention works on every GPU and in every bundle.
CUDA_ARGS = (
    *("--num-gpu-blocks-override", "8192", "--kv-cache-memory-bytes", str(2**30)),
    *("--attention-backend", "TRITON_ATTN"),
)
STAND_IN_GPU_GIB = 4.0
"""The memory in GiB that a stand-in may use on a GPU that it shares with other servers."""

# One thread is enough, and it is not bound: vLLM would bind all servers on a machine to the same core.
# Nothing is compiled: otherwise each server's first logprobs would take 20 s. The worker runs in the
# engine's process, as on one GPU: on CPU, vLLM would start a process for it to bind threads, which is not
# needed here, and each token would take a third longer. On CUDA, vLLM uses the model runner that supports
# logits processors, and the sampler of torch.
SERVER_ENV = {
    **{"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"},
    **{"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"},
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}


class StandInError(UsageError):
    """The stand-in cannot be built from this entry and tokenizer."""


def stand_in_args(entry: ModelEntry) -> tuple[str, ...]:
    """The server arguments that an entry's stand-in needs in addition to `entry.flags`."""
    return (*SERVER_ARGS, *stand_in_of(entry).args)


def cuda_args(gpu_gib: float) -> tuple[str, ...]:
    """Further server arguments of a stand-in on a GPU of this size, which limit the memory that it uses."""
    return (*CUDA_ARGS, "--gpu-memory-utilization", f"{min(0.9, STAND_IN_GPU_GIB / gpu_gib):.3f}")


def build_stand_in(entry: ModelEntry, tokenizer_dir: Path, into: Path | None = None) -> Path:
    """Writes the stand-in checkpoint of an entry, unless one with the same content exists undamaged.

    Args:
        entry: an entry with a stand-in.
        tokenizer_dir: the folder with the family's tokenizer files; other files there are ignored.
        into: the parent folder, by default `stand-ins` in the cache.

    Returns:
        The checkpoint's folder, `<name>-<hash>`, with config.json, generation_config.json and the tokenizer.

    Raises:
        StandInError: the entry has no stand-in, the folder no tokenizer, or the tokens do not fit it.
    """
    stand_in = stand_in_of(entry)
    tokenizer = [tokenizer_dir / name for name in TOKENIZER_FILES if (tokenizer_dir / name).is_file()]
    if not any(path.name in ("tokenizer.json", "tekken.json") for path in tokenizer):
        raise StandInError(
            f"no tokenizer.json in {tokenizer_dir}", hint=f"fetch the asset {stand_in.tokenizer} again"
        )
    into = into or cache_dir() / "stand-ins"
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"{entry.name}-{_digest(stand_in, tokenizer)}"
    if target.exists() and not _is_whole(stand_in, tokenizer, target):
        shutil.rmtree(target)
    if not target.exists():
        with temporary_folder(into) as scratch:
            _write(stand_in, tokenizer, scratch / "checkpoint")
            publish(scratch / "checkpoint", target)
    return target


def check_stop(entry: ModelEntry, checkpoint: Path) -> None:
    """Raises StandInError if the tokenizer.json lacks the token that ends a turn."""
    path, stop = checkpoint / "tokenizer.json", stand_in_of(entry).stop
    if not path.exists():
        return
    document = json.loads(path.read_text())
    vocabulary = document.get("model", {}).get("vocab", ())
    words = vocabulary if isinstance(vocabulary, dict) else {piece for piece, *_ in vocabulary}
    if stop not in words and stop not in {token["content"] for token in document.get("added_tokens", ())}:
        raise StandInError(
            f"{stand_in_of(entry).tokenizer} has no token {stop!r}, the `stop` of {entry.name}",
            hint="set `stop` to the token that ends a turn of the model, as its tokenizer writes it",
        )


def vocabulary(entry: ModelEntry) -> int:
    """The vocabulary size of an entry's stand-in."""
    config = stand_in_of(entry).config
    return int(config["vocab_size"] if "vocab_size" in config else config["text_config"]["vocab_size"])


def stand_in_of(entry: ModelEntry) -> StandIn:
    """The stand-in of an entry. Raises StandInError if it has none."""
    if entry.stand_in is None:
        raise StandInError(
            f"model {entry.name!r} has no stand_in, so it cannot be scripted",
            hint="run it on the live lane, or use another model; `vllm-harness models` lists the lanes",
        )
    return entry.stand_in


def _digest(stand_in: StandIn, tokenizer: list[Path]) -> str:
    content = {
        "layout": 1,
        "config": stand_in.config,
        "generation_config": stand_in.generation_config,
        "tokens": stand_in.tokens,
        "further_tokens": stand_in.further_tokens,
        "processors": stand_in.processors,
        "files": {path.name: _sha256(path, path.stat().st_mtime_ns) for path in tokenizer},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _sha256(path: Path, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _documents(stand_in: StandIn) -> dict[str, Any]:
    configs = {"config.json": stand_in.config, "generation_config.json": stand_in.generation_config}
    return {**configs, **stand_in.processors}


def _is_whole(stand_in: StandIn, tokenizer: list[Path], folder: Path) -> bool:
    """Whether a checkpoint has the configuration that was written, and no empty tokenizer file."""
    wanted = json.loads(json.dumps(_documents(stand_in)))
    try:
        found = {name: json.loads((folder / name).read_text()) for name in wanted}
        return found == wanted and all((folder / path.name).stat().st_size for path in tokenizer)
    except (OSError, ValueError):
        return False


def _write(stand_in: StandIn, tokenizer: list[Path], folder: Path) -> None:
    folder.mkdir()
    for name, content in _documents(stand_in).items():
        write_json(folder / name, content)
    for path in tokenizer:
        _link(path, folder / path.name)
    if stand_in.tokens:
        _rename_tokens(folder, stand_in.tokens)
    if stand_in.further_tokens:
        _add_tokens(folder, stand_in.further_tokens)


def _rename_tokens(folder: Path, tokens: dict[int, str]) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    added = {token["id"]: token for token in document["added_tokens"]}
    if missing := tokens.keys() - added.keys():
        raise StandInError(
            f"{path.name}: no added token with id {min(missing)}",
            hint="correct `tokens` of the stand-in, which renames added tokens of the tokenizer",
        )
    for number, text in tokens.items():
        added[number]["content"] = text
    write_json(path, document)

    path = folder / "tokenizer_config.json"
    if path.exists():
        document = json.loads(path.read_text())
        for number, token in document.get("added_tokens_decoder", {}).items():
            token["content"] = tokens.get(int(number), token["content"])
        write_json(path, document)


def _add_tokens(folder: Path, tokens: dict[int, str]) -> None:
    """Adds special tokens after the asset's tokens; reserved tokens fill gaps, which no tokenizer accepts."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    ids = {*document["model"]["vocab"].values(), *(token["id"] for token in document["added_tokens"])}
    if min(tokens) <= max(ids):
        raise StandInError(
            f"{path.name} already has the token ids up to {max(ids)}",
            hint="correct `further_tokens` of the stand-in, which follow the tokens of the asset",
        )
    shape = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    document["added_tokens"] += [
        {"id": number, "content": tokens.get(number, f"<|reserved_{number}|>"), **shape, "special": True}
        for number in range(max(ids) + 1, max(tokens) + 1)
    ]
    write_json(path, document)


def write_json(path: Path, document: Any) -> None:
    """Writes a JSON file in the folder of a checkpoint or tokenizer."""
    path.unlink(missing_ok=True)  # it may be a hard link to the asset
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def publish(folder: Path, target: Path) -> None:
    """Moves a complete folder to its final path, unless another process has already created it."""
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():
            raise
