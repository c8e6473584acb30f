"""Creates LoRA adapters for stand-ins: valid files that do not change the model, since every weight is 0."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import quiet

_RANK = 8
_MODULES = ("q_proj", "v_proj")


def zero_adapter(config: dict[str, Any]) -> Path:
    """The folder of an adapter for a model with this config.json; creates it in the cache if needed."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_dir() / "adapters" / digest
    folder.parent.mkdir(exist_ok=True)
    with locked_for_making(folder, quiet):
        if not folder.exists():
            with temporary_folder(folder.parent) as half:
                _write(half / "adapter", config)
                (half / "adapter").rename(folder)
    return folder


def _write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir()
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": _RANK,
        "lora_alpha": _RANK,
        "target_modules": list(_MODULES),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    (folder / "adapter_model.safetensors").write_bytes(_safetensors(dict(_shapes(config))))


def _shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    hidden, width = config["hidden_size"], config["head_dim"]
    heads = {"q_proj": config["num_attention_heads"], "v_proj": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        for module in _MODULES:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            yield f"{name}.lora_A.weight", (_RANK, hidden)
            yield f"{name}.lora_B.weight", (heads[module] * width, _RANK)


def _safetensors(shapes: dict[str, tuple[int, int]]) -> bytes:
    """A file with bfloat16 zeros in the format of https://github.com/huggingface/safetensors#format"""
    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        start, end = end, end + 2 * rows * columns
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)
