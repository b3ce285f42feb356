"""Apply mistakes that a contributor might make, each to a copy of the tree: the tests must notice.

    python -m benchmarks.planted_mistakes [NAME ...]      make planted

A patch of tests/planted adds a feature that has a fault. The lines above its first `diff` give the
fault (`Fault:`), the tests that must notice it (`Noticed by:`) and the tests that run (`Tests:`).
These run on a copy without the patch first, unless the patch adds them: only tests that pass
without a patch can notice it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "tests/planted"
PYTEST = [
    *(sys.executable, "-m", "pytest", "-q", "--tb=no"),
    *("-p", "no:cacheprovider", "-p", "no:nbval", "-m", "not long"),
]


@dataclass(frozen=True)
class PlantedMistake:
    """The head of a patch with one mistake."""

    name: str
    fault: str
    noticed_by: str
    tests: tuple[str, ...]
    path: Path

    @classmethod
    def read(cls, path: Path) -> PlantedMistake:
        """Read the head of a patch."""
        head = path.read_text(encoding="utf-8").split("diff --git", 1)[0]
        fields = dict(re.findall(r"^(Fault|Noticed by|Tests): (.+)$", head, re.MULTILINE))
        tests = tuple(shlex.split(fields["Tests"]))
        return cls(path.stem, fields["Fault"], fields["Noticed by"], tests, path)


def copy_tree(folder: Path) -> None:
    """Copy the files of the working tree that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in process.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[int, list[str]]:
    """Run tests in a copy; return pytest's exit code and the tests that failed."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "CTXKIT_SEED": "1"}
    process = subprocess.run(
        [*PYTEST, *tests], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    return process.returncode, re.findall(r"^(?:FAILED|ERROR) (\S+)", process.stdout, re.MULTILINE)


def try_patch(mistake: PlantedMistake) -> str:
    """Return the problem of a patch as a sentence; empty if the tests notice the mistake."""
    with tempfile.TemporaryDirectory(prefix="ctxkit-planted-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        path = tree / mistake.tests[0].split("::")[0]
        code, failed = run_tests(tree, mistake.tests) if path.exists() else (0, [])
        if code != 0:
            return f"its tests fail without it: {', '.join(failed[:3]) or f'exit code {code}'}."
        command = ["git", "apply", "-C1", "--recount", str(mistake.path)]
        process = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            return f"it no longer applies, so write it anew: {process.stderr.strip()[:300]}"
        code, failed = run_tests(tree, mistake.tests)
    if code == 0:
        return f"no test notices: {mistake.fault}"
    print(f"{mistake.name}: noticed by {len(failed)}, the first {failed[0] if failed else code}")
    return ""


def main() -> int:
    """Apply the patches that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="patches of tests/planted; none: all")
    arguments = parser.parse_args()
    mistakes = list(map(PlantedMistake.read, sorted(PATCHES.glob("*.patch"))))
    unknown = set(arguments.names) - {mistake.name for mistake in mistakes}
    if unknown:
        parser.error(f"No patch of tests/planted is called {', '.join(sorted(unknown))}.")
    problems = []
    for mistake in mistakes:
        if not arguments.names or mistake.name in arguments.names:
            problem = try_patch(mistake)
            problems += [f"{mistake.name}: {problem}"] * bool(problem)
    print(*(problems or ["Every planted mistake is noticed."]), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
