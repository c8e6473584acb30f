"""Drives mutants of one of vLLM's files over given texts. Run by a server's interpreter.

Standard input has one JSON object: `families`, as for `vllm_harness_parse`, `module`, the name of the file's
module, and `mutants`, what stands in its place, one after another. Each runs in a fork, the file itself
first. Standard output gets one JSON object a result: all of the file's own, and of each mutant
those of the cases that came out otherwise, up to `MOST` cases; then `{"mutant": NUMBER, "error": ...}`.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import IO, Any

import vllm_harness_parse as parse
from vllm.tokenizers import get_tokenizer

MOST = 4
MEMORY = 2 << 30
HANG_S = 2
PR_SET_PDEATHSIG = 1
PURGED = ("vllm.parser", "vllm.tool_parsers", "vllm.reasoning")

Case = tuple[int, str]
Answers = list[dict[str, Any]]


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
    from vllm.tool_parsers import ToolParserManager

    parse.ParserManager, parse.ToolParserManager = ParserManager, ToolParserManager


def _cases(jobs: list[dict[str, Any]]) -> Iterator[tuple[Case, Answers]]:
    for number, job in enumerate(jobs):
        results = parse._Family(number, job).results()
        for case, answers in groupby(results, key=lambda one: str(one["case"])):
            yield (number, case), list(answers)


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


def _original(answer: IO[str], asked: dict[str, Any], path: str) -> None:
    _in_place(asked["module"], path, Path(path).read_text())
    for _, answers in _cases(asked["families"]):
        for one in answers:
            print(json.dumps({"mutant": None, **one}), file=answer)
    answer.flush()


def _mutated(
    answer: IO[str], asked: dict[str, Any], path: str, number: int, known: dict[Case, Answers]
) -> None:
    error = None
    try:
        _in_place(asked["module"], path, asked["mutants"][number])
        different = 0
        for place, answers in _cases(asked["families"]):
            if answers != known.get(place):
                for one in answers:
                    print(json.dumps({"mutant": number, **one}), file=answer)
                different += 1
                if different == MOST:
                    break
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps({"mutant": number, "error": error}), file=answer)
    answer.flush()


def main() -> None:
    """Reads the mutants, writes their results; whatever vLLM prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _end_with_parent()
    signal.signal(signal.SIGALRM, parse._hangs)
    parse.HANG_S = HANG_S
    parse.get_tokenizer = cache(get_tokenizer)
    asked = json.load(sys.stdin)
    spec = find_spec(asked["module"])
    assert spec is not None
    assert spec.origin is not None
    path = spec.origin
    for job in asked["families"]:
        parse.get_tokenizer(job["tokenizer"])
    reading, writing = os.pipe()
    known: dict[Case, Answers] = {}
    with os.fdopen(reading) as lines, os.fdopen(writing, "w") as own, answer:
        if not os.fork():
            lines.close()
            _original(own, asked, path)
            own.flush()
            os._exit(0)
        own.close()
        for line in lines:
            one = json.loads(line)
            del one["mutant"]
            known.setdefault((one["job"], str(one["case"])), []).append(one)
            answer.write(line)
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
