"""Write the notebooks with the answers filled in: `python docs/teaching/solve.py FOLDER`."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
_ANSWER = re.compile(r"^### (\S+)\n```py\n(.*?)```$", re.DOTALL | re.MULTILINE)
_ASKED = re.compile(r'^ck\.check\("([^"]+)", \.\.\.', re.MULTILINE)


def solutions() -> dict[str, str]:
    """Return the code that works out each answer, by the key of its exercise."""
    return dict(_ANSWER.findall((HERE / "solutions.md").read_text(encoding="utf-8")))


def solved(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the answers in the place of the dots."""
    known, notebook = solutions(), nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        asked = _ASKED.search(cell.source) if cell.cell_type == "code" else None
        if asked is not None:
            before, after = cell.source[: asked.start()], cell.source[asked.end() :]
            checked = f'ck.check("{asked[1]}", answer{after}'
            cell.source = f"{before}{known[asked[1]]}{checked}"
    return notebook


def write(folder: Path) -> list[Path]:
    """Write all notebooks into a new folder, beside what they import; return them.

    Raises:
        FileExistsError: the folder is there already.
    """
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    paths = sorted(folder.glob("*.ipynb"))
    for path in paths:
        nbformat.write(solved(path), path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name a folder that is not there yet: python docs/teaching/solve.py solved")
    for made in write(Path(sys.argv[1])):
        print(made)  # noqa: T201
