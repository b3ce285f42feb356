"""Record which test reaches which line, and run the tests that a change reaches.

    python -m benchmarks.tests_by_line record [TESTS ...]      make test-map
    python -m benchmarks.tests_by_line quick [--base COMMIT]   make quick

The map is in build/tests-by-line.pickle. It holds the text of each file as it was when the
map was
made, so that lines are found again after the file has changed. Tests given by name are recorded
anew and the rest of the map stays.
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
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
MAP = ROOT / "build/tests-by-line.pickle"
FOLDERS = ("ctxkit", "tests", "docs", "benchmarks")
RECORDING = "CTXKIT_RECORD_LINES"
"""The folder into which each worker writes what it recorded; set while a map is made."""
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
        """Read the map that was recorded last, its lines moved to where they stand now.

        Raises:
            SystemExit: there is no map yet.
        """
        if not MAP.exists():
            sys.exit("There is no map of tests by line: `make test-map` records one.")
        out = cls(**pickle.loads(MAP.read_bytes()))
        out.follow_changes()
        return out

    def save(self) -> None:
        """Write the map for the next `load`."""
        MAP.parent.mkdir(exist_ok=True)
        MAP.write_bytes(pickle.dumps(vars(self)))

    def follow_changes(self) -> None:
        """Move the recorded lines of files that have changed to where they stand now.

        A line that was changed is where its replacement begins; `quick` counts on it.
        """
        moved = {}
        for file, text in self.texts.items():
            now = read_text(file)
            if now != text:
                moved[file] = get_new_lines(text, now)
                self.texts[file] = now
        for recorded in (self.imported, *self.lines.values()):
            for file in moved.keys() & recorded.keys():
                recorded[file] = to_mask(moved[file].get(n, 0) for n in to_lines(recorded[file]))

    @property
    def reach(self) -> dict[str, int]:
        """How many lines of the package each test reaches: few is a test of its own subject."""
        return {
            test: sum(m.bit_count() for file, m in files.items() if file.startswith("ctxkit/"))
            for test, files in self.lines.items()
        }

    def tests_of_lines(self, wanted: dict[str, set[int]]) -> set[str]:
        """Return the tests that reach one of these lines."""
        masks = {file: to_mask(lines) for file, lines in wanted.items()}
        return {
            test
            for test, files in self.lines.items()
            if any(files.get(file, 0) & mask for file, mask in masks.items())
        }

    def tests_of_names(self, names: Iterable[str], file: str) -> set[str]:
        """Return the tests that reach a use of a name in a function; else those that reach the
        file."""
        wanted = set(names)
        uses = {
            other: lines
            for other in self.texts
            if other.startswith("ctxkit/") and (lines := get_uses(self.texts[other], wanted))
        }
        return self.tests_of_lines(uses) or self.tests_of_lines(
            {file: to_lines(self.imported.get(file, 0) | self._reached(file))}
        )

    def _reached(self, file: str) -> int:
        out = 0
        for files in self.lines.values():
            out |= files.get(file, 0)
        return out

    def reached_lines(self, package: str) -> list[tuple[str, int]]:
        """Return each line of a package that a test reaches or an import runs, by file."""
        of = f"ctxkit/{package}/"
        files = sorted(f for f in self.texts if f.startswith((of, f"ctxkit/{package}.py")))
        return [
            (file, n)
            for file in files
            for n in sorted(to_lines(self._reached(file) | self.imported.get(file, 0)))
        ]


def to_mask(lines: Iterable[int]) -> int:
    """Return a set of line numbers as an integer."""
    out = 0
    for n in lines:
        out |= 1 << n
    return out & ~1


def to_lines(mask: int) -> set[int]:
    """Return the line numbers of an integer."""
    return {n for n, bit in enumerate(reversed(bin(mask))) if bit == "1"}


def read_text(file: str) -> str:
    """Return a file of the tree, empty where it is gone."""
    path = ROOT / file
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def get_new_lines(old: str, new: str) -> dict[int, int]:
    """Return the new number of each old line; a changed one gets that at which the change
    begins."""
    out = {}
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    for what, i, i_end, j, _ in matcher.get_opcodes():
        for n in range(i, i_end):
            out[n + 1] = (j + n - i if what == "equal" else j) + 1
    return out


def get_changed_lines(old: str, new: str) -> set[int]:
    """Return the numbers of the new lines that differ; what was removed is the line behind it."""
    matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return {
        n
        for what, _, _, j, j_end in matcher.get_opcodes()
        if what != "equal"
        for n in (range(j + 1, j_end + 1) if j_end > j else (j, j + 1))
    }


@cache
def get_function_lines(text: str) -> frozenset[int]:
    """Return the lines in bodies of functions; signatures, decorators and class bodies are not
    among them."""
    return frozenset(
        n
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    )


@cache
def get_names_by_line(text: str) -> dict[int, frozenset[str]]:
    """Return the names that each line of a function reads, plain, as an attribute or as a
    keyword."""
    out, inside = defaultdict(set), get_function_lines(text)
    for node in ast.walk(ast.parse(text)):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name and node.lineno in inside:
            out[node.lineno].add(name)
    return {n: frozenset(names) for n, names in out.items()}


def get_uses(text: str, names: set[str]) -> set[int]:
    """Return the lines in functions that use one of the names."""
    return {n for n, used in get_names_by_line(text).items() if used & names}


def get_bound_names(text: str, lines: set[int]) -> set[str]:
    """Return the names that these lines bind outside functions: constants, fields, functions by
    their signature."""
    out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if lines & set(range(first, node.body[0].lineno)):
                out.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and lines & _lines_of(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            out |= {n.id for n in names if not n.id.startswith("__")}
    return out


def _lines_of(statement: ast.stmt) -> set[int]:
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
        """Note a test that fails: what it reaches says nothing."""
        if report.failed or report.skipped:
            _failed.add(report.nodeid)

    def pytest_sessionfinish() -> None:
        """Write what this worker recorded."""
        _coverage.stop()
        if _seconds:
            _coverage.save()
            out = Path(os.environ[RECORDING]) / f"tests.{os.getpid()}"
            out.write_bytes(pickle.dumps((_seconds, _failed)))


def record(tests: list[str], workers: int) -> LineMap:
    """Run tests and write the map of their lines; other tests of the map stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, RECORDING: folder, "PYTHONPATH": str(ROOT)}
        plugin = ["-p", "benchmarks.tests_by_line", "--dist", "worksteal", "-n", str(workers)]
        subprocess.run([*PYTEST, *plugin, *tests], cwd=ROOT, env=environment, check=False)
        new = _read_recorded(Path(folder))
    whole = LineMap.load() if MAP.exists() else LineMap()
    again = tuple(t.rstrip("/") for t in tests)
    for test in [t for t in whole.seconds if t.startswith(again)]:
        del whole.seconds[test], whole.lines[test]
    whole.seconds |= new.seconds
    whole.lines |= new.lines
    for file, mask in new.imported.items():
        whole.imported[file] = whole.imported.get(file, 0) | mask
    whole.texts = {f: read_text(f) for f in {*whole.texts, *new.texts}}
    whole.save()
    return whole


def _read_recorded(folder: Path) -> LineMap:
    import coverage

    out, failed = LineMap(), set[str]()
    for path in folder.glob("tests.*"):
        seconds, without = pickle.loads(path.read_bytes())
        out.seconds |= seconds
        failed |= without
    for path in folder.glob("lines.*"):
        data = coverage.CoverageData(str(path))
        data.read()
        for measured in data.measured_files():
            file = str(Path(measured).relative_to(ROOT))
            out.texts[file] = ""
            for line, tests in data.contexts_by_lineno(measured).items():
                for test in tests:
                    of = out.lines.setdefault(test, {}) if test else out.imported
                    of[file] = of.get(file, 0) | 1 << line
    for test in failed:
        out.seconds.pop(test, None)
    out.lines = {t: out.lines.get(t, {}) for t in out.seconds}
    return out


# ---- the tests of a change


def get_changed_files(base: str) -> list[str]:
    """Return the files that differ between a commit and the working tree, new ones too."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    out = [
        subprocess.run(c, cwd=ROOT, check=True, capture_output=True, text=True) for c in commands
    ]
    return sorted({line for done in out for line in done.stdout.splitlines()})


def get_base_text(base: str, file: str) -> str:
    """Return a file as a commit has it, empty where it has none."""
    done = subprocess.run(
        ["git", "show", f"{base}:{file}"], cwd=ROOT, check=False, capture_output=True
    )
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def select_tests(found: LineMap, base: str) -> tuple[set[str], set[str]]:
    """Return the tests that a change reaches by its lines, and the files of tests to run whole."""
    tests, whole = set[str](), set[str]()
    for file in get_changed_files(base):
        name = Path(file).name
        if re.match(r"tests/.*test_\w+\.py$", file):
            whole |= {file} & {file if (ROOT / file).exists() else ""}
        elif file.endswith(".py"):
            tests |= _select_by_lines(found, file, get_base_text(base, file))
        else:  # a page, a script or data: the tests that name it
            whole |= {
                f
                for f in found.texts
                if Path(f).name.startswith("test_") and name in found.texts[f]
            }
    return tests, whole


def _select_by_lines(found: LineMap, file: str, before: str) -> set[str]:
    text = read_text(file)
    changed = get_changed_lines(before, text)
    try:
        inside = changed & get_function_lines(text)
    except SyntaxError as error:
        sys.exit(f"{file} cannot be parsed: {error}")
    names = get_bound_names(text, changed - inside) if changed - inside else set()
    tests = found.tests_of_lines({file: inside}) if inside else set()
    return tests | (found.tests_of_names(names, file) if names else set())


def run_quick(base: str, seconds: float, workers: int) -> int:
    """Run the tests that a change reaches, those that reach few lines first, as many as the time
    allows."""
    found = LineMap.load()
    tests, whole = select_tests(found, base)
    reach = found.reach
    ranked, left = list[str](), seconds * workers
    for test in sorted(
        tests - {t for t in tests if t.split("::")[0] in whole}, key=reach.__getitem__
    ):
        left -= found.seconds[test]
        if left < 0:
            break
        ranked.append(test)
    print(
        f"{len(tests)} tests reach the lines that differ from {base}; {len(ranked)} of them run,"
        f" those that reach few lines first, and {len(whole)} files of tests whole."
    )
    if not ranked and not whole:
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ids:
        ids.write("\n".join([*sorted(whole), *ranked]))
        ids.flush()
        command = [*PYTEST, "-n", str(workers), f"@{ids.name}"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Record a map or run the tests of a change, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="run tests and write which lines each reaches")
    recording.add_argument("tests", nargs="*", default=["tests"])
    quick = verbs.add_parser("quick", help="run the tests that the working change reaches")
    quick.add_argument("--base", default="HEAD", help="the commit to compare with")
    quick.add_argument(
        "--seconds", type=float, default=45, help="at most so much recorded test time"
    )
    for each in (recording, quick):
        each.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if asked.verb == "quick":
        return run_quick(asked.base, asked.seconds, asked.workers)
    recorded = record(asked.tests, asked.workers)
    print(f"{len(recorded.seconds)} tests, {len(recorded.texts)} files: {MAP.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
