"""Makes a Python file that reproduces a defect and needs only vLLM, from a template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any, Literal

from vllm_harness._configuration.model_entries import Frontend, ModelEntry
from vllm_harness._defects.entry import Defect
from vllm_harness._scripted.book import Plain, Raw
from vllm_harness._scripted.dialects import load_forms, render
from vllm_harness._scripted.meaning import Meaning
from vllm_harness._scripted.standin import SERVER_ENV, TOKENIZER_FILES, stand_in_args
from vllm_harness._scripted.synthetic import stops_of
from vllm_harness._server.launch import FRONTEND_ENV

STANDALONE = Path(__file__).with_name("standalone")
PLUGIN = "tool_parser.py"
"""The file name for a tool parser that is not part of vLLM."""
HOW = """\
It starts `vllm serve` with a model of two layers and dummy weights, uses a logits processor to make the
model generate the necessary text, sends the requests, and prints the answers.

Exit code: 1 if an answer shows the defect, 0 if none does, 3 if that could not be decided."""
CHAT_TEMPLATE = "--chat-template"
FOLDER = "{folder}"
WANTED_ENV = {"VLLM_ENABLE_RESPONSES_API_STORE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
"""Environment variables that the harness sets for each server and that some defects need."""
HARMONY_STOPS = ("<|return|>", "<|call|>")
Pieces = list[str | int | list[tuple[str, int]]]
"""The model's output in separately tokenized pieces: strings, token ids, or strings with repeat counts."""
_FIRST_CONSTANT = re.compile(r"^(?=[A-Z_]+(?:, [A-Z_]+)* = )", re.MULTILINE)


@dataclass(frozen=True)
class ScriptVerdict:
    """How a script judges the answers; by default it does not.

    Attributes:
        right, wrong: JMESPath conditions of a right and of a wrong answer; empty if there are none.
        means: the reasoning, text and calls of a right answer; `the same` for those of the first answer.
    """

    right: str = ""
    wrong: str = ""
    means: Mapping[str, Any] | Literal["the same"] | None = None


@dataclass(frozen=True)
class ServerScript:
    """The values to insert into a script that starts a server and sends requests to it.

    Attributes:
        flags: the flags of `vllm serve` after the model; `{folder}` stands for the folder of the files.
        env: the environment variables of the server.
        files: the files to write, by path, as JSON or text; the model is in the folder `model`.
        tokenizer: the hub id of the tokenizer; empty if the tokenizer is among the files.
        steps: the requests, each with the pieces of every generation under `say`.
        verdict: how the script judges the answers.
        rounds: how often it sends all requests.
    """

    flags: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, Any]
    tokenizer: str
    steps: Sequence[Mapping[str, Any]]
    verdict: ScriptVerdict = ScriptVerdict()
    rounds: int = 1


def script_of(defect: Defect, script: ServerScript) -> str:
    """Makes the text of the script."""
    constants = {
        "FLAGS": list(script.flags),
        "ENV": dict(script.env),
        "FILES": dict(script.files),
        "STEPS": list(script.steps),
        "RIGHT": script.verdict.right,
        "WRONG": script.verdict.wrong,
        "MEANS": script.verdict.means,
        "ROUNDS": script.rounds,
        "LOGITS_PROCESSOR": (STANDALONE / "says.py").read_text(),
    }
    return filled_template(STANDALONE / "reproduce.py", defect, HOW, constants, script.tokenizer)


def server_script(
    entry: ModelEntry,
    frontend: Frontend,
    args: Iterable[str],
    env: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> ServerScript:
    """Makes the values for a script that serves a stand-in, with additional flags and variables."""
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
    return ServerScript(tuple(flags), variables, files, tokenizer, steps)


def script_pieces(say: Plain, entry: ModelEntry) -> Pieces:
    """Converts the content of a generation to pieces."""
    if isinstance(say, Raw):
        return with_stop([say.text], entry)
    if isinstance(say, str | Meaning):
        meaning = say if isinstance(say, Meaning) else Meaning.of(say)
        assert entry.dialect is not None
        return with_stop([render(entry.dialect, meaning)], entry)
    return list(say)


def with_stop(pieces: Pieces, entry: ModelEntry) -> Pieces:
    """Adds a token that ends the turn, unless the pieces end with one."""
    assert entry.stand_in is not None
    form = load_forms().get(entry.dialect or "")
    stops = (entry.stand_in.stop, *(stops_of(form) if form else HARMONY_STOPS))
    ends = pieces and isinstance(pieces[-1], str) and pieces[-1].endswith(stops)
    return pieces if ends else [*pieces, entry.stand_in.stop]


def filled_template(
    template: Path, defect: Defect, how: str, constants: Mapping[str, Any], tokenizer: str
) -> str:
    """Fills a template for a defect.

    Args:
        template: the template file; the values go between its imports and its first constant.
        defect: the entry, whose title is the heading.
        how: sentences that say what the file does.
        constants: the values by name; the expected and actual behaviour are added.
        tokenizer: the hub id of the tokenizer; empty if the tokenizer is among the files.
    """
    imports, rest = _FIRST_CONSTANT.split(template.read_text(), maxsplit=1)
    expected = f"{defect.expected.text} ({defect.expected.source})" if defect.expected else ""
    every = {**constants, "EXPECTED": expected, "ACTUAL": defect.actual}
    values = "\n".join(f"{name} = {_literal(value)}" for name, value in every.items())
    chosen = f'TOKENIZER = os.environ.get("TOKENIZER", {tokenizer!r})  # a hub id, or a folder'
    return "\n".join([_heading(defect, how), f"{imports}{values}", chosen, rest])


def model_of(entry: ModelEntry) -> tuple[dict[str, Any], str]:
    """Lists the files of a stand-in by path, and the hub id of its tokenizer if that is not among them."""
    assert entry.stand_in is not None
    config = {"model/config.json": entry.stand_in.config}
    folder = Path(entry.stand_in.tokenizer)
    if not folder.is_absolute():
        return config, entry.hub.id
    paths = (folder / name for name in TOKENIZER_FILES)
    return config | {f"model/{path.name}": _content(path) for path in paths if path.exists()}, ""


def _content(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else text


def _heading(defect: Defect, how: str) -> str:
    title = defect.title.replace("\\", "\\\\").replace('"""', "'''")
    return (
        f'"""{title}.\n\n'
        "    python reproduce.py      # with a Python that has vLLM; a CPU is enough\n\n"
        f'{how}\n"""\n'
    )


def _literal(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return repr(value) if ('"""' in value and "'''" in value) or "\\" in value else _triple(value)
    return pformat(value, width=110, sort_dicts=False)


def _triple(text: str) -> str:
    quotes = "'''" if '"""' in text else '"""'
    return f"{quotes}\\\n{text}{quotes}"
