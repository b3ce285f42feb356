"""Compare the figures of this tree and of another commit for the same sessions, to the digit.

    python -m benchmarks.compare_commits COMMIT [--sessions FOLDER] [--presets pi,none]

Both trees run `write_figures` below, which uses public names only: every frame and report of every
session, and every row of every preset over it. Values are compared as they print; columns and
modules that were renamed are matched by the table of old and new names in docs/renames.md
(`| old | new |`). Exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FRAMES = ("call", "turn", "message", "compaction", "session")
MAX_EXAMPLES = 3
"""Examples printed for each column that differs."""


def write_figures(sessions: Path, presets: list[str], file: Path) -> None:
    """Write one JSON line for each view of each session: its columns, each a list of texts."""
    import ctxkit as ck

    assert Path(ck.__file__).parents[1] == Path.cwd(), (
        "the package of this tree is not first on the path"
    )
    names = presets or list(ck.presets.names())
    files = (
        sorted(candidate for candidate in sessions.rglob("*") if candidate.is_file())
        if sessions.is_dir()
        else []
    )
    with file.open("w", encoding="utf-8") as output:
        for path in [*files, *(Path(ck.samples.path(name)) for name in ck.samples.names())]:
            for number, session in enumerate(ck.read_all(path, progress=False)):
                for view, columns in _views(ck, session, names):
                    key = f"{path.name}#{number}/{view}"
                    output.write(json.dumps([key, columns], default=repr) + "\n")


def _views(ck: Any, session: Any, presets: list[str]) -> Any:
    for per in FRAMES:
        yield f"frame {per}", _text_columns(ck.frame(session, per=per))
    yield "report", {"text": str(ck.report(session)).splitlines()}
    if session.calls:
        try:
            rows = ck.compare(session, presets, progress=False)
        except ck.CtxkitError as error:
            yield "compare", {"error": [str(error)]}
        else:
            yield "compare", _text_columns(rows.rename_axis(None).reset_index(drop=True))


def _text_columns(frame: Any) -> dict[str, list[str]]:
    return {str(name): [repr(v) for v in frame[name].tolist()] for name in frame.columns}


def compare_figures(old: Path, new: Path, renamed: dict[str, str]) -> list[str]:
    """Return one line for each view and column that differs, with its number and examples."""
    before, after = _read_figures(old), _read_figures(new)
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for key in sorted(before.keys() | after.keys()):
        new_columns = after.get(key, {})
        # the table may rename a column of another view that this view calls by the old name
        old_columns = {
            name if name in new_columns else renamed.get(name, name): values
            for name, values in before.get(key, {}).items()
        }
        for name in sorted(old_columns.keys() | new_columns.keys()):
            if old_columns.get(name) != new_columns.get(name):
                column = f"{key.rpartition('/')[2]}.{name}"
                counts[column] += 1
                examples.setdefault(column, []).append(
                    f"{key}: {_first_difference(old_columns.get(name), new_columns.get(name))}"
                )
    return [
        f"{column}: differs in {count} of {len(before)} views\n    "
        + "\n    ".join(examples[column][:MAX_EXAMPLES])
        for column, count in counts.most_common()
    ]


def _read_figures(path: Path) -> dict[str, dict[str, list[str]]]:
    with path.open(encoding="utf-8") as lines:
        return dict(json.loads(line) for line in lines)


def _first_difference(old: list[str] | None, new: list[str] | None) -> str:
    if old is None or new is None:
        return "missing before" if old is None else "missing now"
    if len(old) != len(new):
        return f"{len(old)} values before, {len(new)} now"
    row = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
    return f"row {row}: {old[row]} -> {new[row]}"


def read_renamed_columns(page: str) -> dict[str, str]:
    """Return old and new names from the tables of a page."""
    rows = re.findall(r"^\|(?: [^|]+ \|)? `([^`|]+)` \| `([^`|]+)` \|", page, re.MULTILINE)
    return dict(rows)


def run_in_tree(tree: Path, sessions: Path, presets: str, out: Path) -> subprocess.Popen[bytes]:
    """Start `write_figures` with the package of a tree."""
    command = [sys.executable, __file__, "--write", str(out), "--sessions", str(sessions)]
    return subprocess.Popen(
        [*command, "--presets", presets], env={**os.environ, "PYTHONPATH": str(tree)}, cwd=tree
    )


def main() -> int:
    """Run the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?")
    parser.add_argument(
        "--sessions", type=Path, default=Path(os.environ.get("CTXKIT_SESSIONS", ""))
    )
    parser.add_argument("--presets", default="")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    presets = [name for name in arguments.presets.split(",") if name]
    if arguments.write:
        write_figures(arguments.sessions, presets, arguments.write)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        archive = subprocess.run(
            ["git", "archive", arguments.commit, "ctxkit"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
        files = Path(folder) / "old.jsonl", Path(folder) / "new.jsonl"
        processes = [
            run_in_tree(package_tree, arguments.sessions.resolve(), arguments.presets, file)
            for package_tree, file in zip((tree, ROOT), files, strict=True)
        ]
        if any(process.wait() for process in processes):
            print("One of the trees could not be run: see the error above.")
            return 1
        renamed = read_renamed_columns((ROOT / "docs" / "renames.md").read_text(encoding="utf-8"))
        lines = compare_figures(*files, renamed)
        views = len(_read_figures(files[1]))
    print("\n".join(lines) or f"None of {views:,} views differs.")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
