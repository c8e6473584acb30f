"""Drives mutants of one of vLLM's files over given texts. Run by a server's interpreter.

Standard input has one JSON object: `families`, as for `vllm_harness_parse`, `module`, the name of the file's
module, and `mutants`, what stands in its place, one after another: `code`, and `statement`, first and last
line of what is changed, or none. Each runs in a fork, the file itself first; a mutant answers only the cases
that run its statement. Standard output gets one JSON object a result: all of the file itself, of each mutant
those of the cases that came out otherwise, up to `MOST`; then `{"mutant": NUMBER, "error": ...}`, where a
mutant that hangs ends with an error.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper, cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, Any

import vllm_harness_parse as parse
from vllm.tokenizers import get_tokenizer

MOST = 40
MEMORY = 2 << 30
HANG_S = 2
PR_SET_PDEATHSIG = 1
PURGED = ("vllm.parser", "vllm.tool_parsers", "vllm.reasoning")

Case = tuple[int, str]
Answers = list[dict[str, Any]]
Known = dict[Case, tuple[Answers, list[int]]]
"""Of each case: what comes of it, and the lines of the file that it runs."""


class _Hung(BaseException):
    """A parser gave no answer in time; nothing that it does may keep this from ending its run."""


class _Mutant(SourceFileLoader):
    """Loads one module, and finds it, from other code than its file's."""

    def __init__(self, module: str, path: str, code: str) -> None:
        super().__init__(module, path)
        self._code = compile(code, path, "exec")

    def find_spec(self, fullname: str, *_: Any) -> Any:
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def _in_place(module: str, path: str, code: str) -> None:
    """Imports vLLM's parsers anew, with other code for one module."""
    for name in [name for name in sys.modules if name.startswith(PURGED)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Mutant(module, path, code))
    from vllm.parser import ParserManager
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    parse.ParserManager, parse.ToolParserManager = ParserManager, ToolParserManager
    parse.ReasoningParserManager = ReasoningParserManager


class _Lines:
    """Notes which lines of a file run."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.run: set[int] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> "_Lines | None":
        if frame.f_code.co_filename != self.path:
            return None
        if event == "line":
            self.run.add(frame.f_lineno)
        return self

    def taken(self) -> list[int]:
        """Those since the last time."""
        taken, self.run = sorted(self.run), set()
        return taken


def _cases(jobs: list[dict[str, Any]], wanted: Callable[[Case], bool]) -> Iterator[tuple[Case, Answers]]:
    for number, job in enumerate(jobs):
        chosen = [case for case in job["cases"] if wanted((number, case["name"]))]
        if chosen:
            family = parse._Family(number, job)
            yield from (((number, case["name"]), list(family.results(case))) for case in chosen)


def _forked(run: Callable[[], None]) -> int:
    """Runs in a process of its own that ends with this one; its exit status."""
    child = os.fork()
    if not child:
        _end_with_parent()
        try:
            most = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (_data() + MEMORY, most))
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _data() -> int:
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(sizes["VmData"].split()[0]) << 10


def _original(told: IO[str], asked: dict[str, Any], path: str) -> None:
    _in_place(asked["module"], path, Path(path).read_text())
    lines = _Lines(path)
    sys.settrace(lines)
    for place, answers in _cases(asked["families"], lambda _: True):
        print(json.dumps([place, answers, lines.taken()]), file=told)
        _forget()


def _forget() -> None:
    """Empties the caches of functions, so that the next case runs their lines again."""
    for name in [name for name in sys.modules if name.startswith(PURGED)]:
        for thing in vars(sys.modules[name]).values():
            if isinstance(thing, _lru_cache_wrapper):
                thing.cache_clear()


def _mutated(answer: IO[str], asked: dict[str, Any], path: str, number: int, known: Known) -> None:
    mutant, error = asked["mutants"][number], None
    try:
        _in_place(asked["module"], path, mutant["code"])
        different = 0
        for place, answers in _cases(asked["families"], partial(_runs, mutant["statement"], known)):
            if answers != known[place][0]:
                for one in answers:
                    print(json.dumps({"mutant": number, **one}), file=answer)
                different += 1
                if different == MOST:
                    break
    except (Exception, _Hung) as raised:
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps({"mutant": number, "error": error}), file=answer)
    answer.flush()


def _hangs(*_: Any) -> None:
    raise _Hung(f"no answer within {HANG_S} s")


def _runs(statement: list[int] | None, known: Known, place: Case) -> bool:
    return statement is None or any(statement[0] <= line <= statement[1] for line in known[place][1])


def main() -> None:
    """Reads the mutants, writes their results; whatever vLLM prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _end_with_parent()
    signal.signal(signal.SIGALRM, _hangs)
    parse.HANG_S = HANG_S
    parse.tokenizer_of = cache(get_tokenizer)
    asked = json.load(sys.stdin)
    spec = find_spec(asked["module"])
    assert spec is not None
    assert spec.origin is not None
    path = spec.origin
    for job in asked["families"]:
        parse.tokenizer_of(job["tokenizer"])
    reading, writing = os.pipe()
    known: Known = {}
    with os.fdopen(reading) as lines, os.fdopen(writing, "w") as own, answer:
        if not os.fork():
            lines.close()
            _original(own, asked, path)
            own.flush()
            os._exit(0)
        own.close()
        for line in lines:
            (job, case), answers, run = json.loads(line)
            known[job, case] = answers, run
            for one in answers:
                print(json.dumps({"mutant": None, **one}), file=answer)
        if os.wait()[1]:
            sys.exit(f"the cases do not run on {asked['module']} as it is")
        answer.flush()
        for number in range(len(asked["mutants"])):
            status = _forked(partial(_mutated, answer, asked, path, number, known))
            if status:
                print(json.dumps({"mutant": number, "error": f"ended with status {status}"}), file=answer)
                answer.flush()


if __name__ == "__main__":
    main()
