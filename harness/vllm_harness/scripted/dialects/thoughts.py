"""How families write reasoning, after their chat templates and model cards."""

from __future__ import annotations

from vllm_harness.scripted.dialects.form import Thoughts

_THINK = ("<think>", "</think>")

THINK = Thoughts(open="<think>\n", close="\n</think>", gap="\n\n", tokens=_THINK)
THINK_ALWAYS = Thoughts(open="<think>\n", close="\n</think>", gap="\n\n", always=True, tokens=_THINK)
# the chat template has written `<think>` and a line end
OPENED = Thoughts(tail="<think>\n", close="\n</think>", gap="\n\n", always=True, tokens=_THINK)
OPENED_ONE_LINE_END = Thoughts(tail="<think>\n", close="\n</think>", gap="\n", always=True, tokens=_THINK)
# without line ends
BARE_ALWAYS = Thoughts(open="<think>", close="</think>", always=True, tokens=_THINK)
BARE_OPENED = Thoughts(tail="<think>", close="</think>", always=True, tokens=_THINK)
GLM45 = Thoughts(open="\n<think>", close="</think>", gap="\n", always=True, tokens=_THINK)

COHERE = Thoughts(
    open="<|START_THINKING|>",
    close="<|END_THINKING|>",
    tokens=("<|START_THINKING|>", "<|END_THINKING|>"),
    special=True,
)
GEMMA4 = Thoughts(
    open="<|channel>thought\n", close="<channel|>", tokens=("<|channel>", "<channel|>"), special=True
)
# both headings are always there when thinking is on
GRANITE = Thoughts(open="Here is my thought process:\n", close="\nHere is my response:\n", always=True)
HUNYUAN = Thoughts(open="<think>\n", close="\n</think>\n", always=True)
HY3 = Thoughts(open="<think>", close="</think>", always=True, tokens=_THINK)
HY4 = Thoughts(
    open="<think:opensource>",
    close="</think:opensource>",
    always=True,
    tokens=("<think:opensource>", "</think:opensource>"),
)
INKLING = Thoughts(open="<|content_thinking|>", close="")
K2_HORIZON = Thoughts(
    tail="<ifm|think>\n",
    close="</ifm|think>",
    always=True,
    tokens=(
        *("<ifm|think>", "</ifm|think>", "<ifm|think_fast>", "</ifm|think_fast>"),
        *("<ifm|think_faster>", "</ifm|think_faster>"),
    ),
)
KIMI_K3 = Thoughts(tail="<|open|>think<|sep|>", close="<|close|>think<|sep|>", always=True)
MINIMAX_M3 = Thoughts(
    tail="<mm:think>", close="</mm:think>", always=True, tokens=("<mm:think>", "</mm:think>")
)
MINIMAX_M3_ADAPTIVE = Thoughts(open="<mm:think>", close="</mm:think>", tokens=("<mm:think>", "</mm:think>"))
MISTRAL = Thoughts(open="[THINK]", close="[/THINK]", tokens=("[THINK]", "[/THINK]"), special=True)
MUSE = Thoughts(open=" to=self<|message|>", close="")
OLMO3 = Thoughts(tail="<think>", close="</think>", always=True)
PLAMO3 = Thoughts(tail="<|plamo:begin_think:plamo|>", close="<|plamo:end_think:plamo|>", always=True)
SEED = Thoughts(
    open="<seed:think>",
    close="</seed:think>",
    gap="\n",
    always=True,
    tokens=("<seed:think>", "</seed:think>"),
)
