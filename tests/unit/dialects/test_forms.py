"""Tests the dialects that data files define: published examples, and properties that all share."""

from __future__ import annotations

import ast
import json
import keyword
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_harness._scripted.dialects import DialectError, load_forms, render
from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall

WEATHER = ToolCall("get_weather", {"city": "Paris", "days": 3})
TIME = ToolCall("get_time", {})
PLAIN = st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1)
KEYS = st.from_regex("[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(lambda key: not keyword.iskeyword(key))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=3)
by_name = pytest.mark.parametrize("form", load_forms().values(), ids=lambda form: form.name)

PUBLISHED = [
    # examples from each dialect's source, changed to the name and arguments of the test's tool
    (
        "qwen3_coder",
        Meaning.of(calls=(WEATHER,)),
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call><|im_end|>",
    ),
    (
        "glm45",
        Meaning.of("On it.", reasoning="Hm.", calls=(WEATHER,)),
        "\n<think>Hm.</think>\nOn it.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
        "<|observation|>",
    ),
    (
        "kimi_k2",
        Meaning.of(reasoning="Hm.", calls=(WEATHER, TIME)),
        "<think>Hm.</think><|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris", "days": 3}<|tool_call_end|><|tool_call_begin|>'
        "functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
    ),
    (
        "kimi_k3",
        Meaning.of(calls=(WEATHER,)),
        "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="get_weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
    ),
    (
        "deepseek_v31",
        Meaning.of("On it.", reasoning="Hm.", calls=(WEATHER, TIME)),
        "Hm.</think>On it.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris", "days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    (
        "deepseek_v32",
        Meaning.of(reasoning="Hm.", calls=(WEATHER,)),
        'Hm.</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls><｜end▁of▁sentence｜>",
    ),
    (
        "minimax_m2",
        Meaning.of("On it.", reasoning="Hm.", calls=(WEATHER,)),
        'Hm.\n</think>\n\nOn it.\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n'
        "</minimax:tool_call>[e~[",
    ),
    (
        "gemma4",
        Meaning.of(reasoning="Hm.", calls=(WEATHER, TIME)),
        '<|channel>thought\nHm.<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:get_time{}<tool_call|><|tool_response>",
    ),
    (
        "lfm2",
        Meaning.of(calls=(WEATHER, TIME)),
        '<|tool_call_start|>[get_weather(city="Paris", days=3), get_time()]<|tool_call_end|><|im_end|>',
    ),
    (
        "gigachat3",
        Meaning.of("On it.", calls=(WEATHER,)),
        'On it.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris", "days": 3}}</s>',
    ),
    (
        "apertus",
        Meaning.of("On it.", calls=(WEATHER, TIME)),
        'On it.<|tools_prefix|>[{"get_weather": {"city": "Paris", "days": 3}}, {"get_time": {}}]'
        "<|tools_suffix|><|assistant_end|>",
    ),
    (
        "muse_glimmer",
        Meaning.of("On it.", reasoning="Hm.", calls=(WEATHER,)),
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>On it.<|eom|><|start|>assistant"
        ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
        '<atem:parameter name="city">Paris</atem:parameter>\n<atem:parameter name="days">3</atem:parameter>\n'
        "</atem:invoke>\n</atem:function_calls><|eot|>",
    ),
    (
        "k2_horizon",
        Meaning.of(reasoning="Hm.", calls=(ToolCall("get_weather", {"city": "Paris"}),)),
        "Hm.</ifm|think><ifm|tool_calls>\n<ifm|tool_call>get_weather\n<ifm|arg_key>city</ifm|arg_key>\n"
        "<ifm|arg_value>Paris</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls><|ifm|im_end|>",
    ),
    (
        "mistral",
        Meaning.of("On it.", reasoning="Hm.", calls=(WEATHER, TIME)),
        '[THINK]Hm.[/THINK]On it.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}'
        "[TOOL_CALLS]get_time[ARGS]{}</s>",
    ),
    (
        "minimax_m3",
        Meaning.of(calls=(ToolCall("f", {"o": {"k": [1, "x"]}}),)),
        "</mm:think>]<]minimax[>[<tool_call>\n"
        ']<]minimax[>[<invoke name="f">]<]minimax[>[<o>]<]minimax[>[<k>]<]minimax[>[<item>1'
        "]<]minimax[>[</item>]<]minimax[>[<item>x]<]minimax[>[</item>]<]minimax[>[</k>]<]minimax[>[</o>]<]minimax[>[</invoke>\n"
        "]<]minimax[>[</tool_call>[e~[",
    ),
]


@pytest.mark.parametrize(("dialect", "meaning", "raw"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_examples(dialect: str, meaning: Meaning, raw: str) -> None:
    assert render(dialect, meaning) == raw


@settings(max_examples=300, deadline=None)
@given(form=st.sampled_from(list(load_forms().values())), text=PLAIN, name=KEYS, arguments=ARGUMENTS)
def test_nothing_of_a_turn_is_lost(form: Form, text: str, name: str, arguments: dict[str, Any]) -> None:
    assert text in form.render(Meaning.of(text))
    written = form.render(Meaning.of(calls=(ToolCall(name, arguments),)))
    assert name in written
    for key in arguments:
        assert key in written
    assert written.endswith(form.frame.end_after_calls or form.frame.end)
    if form.reasoning:
        assert text in form.render(Meaning.of("Hello.", reasoning=text))


@by_name
def test_a_turn_cannot_contain_its_end(form: Form) -> None:
    for token in form.frame.tokens:
        if token == token.strip():  # JSON would escape a newline within the token
            with pytest.raises(DialectError, match="as a marker"):
                form.render(Meaning.of(calls=(ToolCall("f", {"s": token}),)))
        with pytest.raises(DialectError, match="as a marker"):
            form.render(Meaning.of(f"a {token} b"))


@by_name
def test_markers_are_refused_in_text_and_reasoning(form: Form) -> None:
    if form.calls.marker:
        with pytest.raises(DialectError, match="as a marker"):
            form.render(Meaning.of(f"a {form.calls.marker} b"))
    if form.reasoning and form.reasoning.close:
        with pytest.raises(DialectError, match="as a marker"):
            form.render(Meaning.of("b", reasoning=f"a {form.reasoning.close} b"))


@by_name
def test_text_is_written_only_where_the_format_allows_it(form: Form) -> None:
    before, after = Meaning.of("Text.", calls=(WEATHER,)), Meaning((WEATHER, Text("Text.")))
    allowed = {
        "alone": (False, False),
        "before": (True, form.join is not None),
        "around": (True, True),
    }
    for meaning, fine in zip((before, after), allowed[form.calls.text], strict=True):
        if fine:
            assert "Text." in form.render(meaning)
        else:
            with pytest.raises(DialectError, match=form.name):
                form.render(meaning)


@by_name
def test_reasoning_is_written_only_if_the_format_has_it(form: Form) -> None:
    if form.reasoning is None:
        with pytest.raises(DialectError, match="has no reasoning"):
            form.render(Meaning.of("Hello.", reasoning="Hm."))
    elif form.reasoning.always:
        assert form.render(Meaning.of("Hello.")) == form.render(Meaning.of("Hello.", reasoning=""))
    else:
        assert form.reasoning.open.strip() not in form.render(Meaning.of("Hello."))


@given(arguments=ARGUMENTS)
def test_python_calls_read_back_as_python(arguments: dict[str, Any]) -> None:
    written = render("pythonic", Meaning.of(calls=(ToolCall("f", arguments), TIME))).removesuffix(
        "<|eot_id|>"
    )
    first, second = ast.parse(written, mode="eval").body.elts  # type: ignore[attr-defined]
    assert {word.arg: ast.literal_eval(word.value) for word in first.keywords} == arguments
    assert (first.func.id, second.func.id, second.keywords) == ("f", "get_time", [])


@given(arguments=ARGUMENTS)
def test_elements_read_back_with_the_types_of_the_schema(arguments: dict[str, Any]) -> None:
    written = render("qwen3_coder", Meaning.of(calls=(ToolCall("f", arguments),)))
    elements = re.findall(r"<parameter=(.*?)>\n(.*?)\n</parameter>\n", written, re.DOTALL)
    read = {key: text if isinstance(arguments[key], str) else json.loads(text) for key, text in elements}
    assert read == arguments


@pytest.mark.parametrize(
    ("dialect", "call", "message"),
    [
        ("qwen3_coder", ToolCall("f", {"s": "a </parameter> b"}), "reads </parameter> as a marker"),
        ("qwen3_coder", ToolCall("f", {"a>b": "x"}), "reads > as a marker"),
        ("qwen3_coder", ToolCall("f", '{"s": '), "does not write arguments as JSON"),
        ("qwen3_coder", ToolCall("a b", {}), "cannot write 'a b' as a bare name"),
        ("glm45", ToolCall("f", {"s": "</arg_value>"}), "reads </arg_value> as a marker"),
        ("pythonic", ToolCall("f", {"a-b": 1}), "cannot write 'a-b' as a keyword argument"),
        ("pythonic", ToolCall("f", {"class": 1}), "cannot write 'class' as a keyword argument"),
        ("pythonic", ToolCall("f", {"aª": 1}), "cannot write 'aª' as a keyword argument"),
        ("gemma4", ToolCall("f", {"s": '<|"|>'}), r"reads <\|\"\|> as a marker"),
        ("gemma4", ToolCall("f", {"a b": 1}), "cannot write 'a b' as a bare key"),
        ("minimax_m3", ToolCall("f", {"1": "x"}), "cannot write '1' as the name of an element"),
        ("minicpm5", ToolCall("f", {"s": "<a> ]]>"}), r"reads \]\]> as a marker"),
        ("kimi_k3", ToolCall("f", {'a"b': 1}), 'reads " as a marker'),
    ],
)
def test_arguments_that_a_notation_cannot_write(dialect: str, call: ToolCall, message: str) -> None:
    with pytest.raises(DialectError, match=message):
        render(dialect, Meaning.of(calls=(call,)))


def test_special_characters_of_xml_go_into_cdata() -> None:
    written = render("minicpm5", Meaning.of(calls=(ToolCall("f", {"s": "a < b", "t": "c"}),)))
    assert '<param name="s"><![CDATA[a < b]]></param><param name="t">c</param>' in written


def test_json_keeps_malformed_arguments_and_markers_in_strings() -> None:
    assert '{"s": ' in render("kimi_k2", Meaning.of(calls=(ToolCall("f", '{"s": '),)))
    assert "a </tool_call> b" in render(
        "longcat", Meaning.of(calls=(ToolCall("f", {"s": "a </tool_call> b"}),))
    )


def test_separate_messages_keep_any_order() -> None:
    parts = (Text("One."), Reasoning("Hm."), WEATHER, Text("Two."), TIME)
    for dialect in ("inkling", "muse_glimmer"):
        written = render(dialect, Meaning(parts))
        places = [written.index(text) for text in ("One.", "Hm.", "Paris", "Two.", "get_time")]
        assert places == sorted(places)


def test_render_anyway_ignores_the_order() -> None:
    form = load_forms()["llama_json"]
    meaning = Meaning.of("Hi.", calls=(TIME, TIME))
    with pytest.raises(DialectError, match="1 call per turn"):
        form.render(meaning)
    call = '{"name": "get_time", "parameters": {}}'
    assert form.render_anyway(meaning) == f"Hi.\n{call}; {call}<|eot_id|>"
    with pytest.raises(DialectError, match="no reasoning"):
        form.render_anyway(Meaning.of("Hi.", reasoning="Hm."))


def test_under_a_grammar_no_blanks_follow_the_reasoning() -> None:
    meaning = Meaning.of("Hello.", reasoning="Hm.")
    assert render("qwen3", meaning, constrained=True) == "<think>\nHm.\n</think>Hello.<|im_end|>"
    assert render("qwen3", meaning) == "<think>\nHm.\n</think>\n\nHello.<|im_end|>"


def test_forced_calls_follow_the_reasoning() -> None:
    form = load_forms()["qwen3"]
    meaning = Meaning.of(reasoning="Hm.", calls=(ToolCall("get_time", {}), ToolCall("get_time", {})))
    texts = form.render_forced(meaning, named=False)
    assert len(texts) == len(form.render_forced(Meaning.of(calls=(ToolCall("f", {}),)), named=True))
    reasoning = "<think>\nHm.\n</think>"
    call = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    assert texts[0] == f"{reasoning}{call}\n{call}<|im_end|>"
    assert f"{reasoning}{call}{call}<|im_end|>" in texts
    in_json = '{"name": "get_time", "parameters": {}}'
    assert f"{reasoning}[{in_json}, {in_json}]<|im_end|>" in texts
