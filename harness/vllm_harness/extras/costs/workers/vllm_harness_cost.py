"""Measures the cost of vLLM's parsers for growing answers. Run by a server's interpreter.

Standard input contains one JSON object with `families`, as for `vllm_harness_parse`, whose cases list their
lengths in `grown`, and `deadline_s`, the CPU time for one case in one delivery unless the case sets another.
The worker prints one JSON object for each case and delivery, with its cost curve.
"""

import gc
import json
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from time import thread_time
from typing import Any

sys.path.append(sys.argv[1])  # the folder of the module that is imported next
import vllm_harness_parse as parse

FEWEST = 4
"""The number of lengths that are needed to show growth; with fewer, only the hard limit ends a curve."""
HARD_LIMIT = 4
"""The maximum CPU time for one length, as a multiple of `deadline_s`, whatever deadline the case sets.

A curve that is ended before it has enough lengths counts as steep.
"""
REPEATED_S = 0.05
"""A shorter measurement is repeated, and the shortest counts."""
REPEATS = 2
MEMORY_S = 0.05
"""A longer run is not repeated to measure its memory, since measuring makes a run several times slower."""
LONG_ENOUGH = 16384
"""Above this size, a curve ends if the time grew by a factor over `STEEP` at each of the last two lengths."""
STEEP = 3.0

Step = Callable[[], object]


class _Late(BaseException):
    """The deadline of a case has passed. Not an Exception, so that no parser catches it."""


class _Answer:
    """An answer at one length; each run makes new parsers."""

    def __init__(self, parsers: Any, case: dict[str, Any], grown: dict[str, Any], streamed: bool) -> None:
        text = "".join(piece * count for piece, count in grown["runs"])
        self._case = {**case, "pieces": [text], "tools": case["tools"][: grown["tools"]]}
        self._parsers = parsers
        self._streamed = streamed
        self._prompt = parsers._prompt(self._case)
        (self._output,) = parsers._outputs(self._case)
        self._texts: dict[Any, list[str]] = {}
        self.size = grown["tools"] or len(self._output.ids)

    def steps(self) -> Iterator[Step]:
        """The steps that a server's event loop would run to parse the answer."""
        made: list[Any] = []
        yield lambda: made.extend(self._parsers._new(self._case, stream=self._streamed))
        parser, request = made
        texts, ids = self._decoded(request), self._output.ids
        if not self._streamed:
            yield partial(_whole, parser, request, "".join(texts), ids, self._prompt)
            return
        for number, (text, token) in enumerate(zip(texts, ids, strict=True), start=1):
            yield partial(
                parser.parse_delta,
                delta_text=text,
                delta_token_ids=[token],
                request=request,
                prompt_token_ids=self._prompt,
                finished=number == len(ids),
            )

    def _decoded(self, request: Any) -> list[str]:
        """The text of each token, decoded before the parsers run, as in a server."""
        skipped = request.skip_special_tokens
        if skipped not in self._texts:
            self._texts[skipped] = self._output.texts(request)
        return self._texts[skipped]


def _whole(parser: Any, request: Any, text: str, ids: list[int], prompt: list[int]) -> None:
    if hasattr(parser, "set_prompt_token_ids"):
        parser.set_prompt_token_ids(prompt)
    parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
    if hasattr(parser, "count_reasoning_tokens"):
        parser.count_reasoning_tokens(ids)


def _run(steps: Iterator[Step]) -> tuple[float, float]:
    """Runs the steps; returns their total CPU time and that of the longest step."""
    total = longest = 0.0
    for step in steps:
        started = thread_time()
        step()
        seconds = thread_time() - started
        total += seconds
        longest = max(longest, seconds)
    return total, longest


def _peak(steps: Iterator[Step]) -> int:
    """Runs the steps; returns the peak of the memory that they allocate, in bytes."""
    tracemalloc.start()
    try:
        _run(steps)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _point(answer: _Answer) -> dict[str, Any]:
    runs = [_run(answer.steps())]
    while len(runs) < REPEATS and runs[0][0] < REPEATED_S:
        runs.append(_run(answer.steps()))
    total, longest = (min(figures) for figures in zip(*runs, strict=True))
    peak = _peak(answer.steps()) if total < MEMORY_S else None
    return {"size": answer.size, "cpu_s": total, "longest_s": longest, "peak_bytes": peak}


def _curve(
    parsers: Any, case: dict[str, Any], streamed: bool, deadline_s: float, limit_s: float
) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for grown in case["grown"]:
        answer = _Answer(parsers, case, grown, streamed)
        gc.collect()
        gc.disable()
        signal.setitimer(signal.ITIMER_PROF, limit_s, deadline_s)
        try:
            points.append(_point(answer))
        except _Late:
            return {"points": points, "stopped_at": answer.size}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            gc.enable()
        if _is_enough(points, deadline_s):
            break
    return {"points": points, "stopped_at": None}


def _is_enough(points: list[dict[str, Any]], deadline_s: float) -> bool:
    """Whether the next length would end after the deadline, or would show nothing new."""
    times = [point["cpu_s"] for point in points]
    if len(times) < FEWEST:
        return False
    if points[-1]["size"] > LONG_ENOUGH and all(b > STEEP * a for a, b in pairwise(times[-3:])):
        return True
    return bool(sum(times) + 2 * times[-1] > deadline_s)


def _answers(number: int, family: dict[str, Any], deadline_s: float) -> Iterator[dict[str, Any]]:
    place = {"family": family["name"], "case_set": number}
    try:
        parsers = parse._Family(number, family)
    except Exception as error:
        yield {**place, "error": parse._error(error)}
        return
    for case in family["cases"]:
        for delivery in case["deliveries"]:
            answer = {**place, "case": case["name"], "delivery": delivery["code"]}
            streamed, most_s = delivery["shape"] != "whole", case["cpu_s"] or deadline_s
            try:
                yield {**answer, "curve": _curve(parsers, case, streamed, most_s, HARD_LIMIT * deadline_s)}
            except Exception as error:
                yield {**answer, "error": parse._error(error)}


def _is_late(*_: Any) -> None:
    raise _Late


def main() -> None:
    """Reads the families and writes the curves; the output of vLLM goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, _is_late)
    document = json.load(sys.stdin)
    gc.collect()
    gc.freeze()  # so that the collections between the lengths skip what vLLM has imported
    with output:
        for number, family in enumerate(document["families"]):
            for answer in _answers(number, family, document["deadline_s"]):
                print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    main()
