"""A defect's reproduction as one Python file that needs vLLM alone, and sends requests to its server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness.configuration.model_entries import Frontend, ModelEntry
from vllm_harness.defects.entry import Defect, Step
from vllm_harness.defects.repro.parser_cases import ServedCase
from vllm_harness.defects.repro.run import entry_served
from vllm_harness.defects.repro.template import PLUGIN, STANDALONE, filled, model_of
from vllm_harness.defects.repro.verdict import Reproduction
from vllm_harness.regression.cases.case import Run
from vllm_harness.regression.cases.delivery import Delivery
from vllm_harness.regression.engines.exchanges import body_of, path_of
from vllm_harness.regression.engines.over_http import server_args
from vllm_harness.scripted.book import Plain, Raw
from vllm_harness.scripted.book_file import take_of
from vllm_harness.scripted.dialects import load_forms, render
from vllm_harness.scripted.families import entry_of
from vllm_harness.scripted.meaning import Meaning
from vllm_harness.scripted.standin import SERVER_ENV, stand_in_args
from vllm_harness.scripted.synthetic import stops_of
from vllm_harness.server.launch import FRONTEND_ENV

HOW = """\
It starts `vllm serve` with a model of two layers and made-up weights, which a logits processor of
vLLM has say what is needed, sends the requests, and prints the answers."""
CHAT_TEMPLATE = "--chat-template"
FOLDER = "{folder}"
WANTED_ENV = {"VLLM_ENABLE_RESPONSES_API_STORE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
"""What the harness sets on each server, and some defects need."""
HARMONY_STOPS = ("<|return|>", "<|call|>")
Pieces = list[str | int | list[Run]]
"""What the model says, in pieces that are tokenized each by itself: texts, token ids, texts as runs."""


@dataclass(frozen=True)
class StandAlone:
    """What a file needs to reproduce a defect.

    Attributes:
        flags: of `vllm serve`, after the model; `{folder}` is the folder of the files.
        env: variables of the server.
        files: to write, by path: JSON or text. The model is the folder `model`.
        tokenizer: hub id; empty where it is among the files.
        steps: the requests, each with `say`: for each generation its pieces.
    """

    flags: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, Any]
    tokenizer: str
    steps: Sequence[Mapping[str, Any]]


def stand_alone(defect: Defect, served: ServedCase | None, shown: Reproduction) -> StandAlone:
    """What reproduces a defect without the harness.

    Args:
        defect: with steps, or with a case.
        served: its case, where it has no steps.
        shown: the reproduction, which says in which case and delivery it showed.
    """
    if defect.repro:
        entry = entry_served(defect.repro)
        plan = defect.repro
        steps = [_step(step, entry) for step in plan.steps]
        return served_alone(entry, plan.frontend, plan.args, plan.env, steps)
    assert served is not None
    entry = entry_of(served.family)
    delivery = Delivery.parse(shown.delivery)
    steps = list(_case_steps(served, shown, delivery, entry))
    return served_alone(entry, served.selection.frontend, server_args(delivery), {}, steps)


def script_of(defect: Defect, made: StandAlone) -> str:
    """The file's text."""
    constants = {
        "FLAGS": list(made.flags),
        "ENV": dict(made.env),
        "FILES": dict(made.files),
        "STEPS": list(made.steps),
        "LOGITS_PROCESSOR": (STANDALONE / "says.py").read_text(),
    }
    return filled(STANDALONE / "reproduce.py", defect, HOW, constants, made.tokenizer)


def served_alone(
    entry: ModelEntry,
    frontend: Frontend,
    args: Iterable[str],
    env: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> StandAlone:
    """What serves an entry's stand-in, with further flags and variables, and is asked these steps."""
    assert entry.stand_in is not None
    own = entry.flags("scripted", "cpu", frontend)
    files, tokenizer = model_of(entry)
    files["model/generation_config.json"] = entry.stand_in.generation_config
    flags = [*own.args, *stand_in_args(entry), "--served-model-name", "model"]
    flags += ["--logits-processors", "reproduce_says:Says", *args]
    for index, flag in enumerate(flags):
        if flag == CHAT_TEMPLATE and Path(flags[index + 1]).is_file():
            files["chat_template.jinja"] = Path(flags[index + 1]).read_text()
            flags[index + 1] = f"{FOLDER}/chat_template.jinja"
        if flag == "--tool-parser-plugin":
            files[PLUGIN] = Path(flags[index + 1]).read_text()
            flags[index + 1] = f"{FOLDER}/{PLUGIN}"
    variables = {**WANTED_ENV, **SERVER_ENV, **own.env, **FRONTEND_ENV[frontend], **env}
    return StandAlone(tuple(flags), variables, files, tokenizer, steps)


def _step(step: Step, entry: ModelEntry) -> dict[str, Any]:
    plain = step.model_dump(exclude_defaults=True, exclude={"say"})
    says = [_pieces(take_of(each), entry) for each in step.say]
    return {"method": step.method, **plain, "say": says}


def _case_steps(
    served: ServedCase, shown: Reproduction, delivery: Delivery, entry: ModelEntry
) -> Iterable[dict[str, Any]]:
    case = next(case for case in served.cases if case.name == shown.case)
    accepted = {str(answer["delivery"]): answer.get("alternative") for answer in shown.answers}
    first = case.input.deliveries[0]
    for each in dict.fromkeys((first, delivery) if case.expected.meaning is None else (delivery,)):
        body = {**body_of(case.input, each, "Go on."), **served.family.request}
        text = accepted.get(each.code) or case.input.text
        pieces: Pieces = list(case.input.pieces) if case.input.spelled_spans else [text]
        yield {"method": "POST", "path": path_of(each), "body": body, "say": [_with_stop(pieces, entry)]}


def _pieces(say: Plain, entry: ModelEntry) -> Pieces:
    if isinstance(say, Raw):
        return _with_stop([say.text], entry)
    if isinstance(say, str | Meaning):
        meaning = say if isinstance(say, Meaning) else Meaning.of(say)
        assert entry.dialect is not None
        return _with_stop([render(entry.dialect, meaning)], entry)
    return list(say)


def _with_stop(pieces: Pieces, entry: ModelEntry) -> Pieces:
    """The pieces up to a token that ends the turn."""
    assert entry.stand_in is not None
    form = load_forms().get(entry.dialect or "")
    stops = (entry.stand_in.stop, *(stops_of(form) if form else HARMONY_STOPS))
    ends = pieces and isinstance(pieces[-1], str) and pieces[-1].endswith(stops)
    return pieces if ends else [*pieces, entry.stand_in.stop]
