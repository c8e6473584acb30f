"""Reads scenario files strictly; errors name the file, the line and the key."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from vllm_harness._errors import UsageError
from vllm_harness._exchange.building import TOOL_CHOICES, ContentPart
from vllm_harness._files.located_yaml import Document, Location, read_yaml
from vllm_harness._files.strict import keys_of
from vllm_harness._scenarios import format as data
from vllm_harness._scenarios.tools import output_for

STORIES = Path(__file__).with_name("stories")
"""The folder of the package's own scenarios."""
_TOOLS: TypeAdapter[dict[str, data.Tool]] = TypeAdapter(dict[data.Name, data.Tool])
MAX_IMAGE = 20 * 2**20
_ADDRESSES = ("http://", "https://", "data:")
Problem = tuple[Location, str]


class ScenarioError(UsageError):
    """A file is not a valid scenario; the message names the file, the line and the key."""


def find_scenario(name: str) -> Path:
    """Finds a scenario by its path, or one of the package's stories by its name.

    Raises:
        ScenarioError: neither exists.
    """
    path = Path(name)
    if path.exists():
        return path
    stories = {story.stem: story for story in stories_of_package()}
    if name in stories:
        return stories[name]
    near = get_close_matches(path.stem, stories, n=3, cutoff=0.4) or sorted(stories)
    raise ScenarioError(f"no file or story is named {name}", hint=f"similar stories: {', '.join(near)}")


def stories_of_package() -> list[Path]:
    """Lists the package's own scenarios by name."""
    return sorted(path for path in STORIES.glob("*.yaml") if not path.stem.endswith("-tools"))


def read_scenario(path: Path) -> data.Scenario:
    """Reads a scenario, including the tools and images that it loads from other files.

    Raises:
        UsageError: names the file, the line and the key of every problem.
    """
    document = read_yaml(path)
    hint = f"begin the file with `scenario: {data.VERSION}`"
    document.check_version("scenario", data.VERSION, ScenarioError, hint)
    scenario = document.validated(data.Scenario, ScenarioError, _keys_at)
    whole = _with_shared_tools(scenario, document)
    if problems := list(_problems(whole)):
        raise ScenarioError("\n".join(document.problem(*problem) for problem in problems))
    return whole.model_copy(update={"turns": tuple(_with_images(whole, document))})


def _with_tool_images(
    tools: dict[str, data.Tool], document: Document, place: Location
) -> dict[str, data.Tool]:
    """Replaces the image files in the outputs of tools with data URLs."""
    changed = {}
    for name, tool in tools.items():
        outputs = [
            _with_output_images(output, document, (*place, name, "outputs", number))
            for number, output in enumerate(tool.outputs)
        ]
        changed[name] = tool.model_copy(update={"outputs": tuple(outputs)})
    return changed


def _with_output_images(output: data.Output, document: Document, place: Location) -> data.Output:
    images = [_image(image, document, (*place, "images", index)) for index, image in enumerate(output.images)]
    return output.model_copy(update={"images": tuple(images)})


def _with_images(scenario: data.Scenario, document: Document) -> Iterator[data.Turn]:
    """Yields the turns with data URLs in place of image files."""
    for number, turn in enumerate(scenario.turns):
        parts = [
            _with_image(part, document, ("turns", number, "user", index))
            for index, part in enumerate(turn.user)
        ]
        yield turn.model_copy(update={"user": tuple(parts)})


def _with_image(part: ContentPart, document: Document, place: Location) -> ContentPart:
    if part.image is None:
        return part
    return part.model_copy(update={"image": _image(part.image, document, (*place, "image"))})


def _image(image: str, document: Document, place: Location) -> str:
    """Returns an address unchanged, and a file as a data URL."""
    if image.startswith(_ADDRESSES):
        return image
    path = document.path.parent / image
    try:
        with path.open("rb") as file:
            content = file.read(MAX_IMAGE + 1)
    except OSError as error:
        raise ScenarioError(document.problem(place, f"{path}: {error.strerror}")) from error
    if len(content) > MAX_IMAGE:
        raise ScenarioError(document.problem(place, f"{path}: more than {MAX_IMAGE} bytes"))
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _with_shared_tools(scenario: data.Scenario, document: Document) -> data.Scenario:
    """Adds the tools from further files. Raises UsageError, which names the file."""
    servers = {
        label: server.model_copy(update={"tools": _all_tools(server, document, ("mcp", label))})
        for label, server in scenario.mcp.items()
    }
    return scenario.model_copy(update={"tools": _all_tools(scenario, document, ()), "mcp": servers})


def _all_tools(
    holder: data.Scenario | data.McpServer, document: Document, place: Location
) -> dict[str, data.Tool]:
    """Merges the tools of a scenario or an MCP server with those in its `tools_file`."""
    own = _with_tool_images(holder.tools, document, (*place, "tools"))
    if holder.tools_file is None:
        return own
    shared = read_yaml(document.path.parent / holder.tools_file)
    tools = shared.validated(_TOOLS, ScenarioError, lambda location: _keys_at(("tools", *location)))
    if twice := sorted(tools.keys() & own.keys()):
        message = f"{shared.path} also has a tool with this name"
        raise ScenarioError(document.problem((*place, "tools", twice[0]), message), hint="remove one of them")
    return {**_with_tool_images(tools, shared, ()), **own}


def _problems(scenario: data.Scenario) -> Iterator[Problem]:
    """Finds contradictions between the parts of a scenario."""
    yield from _tool_problems(scenario)
    seen: set[str] = set()
    cyclic = False
    for number, turn in enumerate(scenario.turns):
        place: Location = ("turns", number)
        if turn.name == data.START:
            yield (
                (*place, "name"),
                f"{data.START!r} is reserved: a turn with `after: {data.START}` begins a conversation",
            )
        if turn.name in seen:
            yield (*place, "name"), f"another turn is also named {turn.name!r}"
        if turn.after not in (None, data.START) and turn.after not in seen:
            cyclic = True
            yield (*place, "after"), _why_not_after(scenario, turn)
        seen.add(turn.name)
        for label in turn.sends:
            if label not in scenario.mcp or scenario.mcp[label].called_by != "server":
                yield (*place, "sends", label), f"the server calls no MCP server named {label!r}"
        if turn.tool_choice not in (None, *TOOL_CHOICES, *scenario.every_tool):
            yield (*place, "tool_choice"), f"no tool is named {turn.tool_choice!r}"
        for index, call in enumerate(turn.expect.calls or ()):
            at: Location = (*place, "expect", "calls", index)
            if call.name not in {*scenario.every_tool, *scenario.built_in}:
                yield (*at, "name"), f"no tool is named {call.name!r}"
            elif call.output and call.name not in scenario.of_server:
                yield (*at, "output"), "only a tool that the server calls can have an expected output"
    if not cyclic:
        yield from _continuation_problems(scenario)


def _why_not_after(scenario: data.Scenario, turn: data.Turn) -> str:
    """Says why a turn cannot continue the turn that it names, which is not above it."""
    assert turn.after is not None
    names = [other.name for other in scenario.turns]
    if turn.after not in names:
        near = get_close_matches(turn.after, [*names, data.START], n=1)
        return f"no turn is named {turn.after!r}" + (f", did you mean {near[0]!r}?" if near else "")
    chain = [turn]
    parent = scenario.parent(turn)
    while parent is not None and parent not in chain:
        chain.append(parent)
        parent = scenario.parent(parent)
    if parent is turn:
        cycle = " -> ".join(member.name for member in (*chain, turn))
        return f"the turns continue one another in a cycle: {cycle}"
    return f"{turn.after!r} is further down; a turn can only continue a turn above it"


def _tool_problems(scenario: data.Scenario) -> Iterator[Problem]:
    seen: set[str] = set()
    places: list[tuple[Location, Collection[str]]] = [((), scenario.tools)]
    places += [(("mcp", label), server.tools) for label, server in scenario.mcp.items()]
    for place, tools in places:
        if place and not tools:
            yield place, "the MCP server has no tools: give tools or tools_file"
        for name in tools:
            if name in TOOL_CHOICES:
                yield (*place, "tools", name), "this name has another meaning in tool_choice"
            if name in seen or name in scenario.built_in:
                yield (*place, "tools", name), f"another tool is also named {name!r}"
            seen.add(name)
    if scenario.built_in and any(server.called_by == "server" for server in scenario.mcp.values()):
        yield ("built_in",), "a server calls either built-in tools or those of MCP servers, not both"


def _continuation_problems(scenario: data.Scenario) -> Iterator[Problem]:
    """Finds contradictions between a turn and the turns that it continues."""
    continued = {parent.name for turn in scenario.turns if (parent := scenario.parent(turn))}
    for number, turn in enumerate(scenario.turns):
        if scenario.parent(turn) is None and not turn.user:
            yield ("turns", number), "a turn that begins a conversation needs a 'user'"
        if turn.name in continued and len(turn.say) == 1:
            for index, call in enumerate(turn.say[0].calls):
                tool = scenario.every_tool.get(call.name)
                if tool and isinstance(call.arguments, dict) and not output_for(tool, call.arguments):
                    place = ("turns", number, "say", 0, "calls", index)
                    yield (
                        place,
                        f"no output of {call.name} matches these arguments, and a later turn needs one",
                    )


def _keys_at(location: Location) -> Collection[str]:
    """Lists the keys of a mapping in a scenario, for suggestions."""
    return keys_of(data.Scenario, location)


def schema() -> dict[str, Any]:
    """Makes the JSON Schema of scenario files, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **data.Scenario.model_json_schema(by_alias=True),
    }
