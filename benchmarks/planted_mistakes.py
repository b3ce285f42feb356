"""Apply mistakes that a contributor would make, each in a copy of the tree: the tests must notice.

    python -m benchmarks.planted_mistakes [NAME ...]      make planted

A patch of tests/planted is a feature with its fault. The lines above its first `diff` say what the
fault is (`Fault:`), who must notice (`Noticed by:`) and which tests run (`Tests:`). Those tests run
on a copy without the patch first, unless the patch brings them: a patch is noticed only by tests
that are green without it.
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
class Planted:
    """One mistake."""

    name: str
    fault: str
    noticed_by: str
    tests: tuple[str, ...]
    path: Path

    @classmethod
    def read(cls, path: Path) -> Planted:
        """Read the head of a patch."""
        head = path.read_text(encoding="utf-8").split("diff --git", 1)[0]
        said = dict(re.findall(r"^(Fault|Noticed by|Tests): (.+)$", head, re.MULTILINE))
        tests = tuple(shlex.split(said["Tests"]))
        return cls(path.stem, said["Fault"], said["Noticed by"], tests, path)


def copy_tree(to: Path) -> None:
    """Copy the files of the working tree that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[int, list[str]]:
    """Run tests in a copy; return pytest's exit code and what failed."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "CTXKIT_SEED": "1"}
    done = subprocess.run(
        [*PYTEST, *tests], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)


def try_patch(planted: Planted) -> str:
    """Return what came of a patch: an empty text where the tests notice it, else a sentence."""
    with tempfile.TemporaryDirectory(prefix="ctxkit-planted-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        path = tree / planted.tests[0].split("::")[0]
        code, failed = run_tests(tree, planted.tests) if path.exists() else (0, [])
        if code != 0:
            return f"its tests fail without it: {', '.join(failed[:3]) or f'exit code {code}'}."
        command = ["git", "apply", "-C1", "--recount", str(planted.path)]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"it no longer applies, so write it anew: {done.stderr.strip()[:300]}"
        code, failed = run_tests(tree, planted.tests)
    if code == 0:
        return f"no test notices: {planted.fault}"
    print(f"{planted.name}: noticed by {len(failed)}, the first {failed[0] if failed else code}")
    return ""


def main() -> int:
    """Apply the patches that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="patches of tests/planted; none: all")
    asked = parser.parse_args()
    wrong = []
    for planted in map(Planted.read, sorted(PATCHES.glob("*.patch"))):
        if not asked.names or planted.name in asked.names:
            problem = try_patch(planted)
            wrong += [f"{planted.name}: {problem}"] * bool(problem)
    print(*(wrong or ["Every planted mistake is noticed."]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
