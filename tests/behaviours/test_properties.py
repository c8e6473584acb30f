"""Random conversations with random request options, and checks that must pass for all of them.

hypothesis shrinks a failure to the smallest story, which is stored in a file in the run's folder. Once it has
been judged, move it to `cases/properties`, with the known defect that it shows, if any; every run repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.apis import APIS, Api
from tests.behaviours.stories import KEPT, KeptStory, Story, kept_stories
from tests.behaviours.story_checks import StoryChecks
from tests.behaviours.story_strategy import stories
from tests.harmony.conversation import harmony, prompts_of
from tests.lost_calls import checks_for
from tests.prompts import Prompts
from tests.standard.conversation import prompt_ids
from vllm_harness import known_defect
from vllm_harness._files.plain_yaml import plain_yaml
from vllm_harness._server.records import run_folder
from vllm_harness._server.remote import RemoteServer

__all__ = ["harmony"]
pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3", "gpt-oss")]

FEW, MANY = 20, 100
SETTLED = 0
"""The fixed seed of a short run, which looks for regressions; a whole run looks for new failures."""
SHRINKING_S = 120


@pytest.fixture
def checks(vllm_server: RemoteServer, request: pytest.FixtureRequest) -> StoryChecks:
    """The story checks of the target's server."""
    if vllm_server.entry.harmony:
        rendered: Any = partial(prompts_of, request.getfixturevalue("harmony"))
    else:
        rendered = partial(prompt_ids, vllm_server)
    return StoryChecks(Prompts(vllm_server, rendered), checks_for(request, vllm_server))


@pytest.mark.vllm_long
@pytest.mark.timeout(1800)
@pytest.mark.covers("VR-003", "VC-022", "VR-061")
@pytest.mark.parametrize("api", [pytest.param(api, marks=pytest.mark.vllm_needs(api)) for api in APIS])
def test_any_story(api: Api, checks: StoryChecks, request: pytest.FixtureRequest) -> None:
    option = request.config.option
    strategy = stories(api, checks.prompts.server.entry)
    smallest = Smallest(checks.tell)

    @seed(option.seed if option.vllm_slow else SETTLED)
    @settings(
        max_examples=MANY if option.vllm_slow else FEW,
        derandomize=False,  # the seed determines the examples
        database=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def every(story: Story) -> None:
        smallest.tell(story)

    try:
        every()
    except BaseException as error:
        if smallest.story is not None:
            error.add_note(keep(smallest.story, checks.prompts.server.entry.name))
        raise


class Smallest:
    """Runs stories, and remembers the last one that failed: the smallest, once hypothesis has shrunk it.

    A story takes a second on a busy machine, so shrinking is limited in time.
    """

    def __init__(self, tell: Callable[[Story], None]) -> None:
        self.story: Story | None = None
        self._tell = tell
        self._failed: set[str] = set()
        self._until = 0.0

    def tell(self, story: Story) -> None:
        name = story.model_dump_json()
        if self._failed and time.monotonic() > self._until and name not in self._failed:
            return
        try:
            self._tell(story)
        except Exception:
            self._until = self._until or time.monotonic() + SHRINKING_S
            self._failed.add(name)
            self.story = story
            raise


def keep(story: Story, model: str) -> str:
    """Writes a story into the run's folder, and returns a note that says what to do with it."""
    path = run_folder() / f"story-{story.api}-{model}.yaml"
    data = story.model_dump(mode="json", exclude_defaults=True)
    path.write_text(
        plain_yaml({"title": "", "models": [model], "story": data}, allow_unicode=True, width=110)
    )
    return f"kept as {path}: once it is judged, it belongs into {KEPT}"


def _parameter(kept: KeptStory) -> Any:
    marks = [pytest.mark.vllm_model(*kept.models), pytest.mark.vllm_needs(kept.story.api)]
    return pytest.param(kept, id=kept.id, marks=[*marks, *([known_defect(kept.known)] if kept.known else [])])


@pytest.mark.covers("VR-003", "VC-022", "VR-061")
@pytest.mark.parametrize("kept", [_parameter(each) for each in kept_stories()])
def test_kept_story(kept: KeptStory, checks: StoryChecks) -> None:
    replace(checks, without_known=False).tell(kept.story)
