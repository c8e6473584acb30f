"""The project's own models.yaml agrees with the project's templates, dialects and assets."""

from __future__ import annotations

import pytest

from vllm_harness._configuration.model_entries import ModelEntry, load_models
from vllm_harness._environments.assets import definitions
from vllm_harness._scripted.dialects import load_dialects

ENTRIES = list(load_models())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_names_only_what_exists(entry: ModelEntry) -> None:
    assert entry.dialect is None or entry.dialect in load_dialects()
    assert entry.chat_template_path is None or entry.chat_template_path.is_file()
    named = [entry.weights] if entry.weights else []
    if entry.stand_in:
        named += [entry.stand_in.tokenizer, *entry.stand_in.assets.values()]
    assert set(named) <= set(definitions())


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.stand_in], ids=lambda entry: entry.name)
def test_a_stand_in_is_tiny_and_ends_its_turns(entry: ModelEntry) -> None:
    assert entry.stand_in
    config = {**entry.stand_in.config, **entry.stand_in.config.get("text_config", {})}
    assert config["num_hidden_layers"] <= 2
    assert config["hidden_size"] <= 128
    assert "quantization_config" not in config
    own = entry.stand_in.config.get("eos_token_id", [])
    ends = entry.stand_in.generation_config["eos_token_id"]
    assert {*own} <= {*ends} if isinstance(own, list) else own in ends


def test_at_least_one_entry_runs_live_without_a_gpu() -> None:
    assert [e.name for e in ENTRIES if "cpu" in e.hardware.devices] == ["smollm2-135m"]
