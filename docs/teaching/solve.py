"""Write the notebooks with the answers filled in: `python docs/teaching/solve.py FOLDER`."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
_SOLUTION = re.compile(r"^### (\S+)\n```py\n(.*?)```$", re.DOTALL | re.MULTILINE)
_UNANSWERED_CHECK = re.compile(r'^ck\.check\("([^"]+)", \.\.\.', re.MULTILINE)


def read_solutions() -> dict[str, str]:
    """Return the code that computes each answer, by the key of its exercise."""
    return dict(_SOLUTION.findall((HERE / "solutions.md").read_text(encoding="utf-8")))


def solve_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with each `...` replaced by the answer."""
    solutions, notebook = read_solutions(), nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        check = _UNANSWERED_CHECK.search(cell.source) if cell.cell_type == "code" else None
        if check is not None:
            before, after = cell.source[: check.start()], cell.source[check.end() :]
            answered_check = f'ck.check("{check[1]}", answer{after}'
            cell.source = f"{before}{solutions[check[1]]}{answered_check}"
    return notebook


def write_solved_notebooks(folder: Path) -> list[Path]:
    """Write all notebooks with the modules that they import into a new folder; return their paths.

    Raises:
        FileExistsError: the folder is there already.
    """
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    paths = sorted(folder.glob("*.ipynb"))
    for path in paths:
        nbformat.write(solve_notebook(path), path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name a folder that is not there yet: python docs/teaching/solve.py solved")
    for path in write_solved_notebooks(Path(sys.argv[1])):
        print(path)  # noqa: T201
