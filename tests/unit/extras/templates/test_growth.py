"""Where a template shows a past turn in another way, the next prompt does not begin with the last one."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.unit.extras.templates.test_dialects import template
from vllm_harness._scripted.dialects import find_dialect
from vllm_harness.cli.main import app
from vllm_harness.extras.templates.chat_template import JinjaTemplate
from vllm_harness.extras.templates.growth import growth_of
from vllm_harness.extras.templates.pairs import load_pairs, template_of

KEEPS = """
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}<tool_call>{{ call.function.name }}{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_turn_without_reasoning_is_kept_and_one_with_reasoning_is_not() -> None:
    growth = growth_of("mine", find_dialect("hermes"), JinjaTemplate(KEEPS))
    assert growth.kept == ("text",)
    broken = {each.shape: each for each in growth.breaks}["reasoning, text"]
    assert broken.answered.startswith("|>assistant\n<think>") or "<think>" in broken.answered
    assert broken.shown.endswith("Sunny.<|im_end|>\n<") or "Sunny." in broken.shown
    assert broken.line == 4


@pytest.mark.parametrize(
    ("dialect", "kept"),
    [
        ("ling3", 8),  # all reasoning stays in the history
        ("qwen3", 3),  # an empty block of reasoning is not shown
        ("hermes", 3),  # neither is text beside calls
        ("hy_v3", 8),  # the stand-in's markers have no suffix, which is not a break
    ],
)
def test_the_turns_that_real_templates_keep(dialect: str, kept: int) -> None:
    path, pair = template(dialect), load_pairs()[dialect]
    found = find_dialect(dialect)
    growth = growth_of(dialect, found, template_of(pair, found, path), pair.differences)
    assert len(growth.kept) == kept
    assert all(each.line for each in growth.breaks)


def test_the_command_shows_where_prompts_break() -> None:
    template("hermes")
    result = CliRunner().invoke(app, ["models", "dialects", "--growth", "--parsers", "hermes"])
    assert result.exit_code == 0
    assert "0 of 2 families keep every turn" in result.stdout
    listed = CliRunner().invoke(app, ["models", "dialects", "--growth", "--json", "--parsers", "hermes"])
    assert {each["family"] for each in json.loads(listed.stdout)} == {"hermes", "hermes_special"}
