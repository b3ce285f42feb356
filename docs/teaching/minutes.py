"""Minutes that a notebook takes a reader: `python docs/teaching/minutes.py [--run] [NN ...]`.

Words at 200 a minute, code at ten lines a minute, twenty seconds to look at each output, one to
five minutes an exercise, and the waits of its cells. Waits come from `runs.csv`, which `--run`
makes again: the CPU seconds of each notebook and of its slowest cell, which is what an idle machine
of two cores waits.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from ctxkit.course.exercises import load_exercises

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RUNS = Path(__file__).with_name("runs.csv")
WORDS_A_MINUTE, SECONDS_A_LINE, SECONDS_AN_OUTPUT = 200, 6, 20
EXERCISE_MINUTES = {"number": 4.0, "choice": 2.0, "rules": 5.0, "guess": 1.0}
"""A guess is a number; rules are tried several times."""
RULES_EXERCISES = {"02-c", "03-b", "06-b", "07-b", "11-a", "11-b"}
_PROBE = """import resource as _r
print(sum(_r.getrusage(k).ru_utime + _r.getrusage(k).ru_stime for k in (_r.RUSAGE_SELF, _r.RUSAGE_CHILDREN)))"""  # noqa: E501
_CHECK_CALL = re.compile(r'^[^#\n]*ck\.check\("([^"]+)"', re.MULTILINE)


def count_parts(path: Path) -> dict[str, float]:
    """Return words, code lines, outputs and minutes of exercises of one notebook."""
    cells = nbformat.read(path, as_version=4).cells
    text = " ".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(r"\]\([^)]*\)", "", text)
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    lines = sum(bool(line.strip()) for source in sources for line in source.splitlines())
    # a cell whose last line is an assignment, an import or a marked answer shows nothing to look at
    cells_with_output = [
        source
        for source in sources
        if not re.match(r"(?s).*\n?(GUESS|import|from|ck\.check)\b[^\n]*$", source)
    ]
    exercises = load_exercises()
    exercise_minutes = 0.0
    for key in dict.fromkeys(_CHECK_CALL.findall("\n".join(sources))):
        exercise = exercises[key]
        kind = "guess" if exercise.is_guess else "choice" if exercise.is_choice else "number"
        exercise_minutes += EXERCISE_MINUTES["rules" if key in RULES_EXERCISES else kind]
    return {
        "words": len(text.split()),
        "lines": lines,
        "outputs": len(cells_with_output),
        "exercises": exercise_minutes,
    }


def read_runs() -> dict[str, tuple[float, float]]:
    """Return seconds of each notebook and of its slowest cell, by the notebook's number."""
    if not RUNS.exists():
        sys.exit(f"{RUNS.name} is missing: make it with `python docs/teaching/minutes.py --run`.")
    with RUNS.open(encoding="utf-8", newline="") as file:
        return {
            row["notebook"]: (float(row["seconds"]), float(row["slowest"]))
            for row in csv.DictReader(file)
        }


def compute_minutes(path: Path) -> float:
    """Return the minutes that one notebook takes."""
    parts = count_parts(path)
    waits, _ = read_runs().get(path.stem[:2], (0.0, 0.0))
    return (
        parts["words"] / WORDS_A_MINUTE
        + parts["lines"] * SECONDS_A_LINE / 60
        + parts["outputs"] * SECONDS_AN_OUTPUT / 60
        + parts["exercises"]
        + waits / 60
    )


def run_notebook(path: Path) -> tuple[float, float]:
    """Run a notebook in a copy; return the CPU seconds of all cells, and of the slowest."""
    with TemporaryDirectory() as folder:
        work_folder = Path(folder) / "notebooks"
        shutil.copytree(NOTEBOOKS, work_folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        notebook = nbformat.read(work_folder / path.name, as_version=4)
        cells = [
            part
            for cell in notebook.cells
            if cell.cell_type == "code"
            for part in (new_code_cell(_PROBE), cell)
        ]
        notebook.cells = [*cells, new_code_cell(_PROBE)]
        resources = {"metadata": {"path": str(work_folder)}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    times = [float(cell.outputs[0].text) for cell in notebook.cells[::2]]
    seconds = [b - a for a, b in pairwise(times)]
    return sum(seconds), max(seconds)


def _check_writable() -> None:
    """Exit with a sentence if the table of runs cannot be written, before a run takes minutes."""
    try:
        with RUNS.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        sys.exit(f"{RUNS.name} cannot be written ({error.strerror}): run it in a copy of your own.")


def main(numbers: list[str], *, run: bool) -> None:
    """Print the table of minutes; with `run`, run the notebooks first and store their seconds."""
    paths = [p for p in sorted(NOTEBOOKS.glob("*.ipynb")) if not numbers or p.stem[:2] in numbers]
    if run:
        _check_writable()
        runs = read_runs() if RUNS.stat().st_size else {}
        for path in paths:
            runs[path.stem[:2]] = run_notebook(path)
            print(path.stem[:2], runs[path.stem[:2]], flush=True)  # noqa: T201
        with RUNS.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["notebook", "seconds", "slowest"])
            writer.writerows(
                [number, f"{a:.1f}", f"{b:.1f}"] for number, (a, b) in sorted(runs.items())
            )
    print("notebook  words  lines  outputs  exercises  waits  minutes")  # noqa: T201
    for path in paths:
        parts = count_parts(path)
        waits = read_runs().get(path.stem[:2], (0.0, 0.0))[0] / 60
        print(  # noqa: T201
            f"{path.stem[:2]:>8}  {parts['words']:5.0f}  {parts['lines']:5.0f}  "
            f"{parts['outputs']:7.0f}  {parts['exercises']:9.1f}  {waits:5.1f}  "
            f"{compute_minutes(path):7.1f}"
        )


if __name__ == "__main__":
    main([a for a in sys.argv[1:] if a != "--run"], run="--run" in sys.argv)
