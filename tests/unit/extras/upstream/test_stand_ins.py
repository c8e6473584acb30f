"""The stand-ins for models in upstream's tests, and how the servers' flags are changed."""

from __future__ import annotations

import json
import struct

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.assets import definitions
from vllm_harness._scripted.families import load_families
from vllm_harness.extras.upstream.adapters import zero_adapter
from vllm_harness.extras.upstream.stand_ins import (
    NoStandIn,
    flag_name,
    live_entry,
    load_stand_ins,
    split_flags,
    stand_in_entry,
)


def test_every_stand_in_refers_to_existing_entries() -> None:
    known, families, assets = load_stand_ins(), load_families(), definitions()
    for model, chosen in known.models.items():
        if chosen.entry:
            assert load_models().get(chosen.entry).stand_in, model
        else:
            assert chosen.family in families, model
            assert chosen.tokenizer in assets, model
    assert not known.models.keys() & known.without.keys()
    assert not known.dropped.keys() & known.refused.keys()


def test_a_stand_in_entry_has_no_flags() -> None:
    entry = stand_in_entry("openai/gpt-oss-20b")
    assert entry.flags("scripted", "cpu").args == ()
    assert entry.stand_in == load_models().get("gpt-oss").stand_in


def test_a_missing_stand_in_has_a_reason() -> None:
    with pytest.raises(NoStandIn, match="image model"):
        stand_in_entry("google/translategemma-4b-it")
    with pytest.raises(NoStandIn, match="nobody/nothing"):
        stand_in_entry("nobody/nothing")


def test_the_live_entry_is_the_model_of_the_hub() -> None:
    entry = live_entry("openai/gpt-oss-20b")
    assert entry.hub.id == "openai/gpt-oss-20b"
    assert entry.lanes == ("live",)
    assert entry.hardware == load_models().get("gpt-oss").hardware


def test_flags_are_split_with_their_values() -> None:
    flags = [
        "--enforce-eager",
        "--max_model_len",
        "5000",
        "-tp",
        "4",
        "--a=b",
        "--lora-modules",
        "x=1",
        "y=2",
    ]
    assert list(split_flags(flags)) == [
        ("--enforce-eager", ()),
        ("--max_model_len", ("5000",)),
        ("-tp", ("4",)),
        ("--a=b", ()),
        ("--lora-modules", ("x=1", "y=2")),
    ]
    assert flag_name("--max_model_len=5") == "--max-model-len"


def test_an_adapter_is_a_valid_safetensors_file_of_zeros() -> None:
    config = load_models().get("qwen3").stand_in
    assert config
    folder = zero_adapter(config.config)
    settings = json.loads((folder / "adapter_config.json").read_text())
    content = (folder / "adapter_model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    assert len(header) == 4 * config.config["num_hidden_layers"]
    assert max(tensor["data_offsets"][1] for tensor in header.values()) == len(data)
    assert not any(data)
    for name, tensor in header.items():
        assert settings["r"] in tensor["shape"], name
        start, end = tensor["data_offsets"]
        assert end - start == 2 * tensor["shape"][0] * tensor["shape"][1]
