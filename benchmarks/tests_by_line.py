"""Record which test reaches which line, and run the tests that a change reaches.

    python -m benchmarks.tests_by_line record [TESTS ...]      make test-map
    python -m benchmarks.tests_by_line quick [--base COMMIT]   make quick

The map is in build/tests-by-line.pickle. It holds the text of each file at the time of recording,
so that lines are found again after the file has changed. Tests given by name are recorded again,
and the rest of the map stays.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]
MAP = ROOT / "build/tests-by-line.pickle"
FOLDERS = ("ctxkit", "tests", "docs", "benchmarks")
RECORDING = "CTXKIT_RECORD_LINES"
"""Environment variable with the folder into which each worker writes its recorded lines."""
SEED = "1"
"""Seed of sampled families: the same tests when lines are recorded and when faults are tried."""
PYTEST = [
    *(sys.executable, "-m", "pytest", "-q", "-m", "not long"),
    *("-p", "no:cacheprovider", "-p", "no:nbval"),  # nbval builds forty grammars on import
]


@dataclass
class LineMap:
    """The lines that each test reaches.

    A set of lines is an integer whose bit n stands for line n.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds that each test took, by its pytest id."""
    lines: dict[str, dict[str, int]] = field(default_factory=dict)
    """Lines by test and file."""
    imported: dict[str, int] = field(default_factory=dict)
    """Lines by file that run before any test: imports, constants, signatures."""
    texts: dict[str, str] = field(default_factory=dict)
    """The text of each file when its lines were recorded."""

    @classmethod
    def load(cls) -> LineMap:
        """Read the last map, with its lines moved to their places in the current files.

        Raises:
            SystemExit: there is no map yet.
        """
        if not MAP.exists():
            sys.exit("There is no map of tests by line: `make test-map` records one.")
        line_map = cls(**pickle.loads(MAP.read_bytes()))
        line_map.follow_changes()
        line_map.filter_tests(is_defined)
        return line_map

    def save(self) -> None:
        """Write the map for the next `load`."""
        MAP.parent.mkdir(exist_ok=True)
        MAP.write_bytes(pickle.dumps(vars(self)))

    def follow_changes(self) -> None:
        """Move the recorded lines of changed files to their places in the current files.

        A changed line moves to where its replacement begins; `quick` relies on it.
        """
        new_lines = {}
        for file, text in self.texts.items():
            current_text = read_text(file)
            if current_text != text:
                new_lines[file] = get_new_lines(text, current_text)
                self.texts[file] = current_text
        for recorded in (self.imported, *self.lines.values()):
            for file in new_lines.keys() & recorded.keys():
                recorded[file] = to_mask(
                    new_lines[file].get(n, 0) for n in to_lines(recorded[file])
                )

    def filter_tests(self, is_kept: Callable[[str], bool]) -> None:
        """Leave out the other tests: pytest runs none of its arguments if one of them is gone."""
        self.seconds = {test: s for test, s in self.seconds.items() if is_kept(test)}
        self.lines = {test: lines for test, lines in self.lines.items() if test in self.seconds}

    @property
    def reach_counts(self) -> dict[str, int]:
        """Number of lines of the package that each test reaches; few mean a specific test."""
        return {
            test: sum(m.bit_count() for file, m in files.items() if file.startswith("ctxkit/"))
            for test, files in self.lines.items()
        }

    def find_tests_of_lines(self, wanted: dict[str, set[int]]) -> set[str]:
        """Return the tests that reach one of these lines."""
        masks = {file: to_mask(lines) for file, lines in wanted.items()}
        return {
            test
            for test, files in self.lines.items()
            if any(files.get(file, 0) & mask for file, mask in masks.items())
        }

    def find_tests_of_names(self, names: Iterable[str], file: str) -> set[str]:
        """Return the tests that reach a use of a name in a function, else those of the file."""
        wanted = set(names)
        uses = {
            user_file: lines
            for user_file in self.texts
            if user_file.startswith("ctxkit/")
            and (lines := get_uses(self.texts[user_file], wanted))
        }
        return self.find_tests_of_lines(uses) or self.find_tests_of_lines(
            {file: to_lines(self.imported.get(file, 0) | self._merge_lines(file))}
        )

    def _merge_lines(self, file: str) -> int:
        mask = 0
        for files in self.lines.values():
            mask |= files.get(file, 0)
        return mask

    def list_reached_lines(self, package: str) -> list[tuple[str, int]]:
        """Return each line of a package that a test reaches or an import runs, by file."""
        folder = f"ctxkit/{package}/"
        files = sorted(f for f in self.texts if f.startswith((folder, f"ctxkit/{package}.py")))
        return [
            (file, n)
            for file in files
            for n in sorted(to_lines(self._merge_lines(file) | self.imported.get(file, 0)))
        ]


def to_mask(lines: Iterable[int]) -> int:
    """Return a set of line numbers as an integer."""
    mask = 0
    for n in lines:
        mask |= 1 << n
    return mask & ~1


def to_lines(mask: int) -> set[int]:
    """Return the line numbers of an integer."""
    return {n for n, bit in enumerate(reversed(bin(mask))) if bit == "1"}


def read_text(file: str) -> str:
    """Return a file of the tree, empty where it is gone."""
    path = ROOT / file
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def is_defined(test: str) -> bool:
    """Return whether the file of a test still defines its function (its parameters may differ)."""
    file, _, name = test.partition("::")
    return f"def {name.rpartition('::')[2].partition('[')[0]}(" in _read_text_once(file)


@cache
def _read_text_once(file: str) -> str:
    return read_text(file)


def collect_tests(files: Iterable[str]) -> set[str]:
    """Return the ids of the tests of some files, as pytest collects them."""
    existing = sorted({f for f in files if (ROOT / f).is_file()})
    if not existing:
        return set()  # without a file pytest would collect all
    command = [*PYTEST, "--collect-only", *existing]
    process = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return {line for line in process.stdout.splitlines() if "::" in line}


def get_new_lines(old: str, new: str) -> dict[int, int]:
    """Return the new number of each old line; of a changed one, that where the change begins."""
    new_lines = {}
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    for operation, i, i_end, j, _ in matcher.get_opcodes():
        for n in range(i, i_end):
            new_lines[n + 1] = (j + n - i if operation == "equal" else j) + 1
    return new_lines


def get_changed_lines(old: str, new: str) -> set[int]:
    """Return the numbers of the new lines that differ; what was removed is the line behind it."""
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return {
        n
        for operation, _, _, j, j_end in matcher.get_opcodes()
        if operation != "equal"
        for n in (range(j + 1, j_end + 1) if j_end > j else (j, j + 1))
    }


@cache
def get_function_lines(text: str) -> frozenset[int]:
    """Return the lines in bodies of functions, without signatures, decorators and class bodies."""
    return frozenset(
        n
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    )


@cache
def get_names_by_line(text: str) -> dict[int, frozenset[str]]:
    """Return the names and attributes that each line of a function uses."""
    names_by_line, function_lines = defaultdict(set), get_function_lines(text)
    for node in ast.walk(ast.parse(text)):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name and node.lineno in function_lines:
            names_by_line[node.lineno].add(name)
    return {n: frozenset(names) for n, names in names_by_line.items()}


def get_uses(text: str, names: set[str]) -> set[int]:
    """Return the lines in functions that use one of the names."""
    return {n for n, line_names in get_names_by_line(text).items() if line_names & names}


def get_bound_names(text: str, lines: set[int]) -> set[str]:
    """Return the names that lines outside function bodies bind: constants, fields, signatures."""
    bound = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if lines & set(range(first, node.body[0].lineno)):
                bound.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and lines & _list_lines(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            bound |= {n.id for n in names if not n.id.startswith("__")}
    return bound


def _list_lines(statement: ast.stmt) -> set[int]:
    return set(range(statement.lineno, (statement.end_lineno or 0) + 1))


# ---- recording: this file is a pytest plugin in the workers of `record`

if os.environ.get(RECORDING):
    import coverage

    _coverage = coverage.Coverage(
        data_file=f"{os.environ[RECORDING]}/lines.{os.getpid()}",
        config_file=False,
        source=[str(ROOT / folder) for folder in FOLDERS],
    )
    _coverage.start()
    _seconds: dict[str, float] = {}
    _failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
        """Record the lines of one test under its id."""
        _coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            _seconds[item.nodeid] = time.perf_counter() - start
            _coverage.switch_context("")

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        """Record a test that fails or is skipped, whose lines have no meaning."""
        if report.failed or report.skipped:
            _failed.add(report.nodeid)

    def pytest_sessionfinish() -> None:
        """Write what this worker recorded."""
        _coverage.stop()
        if _seconds:
            _coverage.save()
            out = Path(os.environ[RECORDING]) / f"tests.{os.getpid()}"
            out.write_bytes(pickle.dumps((_seconds, _failed)))


def record_lines(tests: list[str], workers: int) -> LineMap:
    """Run tests and write the map of their lines; other tests of the map stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "CTXKIT_SEED": SEED,
            **os.environ,
            RECORDING: folder,
            "PYTHONPATH": str(ROOT),
        }
        plugin = ["-p", "benchmarks.tests_by_line", "--dist", "worksteal", "-n", str(workers)]
        subprocess.run([*PYTEST, *plugin, *tests], cwd=ROOT, env=environment, check=False)
        recorded = _read_recorded(Path(folder))
    merged = LineMap.load() if MAP.exists() else LineMap()
    recorded_prefixes = tuple(t.rstrip("/") for t in tests)
    for test in [t for t in merged.seconds if t.startswith(recorded_prefixes)]:
        del merged.seconds[test], merged.lines[test]
    merged.seconds |= recorded.seconds
    merged.lines |= recorded.lines
    for file, mask in recorded.imported.items():
        merged.imported[file] = merged.imported.get(file, 0) | mask
    merged.texts = {f: read_text(f) for f in {*merged.texts, *recorded.texts}}
    merged.save()
    return merged


def _read_recorded(folder: Path) -> LineMap:
    import coverage

    line_map, failed = LineMap(), set[str]()
    for path in folder.glob("tests.*"):
        seconds, failed_in_worker = pickle.loads(path.read_bytes())
        line_map.seconds |= seconds
        failed |= failed_in_worker
    for path in folder.glob("lines.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        for measured in data.measured_files():
            file = str(Path(measured).relative_to(ROOT))
            line_map.texts[file] = ""
            for line, tests in data.contexts_by_lineno(measured).items():
                for test in tests:
                    lines_by_file = (
                        line_map.lines.setdefault(test, {}) if test else line_map.imported
                    )
                    lines_by_file[file] = lines_by_file.get(file, 0) | 1 << line
    for test in failed:
        line_map.seconds.pop(test, None)
    line_map.lines = {t: line_map.lines.get(t, {}) for t in line_map.seconds}
    return line_map


# ---- the tests of a change


def get_changed_files(base: str) -> list[str]:
    """Return the files that differ between a commit and the working tree, new ones too."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    processes = [
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        for command in commands
    ]
    return sorted({line for process in processes for line in process.stdout.splitlines()})


def get_base_text(base: str, file: str) -> str:
    """Return a file as a commit has it, empty where it has none."""
    process = subprocess.run(
        ["git", "show", f"{base}:{file}"], cwd=ROOT, check=False, capture_output=True
    )
    return process.stdout.decode(errors="replace") if process.returncode == 0 else ""


def select_tests(line_map: LineMap, base: str) -> tuple[set[str], set[str]]:
    """Return the tests that a change reaches by its lines, and the files of tests to run whole."""
    tests, whole_files = set[str](), set[str]()
    for file in get_changed_files(base):
        name = Path(file).name
        if re.match(r"tests/.*test_\w+\.py$", file):
            whole_files |= {file} & {file if (ROOT / file).exists() else ""}
        elif file.endswith(".py"):
            tests |= _select_by_lines(line_map, file, get_base_text(base, file))
        else:  # a page, a script or data: the tests that name it
            whole_files |= {
                test_file
                for test_file in line_map.texts
                if Path(test_file).name.startswith("test_") and name in line_map.texts[test_file]
            }
    return tests, whole_files


def _select_by_lines(line_map: LineMap, file: str, base_text: str) -> set[str]:
    text = read_text(file)
    changed = get_changed_lines(base_text, text)
    try:
        in_functions = changed & get_function_lines(text)
    except SyntaxError as error:
        sys.exit(f"{file} cannot be parsed: {error}")
    names = get_bound_names(text, changed - in_functions) if changed - in_functions else set()
    tests = line_map.find_tests_of_lines({file: in_functions}) if in_functions else set()
    return tests | (line_map.find_tests_of_names(names, file) if names else set())


def run_tests_of_change(base: str, seconds: float, workers: int) -> int:
    """Run the tests that a change reaches, as many as the time allows, specific ones first."""
    os.environ.setdefault("CTXKIT_SEED", SEED)  # else other cases than the recorded ones are drawn
    line_map = LineMap.load()
    tests, whole_files = select_tests(line_map, base)
    single_tests = {t for t in tests if t.split("::")[0] not in whole_files}
    selected = choose_tests(line_map, single_tests, seconds * workers)
    print(
        f"{len(tests)} tests reach the lines that differ from {base}; {len(selected)} of them run,"
        f" those that reach few lines first, and {len(whole_files)} files of tests whole."
    )
    if not selected and not whole_files:
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as id_file:
        id_file.write("\n".join([*sorted(whole_files), *selected]))
        id_file.flush()
        command = [*PYTEST, "--workers", str(workers), f"@{id_file.name}"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def choose_tests(line_map: LineMap, tests: set[str], seconds: float) -> list[str]:
    """Return tests that take at most so long, those that reach few lines first.

    Tests that are no longer there are left out: pytest would run none of the others.
    """
    existing = collect_tests(t.split("::")[0] for t in tests)
    chosen, reach_counts = list[str](), line_map.reach_counts
    for test in sorted(tests & existing, key=reach_counts.__getitem__):
        seconds -= line_map.seconds[test]
        if seconds < 0:
            break
        chosen.append(test)
    return chosen


def main() -> int:
    """Record a map or run the tests of a change, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subparsers = parser.add_subparsers(dest="verb", required=True)
    recording = subparsers.add_parser("record", help="run tests and write which lines each reaches")
    recording.add_argument("tests", nargs="*", default=["tests"])
    quick = subparsers.add_parser("quick", help="run the tests that the working change reaches")
    quick.add_argument("--base", default="HEAD", help="the commit to compare with")
    quick.add_argument(
        "--seconds", type=float, default=45, help="at most so much recorded test time"
    )
    for subparser in (recording, quick):
        subparser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.verb == "quick":
        return run_tests_of_change(arguments.base, arguments.seconds, arguments.workers)
    line_map = record_lines(arguments.tests, arguments.workers)
    print(f"{len(line_map.seconds)} tests, {len(line_map.texts)} files: {MAP.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
