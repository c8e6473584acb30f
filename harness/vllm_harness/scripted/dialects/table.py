"""The dialects that are data: which frame, thoughts and calls each composes, and where that is published.

"From memory" marks a format that was written down without the document at hand; where only a
parser of vLLM shows a format, it says so.
"""

from __future__ import annotations

from dataclasses import replace

from vllm_harness.scripted.dialects import calls, frames, thoughts
from vllm_harness.scripted.dialects.form import Form

_HUB = "https://huggingface.co"
_EXAMPLES = "https://github.com/vllm-project/vllm/tree/main/examples"


def _template(model: str, example: str | None = None) -> str:
    """The chat template of a model on the hub, and vLLM's copy where it has one."""
    copy = f", {_EXAMPLES}/tool_chat_template_{example}.jinja" if example else ""
    return f"chat template of {_HUB}/{model}{copy}"


HERMES = Form(
    "hermes",
    "https://github.com/NousResearch/Hermes-Function-Calling (README, Prompt Format for Function Calling); "
    f"chat template of {_HUB}/Qwen/Qwen3-8B for what stands between the blocks",
    frames.CHATML,
    calls.HERMES,
    thoughts.THINK,
)
QWEN3_CODER = Form(
    "qwen3_coder",
    _template("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3coder"),
    frames.CHATML,
    calls.QWEN3_CODER,
)
QWEN35 = replace(
    QWEN3_CODER,
    name="qwen35",
    source=_template("Qwen/Qwen3.5-35B-A3B") + " (from memory): Qwen3-Coder's calls, opened thoughts",
    thoughts=thoughts.OPENED,
)
DEEPSEEK_V3 = Form(
    "deepseek_v3",
    _template("deepseek-ai/DeepSeek-V3-0324", "deepseekv3"),
    frames.DEEPSEEK,
    calls.DEEPSEEK_V3,
)
DEEPSEEK_V32 = Form(
    "deepseek_v32",
    f"{_HUB}/deepseek-ai/DeepSeek-V3.2 (encoding/encoding_dsv32.py)",
    frames.DEEPSEEK,
    calls.DEEPSEEK_V32,
    thoughts.BARE_OPENED,
)
DEEPSEEK_V31 = Form(
    "deepseek_v31",
    f"{_HUB}/deepseek-ai/DeepSeek-V3.1 (Chat Template, ToolCall), "
    f"{_EXAMPLES}/tool_chat_template_deepseekv31.jinja",
    frames.DEEPSEEK,
    calls.DEEPSEEK_V31,
    thoughts.BARE_OPENED,
)
MINIMAX_M2 = Form(
    "minimax_m2",
    f"chat template and docs/tool_calling_guide.md of {_HUB}/MiniMaxAI/MiniMax-M2",
    frames.MINIMAX,
    calls.MINIMAX_M2,
    thoughts.OPENED,
)
MINIMAX_M3 = Form(
    "minimax_m3",
    f"chat template of {_HUB}/MiniMaxAI/MiniMax-M3 as public copies quote it (to_xml: one element a key, "
    "<item> for lists; thinking_mode enabled opens the thoughts, adaptive leaves that to the model); frame "
    "from MiniMax-M2",
    frames.MINIMAX,
    calls.MINIMAX_M3,
    thoughts.MINIMAX_M3,
)
GLM47 = Form(
    "glm47",
    _template("zai-org/GLM-4.7") + " (from memory)",
    frames.GLM,
    calls.GLM47,
    thoughts.BARE_OPENED,
    how="\n\nFor each function call, output its name and arguments within the following XML format:\n"
    "<tool_call>{function-name}<arg_key>{arg-key}</arg_key><arg_value>{arg-value}</arg_value></tool_call>",
)
COHERE3 = Form(
    "cohere_command3",
    _template("CohereLabs/command-a-reasoning-08-2025") + " (from memory)",
    frames.COHERE,
    calls.COHERE,
    thoughts.COHERE,
    text=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
GRANITE = Form(
    "granite",
    _template("ibm-granite/granite-3.0-8b-instruct", "granite"),
    frames.GRANITE,
    calls.GRANITE,
)

KIMI_K25 = Form(
    "kimi_k25",
    _template("moonshotai/Kimi-K2.5") + " (from memory): Kimi K2's calls, opened thoughts",
    frames.KIMI_K2,
    calls.KIMI_K2,
    thoughts.BARE_OPENED,
)
KIMI_K3 = Form(
    "kimi_k3",
    _template("moonshotai/Kimi-K3") + " (models/templates of https://github.com/ggml-org/llama.cpp)",
    frames.KIMI_K3,
    calls.KIMI_K3,
    thoughts.KIMI_K3,
    text=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    text_always=True,
)
HY_V3 = Form(
    "hy_v3",
    _template("tencent/Hy3-preview") + " (from memory; frame replaced by ChatML)",
    frames.CHATML,
    calls.HY3,
    thoughts.HY3,
)
HY_V4 = Form(
    "hy_v4",
    _template("tencent/Hy4-preview") + " (from memory; frame replaced by ChatML): no white space, "
    "and the checkpoint's suffix in every marker",
    frames.CHATML,
    calls.HY4,
    thoughts.HY4,
)
POOLSIDE = Form(
    "poolside_v1",
    "vLLM's poolside_v1 parsers only: GLM's calls, thoughts opened after <assistant>",
    frames.POOLSIDE,
    calls.GLM45,
    thoughts.BARE_OPENED,
)


MINICPMV = replace(
    QWEN3_CODER,
    name="minicpmv",
    source="vLLM's minicpmv parser only: thoughts that the chat template opens, Qwen3-Coder's calls",
    thoughts=thoughts.OPENED,
)


def _unthinking(form: Form, tail: str) -> Form:
    """The same with thinking turned off: so the prompt ends, and the markers stay in the vocabulary."""
    assert form.thoughts is not None
    return replace(
        form,
        name=f"{form.name}_unthinking",
        source=f"{form.source}; thinking turned off",
        calls=replace(form.calls, tokens=(*form.calls.tokens, *form.thoughts.tokens)),
        thoughts=None,
        unthinking=tail,
    )


FORMS = (
    HERMES,
    replace(
        HERMES,
        name="qwen3",
        source=f"{_HUB}/Qwen/Qwen3-8B (Switching Between Thinking and Non-Thinking Mode: in thinking mode "
        "the block is always there, and may be empty)",
        thoughts=thoughts.THINK_ALWAYS,
    ),
    replace(
        HERMES,
        name="qwen3_opened",
        source=f"chat template of {_HUB}/Qwen/Qwen3-4B-Thinking-2507: the prompt opens the thoughts",
        thoughts=thoughts.OPENED,
    ),
    replace(
        HERMES,
        name="hermes_special",
        source=HERMES.source + "; special markers: vLLM's hermes parser says that some models have them",
        calls=replace(calls.HERMES, special=True),
    ),
    replace(
        HERMES,
        name="granite4",
        source=_template("ibm-granite/granite-4.0-h-small") + " (from memory): hermes calls",
        frame=frames.GRANITE,
        thoughts=None,
    ),
    replace(
        HERMES,
        name="granite4_thinking",
        source="vLLM's granite_thinking parser only: Qwen3's thoughts in thinking mode, Granite 4.0's calls",
        frame=frames.GRANITE,
        thoughts=thoughts.THINK_ALWAYS,
    ),
    Form(
        "llama_json",
        "https://github.com/meta-llama/llama-models (models/llama3_1/prompt_format.md, JSON based "
        "tool calling: only single calls)",
        frames.LLAMA3,
        calls.LLAMA_JSON,
    ),
    Form(
        "llama4_json",
        f"{_EXAMPLES}/tool_chat_template_llama4_json.jinja: the JSON of Llama 3.1 in Llama 4's frame",
        frames.LLAMA4,
        replace(calls.LLAMA_JSON, tokens=("<|python_tag|>",), special=True),
    ),
    Form(
        "llama4_pythonic",
        "https://github.com/meta-llama/llama-models (models/llama4/prompt_format.md, Tool calling)",
        frames.LLAMA4,
        calls.LLAMA4,
    ),
    Form(
        "pythonic",
        "https://github.com/meta-llama/llama-models (models/llama3_2/text_prompt_format.md: "
        "[func_name1(params_name1=params_value1, ...)], no other text)",
        frames.LLAMA3,
        calls.PYTHONIC,
    ),
    Form(
        "xlam",
        _template("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam_llama"),
        frames.LLAMA3,
        calls.XLAM,
    ),
    Form(
        "phi4_mini",
        f"{_EXAMPLES}/tool_chat_template_phi4_mini.jinja: functools and one JSON list, no closing marker",
        frames.PHI4,
        calls.PHI4,
    ),
    QWEN3_CODER,
    QWEN35,
    _unthinking(QWEN35, "<think>\n\n</think>\n\n"),
    replace(
        QWEN3_CODER,
        name="nemotron_v3",
        source=_template("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16") + " (from memory)",
        thoughts=thoughts.OPENED_ONE_LINE_END,
    ),
    MINICPMV,
    _unthinking(MINICPMV, "<think>\n\n</think>\n\n"),
    Form(
        "step3p5",
        f"chat template of {_HUB}/stepfun-ai/Step-3.7-Flash (models/templates of "
        "https://github.com/ggml-org/llama.cpp): no blanks around calls",
        frames.CHATML,
        calls.STEP3P5,
        thoughts.OPENED_ONE_LINE_END,
    ),
    Form(
        "mimo",
        _template("XiaomiMiMo/MiMo-V2-Flash") + " (from memory): values without line ends",
        frames.CHATML,
        calls.MIMO,
        thoughts.BARE_ALWAYS,
    ),
    Form(
        "seed_oss",
        _template("ByteDance-Seed/Seed-OSS-36B-Instruct"),
        frames.SEED,
        calls.SEED,
        thoughts.SEED,
    ),
    Form(
        "glm45",
        _template("zai-org/GLM-4.6"),
        frames.GLM,
        calls.GLM45,
        thoughts.GLM45,
    ),
    GLM47,
    _unthinking(GLM47, "</think>"),
    replace(
        GLM47,
        name="glm53",
        source="vLLM's glm47 parser only: GLM 4.7's format, and a header in place of the switch for thinking",
        frame=replace(frames.GLM, start=frames.GLM.start + "<|system|>\nReasoning Effort: Max"),
    ),
    replace(
        GLM47,
        name="ling3",
        source="vLLM's ling3 parser only: GLM 4.7's format; frame from memory of Ling",
    ),
    POOLSIDE,
    _unthinking(POOLSIDE, "</think>"),
    HY_V3,
    _unthinking(HY_V3, "<think></think>"),
    HY_V4,
    _unthinking(HY_V4, "<think:opensource></think:opensource>"),
    Form(
        "k2_horizon",
        _template("LLM360/K2-Horizon") + " (a rendered turn of it stands in a public test)",
        frames.K2_HORIZON,
        calls.K2_HORIZON,
        thoughts.K2_HORIZON,
    ),
    DEEPSEEK_V3,
    replace(
        DEEPSEEK_V3,
        name="deepseek_r1",
        source=_template("deepseek-ai/DeepSeek-R1-0528", "deepseekr1"),
        thoughts=thoughts.OPENED,
    ),
    DEEPSEEK_V31,
    _unthinking(DEEPSEEK_V31, "</think>"),
    DEEPSEEK_V32,
    replace(
        DEEPSEEK_V32,
        name="deepseek_v4",
        source=f"{_HUB}/deepseek-ai/DeepSeek-V4-Flash (encoding/encoding_dsv4.py)",
        calls=calls.DEEPSEEK_V4,
    ),
    replace(
        DEEPSEEK_V32,
        name="deepseek_v41",
        source="DeepSeek V4.1's reference encoder, as adapted in vllm/tokenizers/deepseek_v41_encoding.py",
        calls=calls.DEEPSEEK_V41,
    ),
    Form(
        "dots",
        "output of rednote's dots models as public clients report it (blanks from memory; frame replaced by "
        "ChatML)",
        frames.CHATML,
        calls.DOTS,
    ),
    Form(
        "dots_json",
        "what the documentation of vllm/tool_parsers/dots_tool_parser.py names as the other body of a call: "
        "a JSON object (blanks as in hermes; frame replaced by ChatML)",
        frames.CHATML,
        calls.DOTS_JSON,
    ),
    MINIMAX_M2,
    MINIMAX_M3,
    replace(MINIMAX_M3, name="minimax_m3_adaptive", thoughts=thoughts.MINIMAX_M3_ADAPTIVE),
    Form(
        "minicpm5",
        _template("openbmb/MiniCPM5")
        + " as public clients quote it: no wrapper, CDATA around values with <, & or a "
        "line end; <function and <param are tokens",
        frames.CHATML,
        calls.MINICPM5,
    ),
    Form(
        "muse_glimmer",
        f"{_EXAMPLES}/tool_chat_template_muse_glimmer.jinja",
        frames.MUSE,
        calls.MUSE,
        thoughts.MUSE,
        text=(" to=user<|message|>", ""),
        join="<|eom|><|start|>assistant",
    ),
    Form(
        "inkling",
        "Inkling's chat encoding (vllm/renderers/inkling_encoding.py is its reference implementation)",
        frames.INKLING,
        calls.INKLING,
        thoughts.INKLING,
        text=("<|content_text|>", ""),
        join="<|end_message|><|message_model|>",
    ),
    Form(
        "step3",
        _template("stepfun-ai/step3") + " (from memory)",
        frames.STEP3,
        calls.STEP3,
        thoughts.OPENED_ONE_LINE_END,
    ),
    Form(
        "kimi_k2",
        f"chat template and docs/tool_call_guidance.md of {_HUB}/moonshotai/Kimi-K2-Thinking",
        frames.KIMI_K2,
        calls.KIMI_K2,
        thoughts.BARE_ALWAYS,
    ),
    Form(
        "kimi_k2_instruct",
        f"chat template and docs/tool_call_guidance.md of {_HUB}/moonshotai/Kimi-K2-Instruct: no thoughts",
        frames.KIMI_K2,
        calls.KIMI_K2,
    ),
    KIMI_K25,
    _unthinking(KIMI_K25, "<think></think>"),
    KIMI_K3,
    _unthinking(KIMI_K3, ""),
    Form(
        "ernie45",
        f"{_HUB}/baidu/ERNIE-4.5-21B-A3B-Thinking: an answer of it stands in transformers' tests of "
        "response schemas; calls from memory of its chat template",
        frames.ERNIE,
        calls.ERNIE45,
        replace(thoughts.OPENED, special=True),
        text=("<response>\n", "\n</response>\n"),
    ),
    Form(
        "longcat",
        f"{_HUB}/meituan-longcat/LongCat-Flash-Chat (Chat Template, Tool Call)",
        frames.LONGCAT,
        calls.LONGCAT,
    ),
    GRANITE,
    replace(
        GRANITE,
        name="granite32",
        source=f"{_HUB}/ibm-granite/granite-3.2-8b-instruct (thinking=True; the two headings stand in its "
        "chat template, the line ends around them from memory)",
        thoughts=thoughts.GRANITE,
    ),
    Form(
        "granite_20b",
        f"{_EXAMPLES}/tool_chat_template_granite_20b_fc.jinja, https://arxiv.org/abs/2407.00121",
        frames.GRANITE_20B,
        calls.GRANITE_20B,
    ),
    Form(
        "internlm2",
        f"{_HUB}/internlm/internlm2_5-7b-chat (and the InternLM repository's chat format, agent section)",
        frames.CHATML,
        calls.INTERNLM,
    ),
    Form(
        "gigachat3",
        _template("ai-sage/GigaChat3-10B-A1.8B"),
        frames.GIGACHAT3,
        calls.GIGACHAT3,
    ),
    Form(
        "gigachat31",
        f"{_HUB}/ai-sage/GigaChat3.1-10B-A1.8B (from memory)",
        frames.GIGACHAT3,
        calls.GIGACHAT31,
    ),
    Form(
        "apertus",
        _template("swiss-ai/Apertus-8B-Instruct-2509", "apertus"),
        frames.APERTUS,
        calls.APERTUS,
    ),
    COHERE3,
    replace(
        COHERE3,
        name="cohere_command4",
        source="vLLM's cohere_command4 parser only: as Command A, text between START_TEXT and END_TEXT",
        text=("<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Form(
        "hunyuan_a13b",
        f"{_EXAMPLES}/tool_chat_template_hunyuan_a13b.jinja; {_HUB}/tencent/Hunyuan-A13B-Instruct (think and "
        "answer blocks)",
        frames.HUNYUAN,
        calls.HUNYUAN,
        thoughts.HUNYUAN,
        body=("<answer>\n", "\n</answer>"),
    ),
    Form(
        "jamba",
        _template("ai21labs/AI21-Jamba-1.5-Mini") + " (from memory)",
        frames.JAMBA,
        calls.JAMBA,
    ),
    Form(
        "mistral",
        "https://github.com/mistralai/mistral-common (InstructTokenizerV11, V13)",
        frames.MISTRAL,
        calls.MISTRAL,
        thoughts.MISTRAL,
    ),
    Form(
        "mistral_v3",
        "https://github.com/mistralai/mistral-common (InstructTokenizerV3)",
        frames.MISTRAL,
        calls.MISTRAL_LIST,
    ),
    Form(
        "plamo3",
        "PLaMo 3's tool call format as public clients of its API handle it",
        frames.PLAMO3,
        calls.PLAMO3,
        thoughts.PLAMO3,
    ),
    Form(
        "lfm2",
        f"{_HUB}/LiquidAI/LFM2-1.2B (Tool use), chat template of LFM2.5-8B-A1B",
        frames.CHATML,
        calls.LFM2,
    ),
    Form(
        "olmo3",
        _template("allenai/Olmo-3-7B-Instruct") + " (from memory)",
        frames.CHATML,
        calls.OLMO3,
    ),
    Form(
        "olmo3_think",
        _template("allenai/Olmo-3-7B-Think") + " (from memory)",
        frames.CHATML,
        calls.OLMO3,
        thoughts.OLMO3,
    ),
    Form(
        "functiongemma",
        "https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices",
        frames.GEMMA,
        calls.FUNCTIONGEMMA,
    ),
    Form(
        "gemma4",
        _template("google/gemma-4-31B-it"),
        frames.GEMMA4,
        calls.GEMMA4,
        thoughts.GEMMA4,
    ),
)
