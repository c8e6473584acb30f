"""How families write calls, after their chat templates, model cards and format guides."""

from __future__ import annotations

from vllm_harness.scripted.dialects.form import Calls
from vllm_harness.scripted.dialects.values import Elements, Parameters, Quoted, as_python

_ARGUMENTS = '{"name": $name_json, "arguments": $arguments}'
_PARAMETERS = '{"name": $name_json, "parameters": $arguments}'
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_ARG = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

# JSON between tags
HERMES = Calls(
    f"<tool_call>\n{_ARGUMENTS}\n</tool_call>",
    between="\n",
    beside="\n",
    marker="<tool_call>",
    text="around",
    tokens=_TOOL_CALL,
)
ERNIE45 = Calls(f"<tool_call>\n{_ARGUMENTS}\n</tool_call>\n", marker="<tool_call>", tokens=_TOOL_CALL)
LONGCAT = Calls(
    f"<longcat_tool_call>\n{_ARGUMENTS}\n</longcat_tool_call>",
    between="\n",
    beside="\n",
    marker="<longcat_tool_call>",
    tokens=("<longcat_tool_call>", "</longcat_tool_call>"),
)
GRANITE_20B = Calls(f"<function_call> {_ARGUMENTS}", marker="<function_call>")
INTERNLM = Calls(
    f"<|action_start|><|plugin|>\n{_PARAMETERS}<|action_end|>\n",
    marker="<|action_start|>",
    most=1,
    tokens=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    special=True,
)
GIGACHAT3 = Calls(
    _ARGUMENTS,
    open="<|message_sep|>\n\nfunction call<|role_sep|>\n",
    most=1,
    marker="function call<|role_sep|>",
)
GIGACHAT31 = Calls(
    f"<|function_call|>{_ARGUMENTS}",
    marker="<|function_call|>",
    most=1,
    tokens=("<|function_call|>",),
    special=True,
)
INKLING = Calls(
    '$name<|content_invoke_tool_json|>{"name": $name_json, "args": $arguments}',
    text="around",
)

# a JSON list
APERTUS = Calls(
    "{$name_json: $arguments}",
    open="<|tools_prefix|>[",
    between=", ",
    close="]<|tools_suffix|>",
    marker="<|tools_prefix|>",
    text="around",
    tokens=("<|tools_prefix|>", "<|tools_suffix|>"),
    special=True,
)
COHERE = Calls(
    '    {"tool_call_id": "$index", "tool_name": $name_json, "parameters": $arguments}',
    open="<|START_ACTION|>[\n",
    between=",\n",
    close="\n]<|END_ACTION|>",
    marker="<|START_ACTION|>",
    text="alone",
    tokens=("<|START_ACTION|>", "<|END_ACTION|>"),
    special=True,
)
GRANITE = Calls(
    _ARGUMENTS,
    open="<|tool_call|>[",
    between=", ",
    close="]",
    marker="<|tool_call|>",
    text="alone",
    tokens=("<|tool_call|>",),
    special=True,
)
HUNYUAN = Calls(
    _ARGUMENTS,
    open="<tool_calls>[",
    between=", ",
    close="]</tool_calls>",
    marker="<tool_calls>",
    text="alone",
)
JAMBA = Calls(
    f"    {_ARGUMENTS}",
    open="<tool_calls>[\n",
    between=",\n",
    close="\n]</tool_calls>",
    marker="<tool_calls>",
    tokens=("<tool_calls>", "</tool_calls>"),
    special=True,
)
MISTRAL_LIST = Calls(
    _ARGUMENTS,
    open="[TOOL_CALLS] [",
    between=", ",
    close="]",
    marker="[TOOL_CALLS]",
    tokens=("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    special=True,
)
PHI4 = Calls(_ARGUMENTS, open="functools[", between=", ", close="]", marker="functools[", text="alone")
XLAM = Calls(_ARGUMENTS, open="[", between=", ", close="]", text="alone")

# a name, then JSON
LLAMA_JSON = Calls(_PARAMETERS, text="alone", most=1)
DEEPSEEK_V3 = Calls(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<｜tool▁call▁end｜>",
    open="<｜tool▁calls▁begin｜>",
    between="\n",
    close="<｜tool▁calls▁end｜>",
    marker="<｜tool▁calls▁begin｜>",
    tokens=tuple(
        f"<｜tool▁{word}｜>" for word in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
    ),
)
DEEPSEEK_V31 = Calls(
    "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
    open=DEEPSEEK_V3.open,
    close=DEEPSEEK_V3.close,
    marker=DEEPSEEK_V3.marker,
    tokens=DEEPSEEK_V3.tokens,
)
KIMI_K2 = Calls(
    "<|tool_call_begin|>functions.$name:$index<|tool_call_argument_begin|>$arguments<|tool_call_end|>",
    id="functions.$name:$index",
    open="<|tool_calls_section_begin|>",
    close="<|tool_calls_section_end|>",
    marker="<|tool_calls_section_begin|>",
    tokens=(
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    special=True,
)
MISTRAL = Calls(
    "[TOOL_CALLS]$name[ARGS]$arguments",
    marker="[TOOL_CALLS]",
    tokens=("[TOOL_CALLS]", "[ARGS]"),
    special=True,
)
PLAMO3 = Calls(
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>$name<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>$arguments"
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    open="<|plamo:begin_tool_requests:plamo|>",
    close="<|plamo:end_tool_requests:plamo|>",
    marker="<|plamo:begin_tool_requests:plamo|>",
)

# a name, then one element a parameter
QWEN3_CODER = Calls(
    "<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>",
    Parameters("<parameter=$key>\n$value\n</parameter>\n"),
    between="\n",
    beside="\n",
    marker="<tool_call>",
    tokens=_TOOL_CALL,
)
STEP3P5 = Calls(QWEN3_CODER.call, QWEN3_CODER.arguments, marker="<tool_call>", tokens=_TOOL_CALL)
MIMO = Calls(
    QWEN3_CODER.call,
    Parameters("<parameter=$key>$value</parameter>\n"),
    between="\n",
    beside="\n",
    marker="<tool_call>",
    tokens=_TOOL_CALL,
)
SEED = Calls(
    "<seed:tool_call>\n<function=$name>\n$arguments</function>\n</seed:tool_call>",
    Parameters("<parameter=$key>$value</parameter>\n"),
    between="\n",
    beside="\n",
    marker="<seed:tool_call>",
    tokens=("<seed:tool_call>", "</seed:tool_call>"),
)
GLM45 = Calls(
    "<tool_call>$name\n$arguments</tool_call>",
    Parameters("<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>\n"),
    between="\n",
    beside="\n",
    marker="<tool_call>",
    tokens=(*_TOOL_CALL, *_ARG),
)
GLM47 = Calls(
    "<tool_call>$name$arguments</tool_call>",
    Parameters("<arg_key>$key</arg_key><arg_value>$value</arg_value>"),
    marker="<tool_call>",
    tokens=(*_TOOL_CALL, *_ARG),
)
HY3 = Calls(
    "<tool_call>$name<tool_sep>\n$arguments</tool_call>",
    Parameters("<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>\n"),
    open="<tool_calls>\n",
    between="\n",
    close="\n</tool_calls>",
    marker="<tool_calls>",
    tokens=("<tool_calls>", "</tool_calls>", *_TOOL_CALL, "<tool_sep>", *_ARG),
)
HY4 = Calls(
    "<tool_call:opensource>$name$arguments</tool_call:opensource>",
    Parameters(
        "<arg_key:opensource>$key</arg_key:opensource><arg_value:opensource>$value</arg_value:opensource>"
    ),
    open="<tool_calls:opensource>",
    close="</tool_calls:opensource>",
    marker="<tool_calls:opensource>",
    tokens=tuple(
        f"<{slash}{word}:opensource>"
        for word in ("tool_calls", "tool_call", "arg_key", "arg_value")
        for slash in ("", "/")
    ),
)
K2_HORIZON = Calls(
    "<ifm|tool_call>$name\n$arguments</ifm|tool_call>",
    Parameters("<ifm|arg_key>$key</ifm|arg_key>\n<ifm|arg_value>$value</ifm|arg_value>\n"),
    open="<ifm|tool_calls>\n",
    between="\n",
    close="\n</ifm|tool_calls>",
    marker="<ifm|tool_calls>",
    tokens=tuple(
        f"<{slash}ifm|{word}>"
        for word in ("tool_calls", "tool_call", "arg_key", "arg_value", "arg_type")
        for slash in ("", "/")
    ),
)


def _invoke(open: str, close: str, mark: str, tokens: tuple[str, ...], beside: str = "\n") -> Calls:
    """`invoke` elements with `parameter` elements, `mark` standing before every tag's name."""
    return Calls(
        f'<{mark}invoke name="$name">\n$arguments</{mark}invoke>',
        Parameters(f'<{mark}parameter name="$key">$value</{mark}parameter>\n'),
        open=f"{open}\n",
        between="\n",
        close=f"\n{close}",
        beside=beside,
        marker=open,
        tokens=tokens,
    )


DOTS_JSON = Calls(
    f"<dots_function_call>\n{_ARGUMENTS}\n</dots_function_call>",
    between="\n",
    beside="\n",
    marker="<dots_function_call>",
    text="around",
)
DOTS = _invoke("<dots_function_call>", "</dots_function_call>", "", ())
MINIMAX_M2 = _invoke(
    "<minimax:tool_call>", "</minimax:tool_call>", "", ("<minimax:tool_call>", "</minimax:tool_call>")
)
MUSE = Calls(
    ' to=$name<|message|><atem:function_calls>\n<atem:invoke name="$name">\n$arguments'
    "</atem:invoke>\n</atem:function_calls>",
    Parameters('<atem:parameter name="$key">$value</atem:parameter>\n'),
    text="around",
)
MINIMAX_M3 = Calls(
    ']<]minimax[>[<invoke name="$name">$arguments]<]minimax[>[</invoke>\n',
    Elements("]<]minimax[>["),
    open="]<]minimax[>[<tool_call>\n",
    close="]<]minimax[>[</tool_call>",
    beside="\n",
    marker="]<]minimax[>[",
    tokens=("]<]minimax[>[",),
)
STEP3 = Calls(
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="$name">$arguments</steptml:invoke>'
    "<｜tool_call_end｜>",
    Parameters('<steptml:parameter name="$key">$value</steptml:parameter>'),
    open="<｜tool_calls_begin｜>\n",
    between="\n",
    close="\n<｜tool_calls_end｜>",
    marker="<｜tool_calls_begin｜>",
    tokens=tuple(
        f"<｜tool_{word}｜>" for word in ("calls_begin", "calls_end", "call_begin", "call_end", "sep")
    ),
    special=True,
)
MINICPM5 = Calls(
    '<function name="$name">$arguments</function>',
    Parameters('<param name="$key">$value</param>', cdata=True),
    beside="\n",
    marker="<function",
    tokens=("<function", "</function>", "<param", "</param>"),
)
KIMI_K3 = Calls(
    '<|open|>call tool="$name" index="$number"<|sep|>$arguments<|close|>call<|sep|>',
    Parameters('<|open|>argument key="$key" type="$type"<|sep|>$value<|close|>argument<|sep|>'),
    open="<|open|>tools<|sep|>",
    close="<|close|>tools<|sep|>",
)


def _dsml(outer: str, blank: str = "") -> Calls:
    """DeepSeek's markup: `｜DSML｜` begins every tag, and a parameter says whether it is a string."""
    each = f'<｜DSML｜{blank}parameter name="$key" string="{{}}">$value</｜DSML｜{blank}parameter>'
    return Calls(
        f'<｜DSML｜{blank}invoke name="$name">\n$arguments\n</｜DSML｜{blank}invoke>',
        Parameters(each.format("true"), each.format("false"), between="\n"),
        open=f"\n\n<｜DSML｜{outer}>\n",
        between="\n",
        close=f"\n</｜DSML｜{outer}>",
        marker="<｜DSML｜",
        tokens=("｜DSML｜",),
    )


DEEPSEEK_V32 = _dsml("function_calls")
DEEPSEEK_V4 = _dsml("tool_calls")
DEEPSEEK_V41 = _dsml(" calls", blank=" ")

# Python, and Gemma's own notation
PYTHONIC = Calls("$name($arguments)", as_python, open="[", between=", ", close="]", text="alone")
LLAMA4 = Calls(
    PYTHONIC.call,
    as_python,
    open="<|python_start|>[",
    between=", ",
    close="]<|python_end|>",
    text="alone",
    marker="<|python_start|>",
    tokens=("<|python_start|>", "<|python_end|>"),
    special=True,
)
LFM2 = Calls(
    PYTHONIC.call,
    as_python,
    open="<|tool_call_start|>[",
    between=", ",
    close="]<|tool_call_end|>",
    marker="<|tool_call_start|>",
    text="around",
    tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
    special=True,
)
OLMO3 = Calls(
    PYTHONIC.call,
    as_python,
    open="<function_calls>",
    between="\n",
    close="</function_calls>",
    marker="<function_calls>",
)
FUNCTIONGEMMA = Calls(
    "<start_function_call>call:$name{$arguments}<end_function_call>",
    Quoted("<escape>"),
    marker="<start_function_call>",
    tokens=("<start_function_call>", "<end_function_call>", "<escape>"),
    special=True,
)
GEMMA4 = Calls(
    "<|tool_call>call:$name{$arguments}<tool_call|>",
    Quoted('<|"|>'),
    marker="<|tool_call>",
    tokens=("<|tool_call>", "<tool_call|>", '<|"|>'),
    special=True,
)
