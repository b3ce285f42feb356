"""Plant single faults in a package, one at a time, and list those that no test notices.

    python -m benchmarks.mutation_testing metrics,engine --count 100 --seed 7      make mutants

A fault is drawn by a seed, uniform over the lines that tests reach (`benchmarks.tests_by_line`).
It runs in a fork of a process that has all libraries loaded; the fork compiles the one file with
the fault and imports the kit again, so a fault in a default or a constant is tried like one in a
function. The tests that reach few lines run first, then all others that reach the line. A test
that notices must pass without the fault. Code that tests run in another process is not tried.
build/mutants.jsonl holds every fault and its outcome; `--keep` adds the counts to
docs/benchmarks.md (`benchmarks.mutation_scores`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.machinery
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from benchmarks.mutation_operators import Fault, plant_fault
from benchmarks.mutation_scores import FaultFigures, read_equivalent_faults, store_figures
from benchmarks.tests_by_line import ROOT, SEED, LineMap, collect_tests, read_text

RESULTS = ROOT / "build/mutants.jsonl"
OPTIONS = [
    *("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not long"),
    *("-p", "no:nbval"),  # builds forty grammars when it is imported
    "--assert=plain",  # pytest's own loader would import the kit, as a plugin, past the fault
    *("-o", "tmp_path_retention_policy=none"),
]
FIRST_TESTS, FIRST_SECONDS = 30, 20.0
"""Limits of the tests that run first: their number and their recorded seconds."""
TABLE_TESTS = (
    "tests/policies/test_defaults.py::test_every_default_is_the_one_of_the_table",
    "tests/metrics/frames/test_column_tables.py::test_each_field_of_a_column",
)
"""Prefixes of the ids of tests that read constants and defaults without naming them."""
COLLECTION = "collection of "
"""What stands before the file where pytest failed to import it."""
MAX_BYTES = 3 << 30
"""Memory limit of a run with a fault."""
START_SECONDS = 60.0
"""Time limit for importing the kit and collecting tests on a busy machine."""
LIST_LIBRARIES_SCRIPT = """
import pkgutil, sys, nbformat, pytest, hypothesis, ctxkit
for found in pkgutil.walk_packages(ctxkit.__path__, "ctxkit."):
    if not found.name.endswith("__main__"):
        try: __import__(found.name)
        except Exception: pass
print(*[name for name in sys.modules if not name.startswith(("ctxkit", "__main__"))])
"""


@dataclass(frozen=True)
class Outcome:
    """The result of the tests on one fault."""

    package: str
    number: int
    file: str
    line: int
    kind: str
    before: str
    after: str
    verdict: str
    """noticed, survived, survived so far (time was up), timed out (counts as noticed), no test, or
    equivalent (listed as such, not run)."""
    by: str
    """The test that noticed."""
    tests: int
    """Tests that reach the line."""
    ran: int
    seconds: float


class _Reporter:
    """A pytest plugin that counts the tests that passed and records the first that failed."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and not report.failed
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = COLLECTION + report.nodeid


def draw_faults(line_map: LineMap, package: str, count: int, seed: int) -> list[tuple[str, Fault]]:
    """Return random faults of a package with their files, the same for the same seed and tree."""
    lines = line_map.list_reached_lines(package)
    if not lines:
        sys.exit(f"No test reaches a line of {package}: record its tests by `make test-map`.")
    rng, faults = random.Random(f"{package} {seed}"), list[tuple[str, Fault]]()
    while len(faults) < count:
        file, line = rng.choice(lines)
        fault = plant_fault(read_text(file), line, rng)
        if fault is not None:
            faults.append((file, fault))
    return faults


def load_libraries() -> None:
    """Import every library that the kit and its tests use, but nothing of the kit itself."""
    command = [sys.executable, "-W", "ignore", "-c", LIST_LIBRARIES_SCRIPT]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in process.stdout.split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    own_modules = [module for module in sys.modules if module.split(".")[0] == "ctxkit"]
    assert not own_modules, f"the kit is loaded before the fault: {own_modules[:3]}"


def install_fault(file: str, source: str) -> None:
    """Let this process import a file of the kit with the fault in it."""
    path, original_get_code = str(ROOT / file), importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, name: str) -> Any:
        return compile(source, path, "exec") if self.path == path else original_get_code(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def run_in_fork(
    tests: list[str], fault: tuple[str, str] | None, seconds: float
) -> tuple[str, str, int]:
    """Run tests in a fork, with or without a fault.

    Returns the verdict, the first test that failed, and the number of tests that passed.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_child(tests, fault, write_end)
    os.close(write_end)
    ready = select.select([read_end], [], [], seconds)[0]
    answer = os.read(read_end, 1 << 16) if ready else b""
    os.close(read_end)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if not ready:
        return "timed out", "", 0
    verdict, failed, passed = json.loads(answer or b'["noticed", "the process ended", 0]')
    return verdict, failed, passed


def _run_child(tests: list[str], fault: tuple[str, str] | None, write_end: int) -> None:
    reporter = _Reporter()
    verdict = "noticed"
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
        if fault:
            install_fault(*fault)
        code = pytest.main([*OPTIONS, *tests], plugins=[reporter])
        verdict = "survived" if code == 0 else "noticed"
    except BaseException as error:
        reporter.failed = reporter.failed or repr(error)[:200]
    finally:
        os.write(write_end, json.dumps([verdict, reporter.failed[:2000], reporter.passed]).encode())
        os._exit(0)


def find_body_lines(file: str, line: int) -> set[int]:
    """Return the lines in the body of the function whose signature has a line; empty if none has.

    A call from outside the kit, by a test alone, uses the default of a parameter, too.
    """
    functions = (
        node
        for node in ast.walk(ast.parse(read_text(file)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        n
        for f in functions
        if f.lineno <= line < f.body[0].lineno
        for n in range(f.body[0].lineno, (f.end_lineno or 0) + 1)
    }


def cut_to_change(before: str, after: str, max_chars: int = 300) -> tuple[str, str]:
    """Cut two long statements to the part around the place at which they begin to differ."""
    pairs = zip(before, after, strict=False)
    change_start = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
    start = max(change_start - max_chars // 2, 0) if max(len(before), len(after)) > max_chars else 0
    return before[start : start + max_chars], after[start : start + max_chars]


class Runner:
    """Runs the tests of a map on faults."""

    def __init__(self, line_map: LineMap, seconds: float) -> None:
        self.line_map, self.reach_counts, self.seconds = line_map, line_map.reach_counts, seconds
        self.known_passes: dict[str, bool] = {}
        self.equivalent = read_equivalent_faults()

    def try_fault(self, package: str, number: int, file: str, fault: Fault) -> Outcome:
        """Run the tests that reach a fault until one notices it."""
        start = time.time()
        before, after = cut_to_change(fault.before, fault.after)
        is_equivalent = (file, before, after) in self.equivalent
        tests = [] if is_equivalent else self.find_tests(file, fault)
        first_tests = self._first_tests(tests)
        verdict, failed_test, ran = "equivalent" if is_equivalent else "no test", "", 0
        if tests:
            verdict, failed_test, ran = self._run(file, fault, first_tests)
        if verdict in {"survived", "no test"} and len(tests) > len(first_tests):
            rest = [t for t in tests if t not in set(first_tests)]
            rest_verdict, failed_test, rest_ran = self._run(file, fault, rest, self.seconds)
            if rest_verdict != "no test":  # else the first tests decide
                verdict, ran = rest_verdict, ran + rest_ran
        return Outcome(
            package, number, file, fault.line, fault.kind,
            before, after, verdict, failed_test, len(tests), ran, round(time.time() - start, 1),
        )  # fmt: skip

    def find_tests(self, file: str, fault: Fault) -> list[str]:
        """Return the tests that reach a fault: tables, then those that reach few lines."""
        lines = {file: {fault.line}}
        tests = self.line_map.find_tests_of_lines(lines) if fault.in_function else set()
        if not tests:  # it runs on import
            tests = self.line_map.find_tests_of_names(fault.names, file)
            tests |= self.line_map.find_tests_of_lines({file: find_body_lines(file, fault.line)})
            tests |= {t for t in self.line_map.seconds if t.startswith(TABLE_TESTS)}
        return sorted(tests, key=lambda t: (not t.startswith(TABLE_TESTS), self.reach_counts[t], t))

    def _first_tests(self, tests: list[str]) -> list[str]:
        selected, seconds_left = list[str](), FIRST_SECONDS
        for test in tests[:FIRST_TESTS]:
            seconds_left -= self.line_map.seconds[test]
            if seconds_left >= 0 or not selected:
                selected.append(test)
        return selected

    def _run(
        self, file: str, fault: Fault, tests: list[str], seconds: float | None = None
    ) -> tuple[str, str, int]:
        """Run tests until one fails that passes without the fault; leave out others that fail.

        Where a file of tests cannot be imported, all its tests fail.
        """
        while tests:
            needed = START_SECONDS + 3 * sum(self.line_map.seconds[t] for t in tests)
            allowed = min(needed, START_SECONDS + (seconds or needed))
            verdict, failed_test, passed = run_in_fork(tests, (file, fault.source), allowed)
            if verdict == "timed out" and allowed < needed:
                return "survived so far", "", 0
            if verdict != "noticed" or self.passes_without_fault(failed_test, tests):
                return verdict, failed_test, passed
            failed_file = failed_test.removeprefix(COLLECTION) + "::"
            rest = [t for t in tests if t != failed_test and not t.startswith(failed_file)]
            if len(rest) == len(tests):
                break
            tests = rest
        return "no test", "", 0

    def passes_without_fault(self, failed_test: str, tests: list[str]) -> bool:
        """Return whether what noticed a fault passes without one.

        That is a test, the import of a file of tests, or (where the process ended) all tests.
        """
        if failed_test.startswith(COLLECTION):
            ids = ["--collect-only", failed_test.removeprefix(COLLECTION)]
        else:
            ids = [failed_test] if failed_test in self.reach_counts else tests
        key = "\n".join(ids)
        if key not in self.known_passes:
            allowed = START_SECONDS + 5 * sum(self.line_map.seconds.get(t, 0) for t in ids)
            self.known_passes[key] = run_in_fork(ids, None, allowed)[0] == "survived"
        return self.known_passes[key]


def run_worker(
    faults: list[tuple[str, int, str, Fault]], line_map: LineMap, seconds: float
) -> None:
    """Try faults one after the other and append each outcome to the results."""
    runner = Runner(line_map, seconds)
    for package, number, file, fault in faults:
        outcome = runner.try_fault(package, number, file, fault)
        with RESULTS.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(outcome)) + "\n")
        print(f"{package} {number}: {outcome.verdict} in {outcome.seconds:.0f} s", flush=True)


def print_results(outcomes: list[Outcome]) -> None:
    """Print how many faults were noticed by package, and each that was not."""
    for package in sorted({o.package for o in outcomes}):
        counts = Counter(o.verdict for o in outcomes if o.package == package)
        print(f"{package}: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}")
    for o in outcomes:
        if o.verdict not in {"noticed", "timed out", "equivalent"}:
            print(
                f"\n{o.package} {o.number}: {o.verdict} ({o.kind}; {o.ran} of {o.tests} tests)\n"
                f"  {o.file}:{o.line}\n  - {o.before}\n  + {o.after}"
            )


def main() -> int:
    """Plant the faults that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", help="packages of ctxkit, by commas")
    parser.add_argument("--count", type=int, default=20, help="faults in each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seconds",
        type=float,
        default=120,
        help="for the tests that run behind the first, each fault",
    )
    parser.add_argument("--keep", action="store_true", help="add the counts to docs/benchmarks.md")
    arguments = parser.parse_args()
    os.environ.setdefault("CTXKIT_SEED", SEED)  # tests are collected and run with the same seed
    line_map = LineMap.load()
    line_map.filter_tests(
        collect_tests(t.partition("::")[0] for t in line_map.seconds).__contains__
    )
    faults = [
        (package, number, file, fault)
        for package in arguments.packages.split(",")
        for number, (file, fault) in enumerate(
            draw_faults(line_map, package, arguments.count, arguments.seed)
        )
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("")
    os.chdir(ROOT)
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="ctxkit-mutants-")
    load_libraries()
    try:
        workers = []
        for worker in range(arguments.workers):
            pid = os.fork()
            if pid == 0:
                run_worker(faults[worker :: arguments.workers], line_map, arguments.seconds)
                os._exit(0)
            workers.append(pid)
        for pid in workers:
            os.waitpid(pid, 0)
    finally:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    outcomes = sorted(
        (Outcome(**json.loads(line)) for line in lines), key=lambda o: (o.package, o.number)
    )
    print_results(outcomes)
    if arguments.keep:
        packages = arguments.packages.split(",")
        store_figures(
            [
                FaultFigures.count(p, arguments.seed, len(line_map.seconds), outcomes)
                for p in packages
            ]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
