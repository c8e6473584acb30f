"""The families that vLLM's parsers are for: what a server of each takes, and a stand-in for it.

Every tool parser and reasoning parser that vLLM registers has a family here, or a reason in WITHOUT.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm_harness.configuration.model_entries import Capability, Hub, ModelEntry, StandIn
from vllm_harness.environments import assets
from vllm_harness.files.paths import cache_dir
from vllm_harness.scripted.dialects import FORMS
from vllm_harness.scripted.dialects.form import Form
from vllm_harness.scripted.synthetic import (
    Token,
    byte_tokenizer,
    ids_of,
    stop_of,
    stops_of,
    tokens_of,
    with_tokens,
    write_tokenizer,
)

_FORMS = {form.name: form for form in FORMS}
_REGISTRY_HUB = Hub(id="none/none")


@dataclass(frozen=True)
class Family:
    """A server's parsers, the dialect that its model speaks, and what its tokenizer must have.

    Attributes:
        name: key in FAMILIES.
        tool_parser, reasoning_parser: vLLM's names.
        dialect: name in DIALECTS.
        model: id of a model of this family.
        tokenizer: asset of the family's real tokenizer; None: only a synthetic one can be had.
        entry: name in models.yaml, where the family has a stand-in of its own class there.
        kwargs: `chat_template_kwargs` that every request gives, since parsers read them.
        args, env: server arguments beyond the parsers, and variables of its environment.
        shows_thoughts: whether its parser leaves the thoughts in the text, markers and all, as the model's
            makers ask of those who send the text back.
        tokens: single tokens beyond the dialect's markers.
        merges, ids, sentencepiece: as in `byte_tokenizer`.
        config: more for tokenizer_config.json.
        real: whether it runs on its real tokenizer; see `on_real_tokenizer`.
    """

    name: str
    dialect: str
    model: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tokenizer: str | None = None
    entry: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    shows_thoughts: bool = False
    tokens: tuple[Token, ...] = ()
    merges: tuple[tuple[str, str], ...] = ()
    ids: dict[str, int] = field(default_factory=dict)
    sentencepiece: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    real: bool = False

    @property
    def form(self) -> Form | None:
        """The dialect's data; None for Harmony, which is code."""
        return _FORMS.get(self.dialect)

    @property
    def plugin(self) -> str | None:
        """The file of a tool parser that is not vLLM's own."""
        flag = "--tool-parser-plugin"
        return self.args[self.args.index(flag) + 1] if flag in self.args else None

    @property
    def request(self) -> dict[str, Any]:
        """Fields beyond OpenAI's that its requests give."""
        asked: dict[str, Any] = {"chat_template_kwargs": self.kwargs} if self.kwargs else {}
        thoughts = self.form.thoughts if self.form else None
        joined = self.form is not None and self.form.join is not None
        if (thoughts and thoughts.special) or joined:
            asked["skip_special_tokens"] = (
                False  # without tools vLLM would drop the markers that it parses by
            )
        return asked


def _think(**kwargs: Any) -> dict[str, Any]:
    return kwargs or {"enable_thinking": True}


_QWEN3 = "tokenizer-qwen3"
_LLAMA3 = "tokenizer-llama3.1"
_DEEPSEEK = "tokenizer-deepseek-v4"
_CL100K = (  # how Hunyuan's vocabulary, which has cl100k's ids, cuts its own markers
    *((">", "Ċ"), (">Ċ", "Ċ"), ("<", "/"), ("n", "k"), ("i", "nk"), ("t", "h"), ("<", "th"), ("th", "ink")),
    *(("a", "n"), ("s", "w"), ("an", "sw"), ("e", "r"), ("answ", "er")),
)
_CL100K_IDS = {
    **{">Ċ": 397, "</": 524, "ink": 771, ">ĊĊ": 1363},
    **{"answer": 9399, "<th": 14023, "think": 27963},
}
_PLAMO = ("<|plamo:begin_", "<|plamo:end_", ":plamo|>", "<|plamo:msg|>", "<|plamo:constrain|>")

_ROWS = (
    Family(
        "openai",
        "harmony",
        "openai/gpt-oss-20b",
        "openai",
        "openai_gptoss",
        tokenizer="tokenizer-gpt-oss",
        entry="gpt-oss",
    ),
    Family("hermes", "hermes", "NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
    Family("hermes_special", "hermes_special", "a fine-tune whose markers are special tokens", "hermes"),
    Family("qwen3_json", "qwen3", "Qwen/Qwen3-8B", "qwen3_json", "qwen3", tokenizer=_QWEN3, kwargs=_think()),
    Family(
        "qwen3_thinking", "qwen3_opened", "Qwen/Qwen3-4B-Thinking-2507", "hermes", "qwen3", tokenizer=_QWEN3
    ),
    Family(
        "holo2", "qwen3_opened", "Hcompany/Holo2-8B", "hermes", "holo2", tokenizer=_QWEN3, kwargs=_think()
    ),
    Family(
        "qwen3_coder", "qwen3_coder", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder", tokenizer=_QWEN3
    ),
    Family("qwen3_xml", "qwen35", "Qwen/Qwen3.5-35B-A3B", "qwen3_xml", "qwen3"),
    Family(
        "qwen3_xml_unthinking",
        "qwen35_unthinking",
        "Qwen/Qwen3.5-35B-A3B",
        "qwen3_xml",
        "qwen3",
        kwargs=_think(enable_thinking=False),
    ),
    Family(
        "nemotron_v3",
        "nemotron_v3",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "qwen3_coder",
        "nemotron_v3",
        kwargs=_think(),
    ),
    Family("minicpmv", "minicpmv", "openbmb/MiniCPM-V", "qwen3_coder", "minicpmv", kwargs=_think()),
    Family(
        "minicpmv_unthinking",
        "minicpmv_unthinking",
        "openbmb/MiniCPM-V",
        "qwen3_coder",
        "minicpmv",
        kwargs=_think(enable_thinking=False),
    ),
    Family("step3p5", "step3p5", "stepfun-ai/Step-3.5-Flash", "step3p5", "step3p5"),
    Family("mimo", "mimo", "XiaomiMiMo/MiMo-V2-Flash", "mimo", "mimo", kwargs=_think()),
    Family("seed_oss", "seed_oss", "ByteDance-Seed/Seed-OSS-36B-Instruct", "seed_oss", "seed_oss"),
    Family("granite4", "granite4", "ibm-granite/granite-4.0-h-small", "granite4"),
    Family(
        "granite4_thinking",
        "granite4_thinking",
        "ibm-granite/granite-4.2",
        "granite4",
        "granite_thinking_parser",
        kwargs=_think(),
    ),
    Family("granite", "granite", "ibm-granite/granite-3.0-8b-instruct", "granite"),
    Family(
        "granite32",
        "granite32",
        "ibm-granite/granite-3.2-8b-instruct",
        "granite",
        "granite",
        kwargs=_think(thinking=True),
    ),
    Family("granite-20b-fc", "granite_20b", "ibm-granite/granite-20b-functioncalling", "granite-20b-fc"),
    Family(
        "llama3_json",
        "llama_json",
        "meta-llama/Llama-3.1-8B-Instruct",
        "llama3_json",
        tokenizer=_LLAMA3,
        entry="llama3.1",
    ),
    Family("llama4_json", "llama4_json", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_json"),
    Family(
        "llama4_pythonic", "llama4_pythonic", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic"
    ),
    Family("pythonic", "pythonic", "Team-ACE/ToolACE-8B", "pythonic", tokenizer=_LLAMA3),
    Family("xlam", "xlam", "Salesforce/Llama-xLAM-2-8b-fc-r", "xlam", tokenizer=_LLAMA3),
    Family("phi4_mini_json", "phi4_mini", "microsoft/Phi-4-mini-instruct", "phi4_mini_json"),
    Family(
        "glm45",
        "glm45",
        "zai-org/GLM-4.5-Air",
        "glm45",
        "glm45",
        kwargs=_think(),
        env={"VLLM_ENFORCE_STRICT_TOOL_CALLING": "0"},  # vLLM's grammar for it is that of GLM 4.7
    ),
    Family("glm47", "glm47", "zai-org/GLM-4.7", "glm47", "glm47"),
    Family(
        "glm47_unthinking",
        "glm47_unthinking",
        "zai-org/GLM-4.7",
        "glm47",
        "glm47",
        kwargs=_think(enable_thinking=False),
    ),
    Family(  # it cannot be kept from thinking
        "glm53", "glm53", "zai-org/GLM-5.3", "glm47", "glm47", kwargs=_think(enable_thinking=False)
    ),
    Family("ling3", "ling3", "inclusionAI/Ling-3", "ling3", "ling3", kwargs=_think()),
    Family("poolside_v1", "poolside_v1", "poolside/Laguna", "poolside_v1", "poolside_v1", kwargs=_think()),
    Family(
        "poolside_v1_unthinking",
        "poolside_v1_unthinking",
        "poolside/Laguna",
        "poolside_v1",
        "poolside_v1",
        kwargs=_think(enable_thinking=False),
    ),
    Family("hy_v3", "hy_v3", "tencent/Hy3-preview", "hy_v3", "hy_v3", kwargs={"reasoning_effort": "high"}),
    Family("hy_v3_unthinking", "hy_v3_unthinking", "tencent/Hy3-preview", "hy_v3", "hy_v3"),
    Family("hy_v4", "hy_v4", "tencent/Hy4-preview", "hy_v4", "hy_v4", kwargs={"reasoning_effort": "high"}),
    Family(
        "hy_v4_unthinking",
        "hy_v4_unthinking",
        "tencent/Hy4-preview",
        "hy_v4",
        "hy_v4",
        kwargs={"reasoning_effort": "no_think"},
    ),
    Family(
        "k2_horizon",
        "k2_horizon",
        "LLM360/K2-Horizon",
        "k2_horizon",
        "k2_horizon",
        kwargs={"reasoning_effort": "high", "tool_call_format": "xml"},
    ),
    Family("deepseek_v3", "deepseek_v3", "deepseek-ai/DeepSeek-V3-0324", "deepseek_v3", tokenizer=_DEEPSEEK),
    Family(
        "deepseek_r1",
        "deepseek_r1",
        "deepseek-ai/DeepSeek-R1-0528",
        "deepseek_v3",
        "deepseek_r1",
        tokenizer=_DEEPSEEK,
    ),
    Family(
        "deepseek_v31",
        "deepseek_v31",
        "deepseek-ai/DeepSeek-V3.1",
        "deepseek_v31",
        "deepseek_v3",
        tokenizer=_DEEPSEEK,
        kwargs=_think(thinking=True),
    ),
    Family(
        "deepseek_v31_unthinking",
        "deepseek_v31_unthinking",
        "deepseek-ai/DeepSeek-V3.1",
        "deepseek_v31",
        "deepseek_v3",
        tokenizer=_DEEPSEEK,
        kwargs=_think(thinking=False),
    ),
    Family(
        "deepseek_v32",
        "deepseek_v32",
        "deepseek-ai/DeepSeek-V3.2",
        "deepseek_v32",
        "deepseek_v3",
        tokenizer=_DEEPSEEK,
        kwargs=_think(thinking=True),
    ),
    Family(
        "deepseek_v4",
        "deepseek_v4",
        "deepseek-ai/DeepSeek-V4-Flash",
        "deepseek_v4",
        "deepseek_v4",
        tokenizer=_DEEPSEEK,
        kwargs=_think(thinking=True),
    ),
    Family(
        "deepseek_v41",
        "deepseek_v41",
        "deepseek-ai/DeepSeek-V4.1",
        "deepseek_v41",
        "deepseek_v41",
        tokenizer=_DEEPSEEK,
        kwargs=_think(thinking=True),
    ),
    Family("dots", "dots", "rednote-hilab/dots", "dots"),
    Family("dots_json", "dots_json", "rednote-hilab/dots", "dots"),
    Family("minimax_m2", "minimax_m2", "MiniMaxAI/MiniMax-M2", "minimax_m2", "minimax_m2"),
    Family(
        "minimax_m2_append_think",
        "minimax_m2",
        "MiniMaxAI/MiniMax-M2",
        "minimax_m2",
        "minimax_m2_append_think",
        shows_thoughts=True,
    ),
    Family(
        "minimax_m3",
        "minimax_m3",
        "MiniMaxAI/MiniMax-M3",
        "minimax_m3",
        "minimax_m3",
        kwargs={"thinking_mode": "enabled"},
    ),
    Family(
        "minimax_m3_adaptive",
        "minimax_m3_adaptive",
        "MiniMaxAI/MiniMax-M3",
        "minimax_m3",
        "minimax_m3",
        kwargs={"thinking_mode": "adaptive"},
    ),
    Family("minicpm5", "minicpm5", "openbmb/MiniCPM5", "minicpm5"),
    Family("muse_glimmer", "muse_glimmer", "MuseGlimmer", "muse_glimmer", "muse_glimmer"),
    Family("inkling", "inkling", "Inkling", "inkling", "inkling"),
    Family("inkling_reasoning", "inkling", "Inkling", None, "inkling"),
    Family("step3", "step3", "stepfun-ai/step3", "step3", "step3"),
    Family("kimi_k2", "kimi_k2", "moonshotai/Kimi-K2-Thinking", "kimi_k2", "kimi_k2"),
    Family("kimi_k2_instruct", "kimi_k2_instruct", "moonshotai/Kimi-K2-Instruct", "kimi_k2"),
    Family(
        "kimi_k25", "kimi_k25", "moonshotai/Kimi-K2.5", "kimi_k2", "kimi_k2", kwargs=_think(thinking=True)
    ),
    Family(
        "kimi_k25_unthinking",
        "kimi_k25_unthinking",
        "moonshotai/Kimi-K2.5",
        "kimi_k2",
        "kimi_k2",
        kwargs=_think(thinking=False),
    ),
    Family("kimi_k3", "kimi_k3", "moonshotai/Kimi-K3", "kimi_k3", "kimi_k3", kwargs=_think(thinking=True)),
    Family(
        "kimi_k3_reasoning", "kimi_k3", "moonshotai/Kimi-K3", None, "kimi_k3", kwargs=_think(thinking=True)
    ),
    Family(
        "kimi_k3_unthinking",
        "kimi_k3_unthinking",
        "moonshotai/Kimi-K3",
        "kimi_k3",
        "kimi_k3",
        kwargs=_think(thinking=False),
    ),
    Family(
        "ernie45",
        "ernie45",
        "baidu/ERNIE-4.5-21B-A3B-Thinking",
        "ernie45",
        "ernie45",
        tokens=(Token("<response>", True), Token("</response>", True)),
        sentencepiece=True,
    ),
    Family("longcat", "longcat", "meituan-longcat/LongCat-Flash-Chat", "longcat"),
    Family("internlm", "internlm2", "internlm/internlm2_5-7b-chat", "internlm"),
    Family("gigachat3", "gigachat3", "ai-sage/GigaChat3-10B-A1.8B", "gigachat3"),
    Family("gigachat3.1", "gigachat31", "ai-sage/GigaChat3.1-10B-A1.8B", "gigachat3"),
    Family("apertus", "apertus", "swiss-ai/Apertus-8B-Instruct-2509", "apertus"),
    Family(
        "hunyuan_a13b",
        "hunyuan_a13b",
        "tencent/Hunyuan-A13B-Instruct",
        "hunyuan_a13b",
        "hunyuan_a13b",
        merges=_CL100K,
        ids=_CL100K_IDS,
    ),
    Family("jamba", "jamba", "ai21labs/AI21-Jamba-1.5-Mini", "jamba"),
    Family("mistral", "mistral", "mistralai/Ministral-3-8B-Reasoning-2512", "mistral", "mistral"),
    Family("mistral_v3", "mistral_v3", "mistralai/Mistral-7B-Instruct-v0.3", "mistral"),
    Family(
        "plamo3",
        "plamo3",
        "pfnet/plamo-3",
        "plamo3",
        "plamo3",
        kwargs=_think(),
        tokens=tuple(Token(text, True) for text in _PLAMO),
    ),
    Family("lfm2", "lfm2", "LiquidAI/LFM2-1.2B", "lfm2"),
    Family("olmo3", "olmo3", "allenai/Olmo-3-7B-Instruct", "olmo3"),
    Family(
        "olmo3_think",
        "olmo3_think",
        "allenai/Olmo-3-7B-Think",
        "olmo3",
        "olmo3",
        merges=(("<", "/"), ("Ġ", "</"), ("t", "h"), ("i", "n"), ("in", "k"), ("th", "ink")),
    ),
    Family("functiongemma", "functiongemma", "google/functiongemma-270m-it", "functiongemma"),
    Family("gemma4", "gemma4", "google/gemma-4-31B-it", "gemma4", "gemma4", kwargs=_think()),
)

FAMILIES = {family.name: family for family in _ROWS}


def families_of(parser: str) -> tuple[Family, ...]:
    """The families that a tool parser or reasoning parser of this name is for."""
    return tuple(
        family for family in FAMILIES.values() if parser in (family.tool_parser, family.reasoning_parser)
    )


def families_of_model(entry: ModelEntry) -> tuple[Family, ...]:
    """Those with both parsers of a model."""
    both = (entry.tool_call_parser, entry.reasoning_parser)
    return tuple(f for f in FAMILIES.values() if (f.tool_parser, f.reasoning_parser) == both)


REAL = "+real"
"""What the name of a family on its real tokenizer ends with."""


def on_real_tokenizer(family: Family) -> Family | None:
    """The same family on its real tokenizer, where that can be had and is not what it runs on anyway."""
    if family.form is None or family.tokenizer is None:
        return None
    return replace(family, name=f"{family.name}{REAL}", real=True)


_MELODY = "needs the package cohere-melody, which vLLM does not install; the dialect is there"
_HF = "reads whatever format a checkpoint's response_template describes; it has none of its own"
WITHOUT = {
    "tool_parsers": {"cohere_command3": _MELODY, "cohere_command4": _MELODY, "hf": _HF},
    "reasoning_parsers": {"cohere_command3": _MELODY, "cohere_command4": _MELODY, "hf": _HF},
}
"""Parsers without a family: the reason, by name."""


def family_entry(family: Family, *, real: Path | None = None, into: Path | None = None) -> ModelEntry:
    """A model entry whose stand-in is one tiny Llama with the family's tokenizer, to be served and scripted.

    Args:
        family: one whose dialect is data; Harmony needs its own class (`entry` names it in models.yaml).
        real: folder of a real tokenizer; by default its asset's, or a synthetic one is made, as `family.real`
            says.
        into: where the tokenizer is written, by default the cache.

    Returns:
        An entry of the scripted lane. `stand_in.tokenizer` is the tokenizer's folder.
    """
    form = family.form
    if form is None:
        raise ValueError(f"family {family.name} has no synthetic stand-in; use model {family.entry}")
    if family.real and family.tokenizer and real is None:
        real = assets.fetch(family.tokenizer)
    document = _document(family, form, real)
    folder = _tokenizer_folder(family, form, document, into or cache_dir() / "tokenizers")
    ids = ids_of(document)
    capabilities: set[Capability] = {"tools"} if family.tool_parser else set()
    if family.reasoning_parser:
        capabilities.add("reasoning")
    stops = [ids[stop] for stop in stops_of(form)]
    return ModelEntry(
        name=family.name,
        hub=_REGISTRY_HUB,
        family=family.name,
        dialect=family.dialect,
        tool_call_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        args=family.args,
        env=family.env,
        lanes=("scripted",),
        capabilities=frozenset(capabilities),
        stand_in=StandIn(
            tokenizer=str(folder),
            stop=stop_of(form),
            generation_config={"eos_token_id": stops},
            config=_tiny_llama(max(ids.values()) + 1, stops),
        ),
    )


def _document(family: Family, form: Form, real: Path | None) -> dict[str, Any]:
    tokens = (*tokens_of(form), *family.tokens)
    if real is not None:
        return with_tokens(json.loads((real / "tokenizer.json").read_text()), tokens)
    return byte_tokenizer(tokens, merges=family.merges, ids=family.ids, sentencepiece=family.sentencepiece)


def _tokenizer_folder(family: Family, form: Form, document: dict[str, Any], into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".") as scratch:
        written = Path(scratch, "tokenizer")
        written.mkdir()
        write_tokenizer(written, document, form, config=family.config)
        content = b"".join(path.read_bytes() for path in sorted(written.iterdir()))
        folder = into / f"{family.name}-{hashlib.sha256(content).hexdigest()[:16]}"
        if not folder.exists():
            written.rename(folder)
    return folder


def _tiny_llama(vocabulary: int, stops: list[int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": stops,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": -(-vocabulary // 64) * 64,
    }
