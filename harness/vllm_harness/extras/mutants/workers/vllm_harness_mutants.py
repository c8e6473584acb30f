"""Runs the cases on mutants of one of vLLM's parser files, in a server environment with coverage.py.

Standard input is one JSON object:
- `families`: the families, as for `vllm_harness_parse`;
- `module`: the name of the file's module;
- `mutants`: each has `code`, the whole file, and `statement`, its first and last changed line, or null;
- `most`: the maximum number of cases for a mutant, evenly spread; 0 for all that run its statement.

Each mutant runs in a fork, after the unchanged file. Standard output is one JSON object for each answer: all
answers of the unchanged file, and for each mutant the answers in cases that differ, up to `MOST` cases. The
last line of each mutant is `{"mutant": NUMBER, "error": ...}`; a mutant that hangs has an error.
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
from types import CodeType
from typing import IO, TYPE_CHECKING, Any

sys.path.append(sys.argv[1])  # the folder of vllm_harness_parse
import vllm_harness_parse as parse
from vllm.tokenizers import get_tokenizer

if TYPE_CHECKING:
    from coverage import CoverageData

MOST = 40
MEMORY = 2 << 30
HANG_S = 2
PR_SET_PDEATHSIG = 1
PURGED = ("vllm.parser", "vllm.tool_parsers", "vllm.reasoning")

CasePlace = tuple[int, str]
"""The position of a family in the input, and the name of a case."""
Answers = list[dict[str, Any]]
Known = dict[CasePlace, tuple[Answers, list[int]]]
"""Case -> the answers with the unchanged file, and the lines of the file that the case runs."""


class _Hung(BaseException):
    """A parser did not finish in time. Not an Exception, so that the parser does not catch it."""


class _Mutant(SourceFileLoader):
    """Finds one module, and loads it from changed code instead of its file."""

    def __init__(self, module: str, path: str, code: str) -> None:
        super().__init__(module, path)
        self._code = compile(code, path, "exec")

    def find_spec(self, fullname: str, *_: Any) -> Any:
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def _in_place(module: str, path: str, code: str) -> None:
    """Imports vLLM's parsers again, with changed code for one module."""
    for name in [name for name in sys.modules if name.startswith(PURGED)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Mutant(module, path, code))
    from vllm.parser import ParserManager
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    parse.ParserManager, parse.ToolParserManager = ParserManager, ToolParserManager
    parse.ReasoningParserManager = ReasoningParserManager


def _cases(
    families: list[dict[str, Any]], wanted: Callable[[CasePlace], bool]
) -> Iterator[tuple[CasePlace, Answers]]:
    for number, family in enumerate(families):
        chosen = [case for case in family["cases"] if wanted((number, case["name"]))]
        if chosen:
            parsers = parse._Family(number, family)
            yield from (((number, case["name"]), list(parsers.answers(case))) for case in chosen)


def _forked(run: Callable[[], None]) -> int:
    """Runs a function in a fork that ends with this process; returns the exit status of the fork."""
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


def _original(output: IO[str], document: dict[str, Any], path: str) -> None:
    import coverage

    _in_place(document["module"], path, Path(path).read_text())
    measured = coverage.Coverage(data_file=None, include=[path])
    measured.start()
    measured.switch_context("0")
    results = []
    for place, answers in _cases(document["families"], lambda _: True):
        results.append((place, answers))
        _clear_caches()
        measured.switch_context(str(len(results)))
    measured.stop()
    lines = _by_context(measured.get_data())
    for number, (place, answers) in enumerate(results):
        print(json.dumps([place, answers, lines.get(str(number), [])]), file=output)


def _by_context(data: "CoverageData") -> dict[str, list[int]]:
    """Coverage context -> the lines that ran in that context."""
    ran: dict[str, list[int]] = {}
    for file in data.measured_files():
        for line, names in data.contexts_by_lineno(file).items():
            for name in names:
                ran.setdefault(name, []).append(line)
    return ran


def _clear_caches() -> None:
    """Empties the caches of functions, so that the next case runs their lines again."""
    for name in [name for name in sys.modules if name.startswith(PURGED)]:
        for thing in vars(sys.modules[name]).values():
            if isinstance(thing, _lru_cache_wrapper):
                thing.cache_clear()


def _mutated(output: IO[str], document: dict[str, Any], path: str, number: int, known: Known) -> None:
    mutant, error = document["mutants"][number], None
    try:
        _in_place(document["module"], path, mutant["code"])
        different = 0
        chosen = _spread(
            [place for place in known if _runs(mutant["statement"], known, place)], document["most"]
        )
        for place, answers in _cases(document["families"], chosen.__contains__):
            if answers != known[place][0]:
                for answer in answers:
                    print(json.dumps({"mutant": number, **answer}), file=output)
                different += 1
                if different == MOST:
                    break
    except (Exception, _Hung) as raised:
        error = f"{type(raised).__name__}: {raised}"
    print(json.dumps({"mutant": number, "error": error}), file=output)
    output.flush()


def _hangs(*_: Any) -> None:
    raise _Hung(f"no answer within {HANG_S} s of CPU time")


def _spread(places: list[CasePlace], most: int) -> set[CasePlace]:
    """At most `most` of the cases, evenly spread and starting with the first; all if `most` is 0."""
    count = min(most, len(places)) if most else len(places)
    return {places[position * len(places) // count] for position in range(count)}


def _runs(statement: list[int] | None, known: Known, place: CasePlace) -> bool:
    return statement is None or any(statement[0] <= line <= statement[1] for line in known[place][1])


def main() -> None:
    """Reads the mutants and writes their results; vLLM's own output goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _end_with_parent()
    signal.signal(signal.SIGPROF, _hangs)
    parse.HANG_S = HANG_S
    parse.tokenizer_of = cache(get_tokenizer)
    document = json.load(sys.stdin)
    spec = find_spec(document["module"])
    assert spec is not None
    assert spec.origin is not None
    path = spec.origin
    for family in document["families"]:
        parse.tokenizer_of(family["tokenizer"])
    reading, writing = os.pipe()
    known: Known = {}
    with os.fdopen(reading) as lines, os.fdopen(writing, "w") as own, output:
        if not os.fork():
            _end_with_parent()
            lines.close()
            _original(own, document, path)
            own.flush()
            os._exit(0)
        own.close()
        for line in lines:
            (position, case), answers, run = json.loads(line)
            known[position, case] = answers, run
            for answer in answers:
                print(json.dumps({"mutant": None, **answer}), file=output)
        if os.wait()[1]:
            sys.exit(f"the cases do not run on the unchanged {document['module']}")
        output.flush()
        for number in range(len(document["mutants"])):
            status = _forked(partial(_mutated, output, document, path, number, known))
            if status:
                print(json.dumps({"mutant": number, "error": f"ended with status {status}"}), file=output)
                output.flush()


if __name__ == "__main__":
    main()
