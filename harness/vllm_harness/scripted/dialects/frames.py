"""How families frame the messages of a chat, after their chat templates."""

from __future__ import annotations

from dataclasses import replace

from vllm_harness.scripted.dialects.form import Frame

_ROLES = ("system", "user", "assistant", "tool")


def _alike(open: str, close: str, end: str, tokens: tuple[str, ...], start: str = "", **names: str) -> Frame:
    """A frame that opens every role alike, `{}` standing for its name."""
    roles = {role: open.format(names.get(role, role)) for role in _ROLES}
    return Frame(roles, {"": close}, end, tokens=tokens, start=start)


CHATML = _alike(
    "<|im_start|>{}\n", "<|im_end|>\n", "<|im_end|>", ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
)
ERNIE = replace(CHATML, end="</s>", tokens=("<s>", "</s>", "<|im_start|>", "<|im_end|>"))
LLAMA3 = _alike(
    "<|start_header_id|>{}<|end_header_id|>\n\n",
    "<|eot_id|>",
    "<|eot_id|>",
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
    ),
    start="<|begin_of_text|>",
    tool="ipython",
)
LLAMA4 = _alike(
    "<|header_start|>{}<|header_end|>\n\n",
    "<|eot|>",
    "<|eot|>",
    ("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"),
    start="<|begin_of_text|>",
    tool="ipython",
)
GEMMA = Frame(
    {
        "system": "<start_of_turn>developer\n",
        "user": "<start_of_turn>user\n",
        "assistant": "<start_of_turn>model\n",
        "tool": "<start_of_turn>user\n",
    },
    {"": "<end_of_turn>\n"},
    "<end_of_turn>",
    end_after_calls="<start_function_response>",
    tokens=("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_function_response>"),
    start="<bos>",
)
GEMMA4 = Frame(
    {
        "system": "<|turn>system\n",
        "user": "<|turn>user\n",
        "assistant": "<|turn>model\n",
        "tool": "<|turn>tool\n",
    },
    {"": "<turn|>\n"},
    "<turn|>",
    end_after_calls="<|tool_response>",
    tokens=("<bos>", "<|turn>", "<turn|>", "<|tool_response>"),
    start="<bos>",
)
DEEPSEEK = Frame(
    {"system": "", "user": "<｜User｜>", "assistant": "<｜Assistant｜>", "tool": "<｜User｜>"},
    {"": "", "assistant": "<｜end▁of▁sentence｜>"},
    "<｜end▁of▁sentence｜>",
    tokens=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    start="<｜begin▁of▁sentence｜>",
)
GLM = Frame(
    {
        "system": "<|system|>\n",
        "user": "<|user|>\n",
        "assistant": "<|assistant|>",
        "tool": "<|observation|>\n",
    },
    {"": ""},
    "<|user|>",
    end_after_calls="<|observation|>",
    tokens=(
        *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>"),
        *("<|assistant|>", "<|observation|>"),
    ),
    start="[gMASK]<sop>",
)
KIMI_K2 = Frame(
    {
        "system": "<|im_system|>system<|im_middle|>",
        "user": "<|im_user|>user<|im_middle|>",
        "assistant": "<|im_assistant|>assistant<|im_middle|>",
        "tool": "<|im_system|>tool<|im_middle|>",
    },
    {"": "<|im_end|>"},
    "<|im_end|>",
    tokens=("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
)
KIMI_K3 = _alike(
    '<|open|>message role="{}"<|sep|>',
    "<|close|>message<|sep|><|end_of_msg|>",
    "<|close|>message<|sep|><|end_of_msg|>",
    ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)
MINIMAX = _alike("]~b]{}\n", "[e~[\n", "[e~[", ("]~!b[", "]~b]", "[e~["), start="]~!b[", assistant="ai")
MISTRAL = Frame(
    {
        "system": "[SYSTEM_PROMPT]",
        "user": "[INST]",
        "assistant": "",
        "tool": "[TOOL_RESULTS]",
    },
    {"system": "[/SYSTEM_PROMPT]", "user": "[/INST]", "assistant": "</s>", "tool": "[/TOOL_RESULTS]"},
    "</s>",
    tokens=(
        *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    ),
    start="<s>",
)
APERTUS = Frame(
    {
        "system": "<|system_start|>",
        "user": "<|user_start|>",
        "assistant": "<|assistant_start|>",
        "tool": "<|user_start|>",
    },
    {
        "system": "<|system_end|>",
        "user": "<|user_end|>",
        "assistant": "<|assistant_end|>",
        "tool": "<|user_end|>",
    },
    "<|assistant_end|>",
    tokens=(
        *("<s>", "<|system_start|>", "<|system_end|>", "<|user_start|>", "<|user_end|>"),
        *("<|assistant_start|>", "<|assistant_end|>"),
    ),
    start="<s>",
)
COHERE = Frame(
    {
        "system": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",
        "user": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
        "assistant": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        "tool": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",
    },
    {"": "<|END_OF_TURN_TOKEN|>"},
    "<|END_OF_TURN_TOKEN|>",
    tokens=(
        *("<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        *("<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    ),
    start="<BOS_TOKEN>",
)
GRANITE = _alike(
    "<|start_of_role|>{}<|end_of_role|>",
    "<|end_of_text|>\n",
    "<|end_of_text|>",
    ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
)
GRANITE_20B = Frame(
    {"system": "SYSTEM: ", "user": "\nUSER: ", "assistant": "\nASSISTANT: ", "tool": "<function_response> "},
    {"": "", "assistant": "<|endoftext|>"},
    "<|endoftext|>",
    tokens=("<|endoftext|>",),
)
GIGACHAT3 = Frame(
    {
        "system": "system<|role_sep|>\n",
        "user": "user<|role_sep|>\n",
        "assistant": "assistant<|role_sep|>\n",
        "tool": "function result<|role_sep|>\n",
    },
    {"": "<|message_sep|>\n\n"},
    "</s>",
    tokens=("<s>", "</s>", "<|role_sep|>\n", "<|message_sep|>\n\n"),
    start="<s>",
)
HUNYUAN = Frame(
    {"system": "<|startoftext|>", "user": "<|startoftext|>", "assistant": "", "tool": "<|startoftext|>"},
    {"": "<|extra_0|>", "system": "<|extra_4|>", "assistant": "<|eos|>"},
    "<|eos|>",
    tokens=("<|startoftext|>", "<|extra_0|>", "<|extra_4|>", "<|eos|>"),
)
INKLING = Frame(
    {
        "system": "<|message_system|><|content_text|>",
        "user": "<|message_user|><|content_text|>",
        "assistant": "<|message_model|>",
        "tool": "<|message_tool|><|content_text|>",
    },
    {"": "<|end_message|>", "assistant": "<|end_message|><|content_model_end_sampling|>"},
    "<|end_message|><|content_model_end_sampling|>",
    tokens=(
        *("<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>"),
        *("<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>"),
        *("<|content_model_end_sampling|>", "<|end_message|>"),
    ),
)
JAMBA = _alike("<|bom|><|{}|> ", "<|eom|>", "<|eom|>", ("<|startoftext|>", "<|bom|>", "<|eom|>"))
K2_HORIZON = _alike(
    "<|ifm|im_start|>{}\n",
    "<|ifm|im_end|>",
    "<|ifm|im_end|>",
    ("<|ifm|im_start|>", "<|ifm|im_end|>", "<|ifm|endoftext|>"),
)
LONGCAT = Frame(
    {"system": "SYSTEM:", "user": " USER:", "assistant": " ASSISTANT:", "tool": " TOOL:"},
    {"": "", "assistant": "</longcat_s>"},
    "</longcat_s>",
    tokens=("<longcat_s>", "</longcat_s>"),
)
MUSE = Frame(
    {
        "system": "<|start|>system<|message|>",
        "user": "<|start|>user<|message|>",
        "assistant": "<|start|>assistant",
        "tool": "<|start|>tool<|message|>",
    },
    {"": "<|eot|>"},
    "<|eot|>",
    tokens=("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
)
PHI4 = _alike(
    "<|{}|>", "<|end|>", "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
)
PLAMO3 = _alike("<|plamo:{}:plamo|>", "<|plamo:tag|>", "<|plamo:tag|>", ("<|plamo:tag|>",))
POOLSIDE = Frame(
    {role: f"<{role}>\n" for role in _ROLES},
    {role: f"</{role}>\n" for role in _ROLES},
    "</assistant>",
    tokens=tuple(f"<{slash}{role}>" for role in _ROLES for slash in ("", "/")),
)
SEED = _alike("<seed:bos>{}\n", "<seed:eos>", "<seed:eos>", ("<seed:bos>", "<seed:eos>"))
STEP3 = _alike("<|BOT|>{}\n", "<|EOT|>", "<|EOT|>", ("<|BOT|>", "<|EOT|>"))
