"""How long a notebook takes a reader: `python docs/teaching/minutes.py [--run] [NN ...]`.

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
RULES = {"02-c", "03-b", "06-b", "07-b", "11-a", "11-b"}
_PROBE = """import resource as _r
print(sum(_r.getrusage(k).ru_utime + _r.getrusage(k).ru_stime for k in (_r.RUSAGE_SELF, _r.RUSAGE_CHILDREN)))"""  # noqa: E501
_CHECKED = re.compile(r'^[^#\n]*ck\.check\("([^"]+)"', re.MULTILINE)


def count(path: Path) -> dict[str, float]:
    """Return words, code lines, outputs and minutes of exercises of one notebook."""
    cells = nbformat.read(path, as_version=4).cells
    text = " ".join(c.source for c in cells if c.cell_type == "markdown")
    text = re.sub(r"\]\([^)]*\)", "", text)
    codes = [c.source for c in cells if c.cell_type == "code"]
    lines = sum(bool(line.strip()) for source in codes for line in source.splitlines())
    # a cell whose last line is an assignment, an import or a marked answer shows nothing to look at
    looked = [
        s for s in codes if not re.match(r"(?s).*\n?(GUESS|import|from|ck\.check)\b[^\n]*$", s)
    ]
    kinds = load_exercises()
    minutes = 0.0
    for key in dict.fromkeys(_CHECKED.findall("\n".join(codes))):
        each = kinds[key]
        kind = "guess" if each.is_guess else "choice" if each.is_choice else "number"
        minutes += EXERCISE_MINUTES["rules" if key in RULES else kind]
    return {
        "words": len(text.split()), "lines": lines, "outputs": len(looked), "exercises": minutes,
    }  # fmt: skip


def read_runs() -> dict[str, tuple[float, float]]:
    """Return seconds of each notebook and of its slowest cell, by the notebook's number."""
    if not RUNS.exists():
        sys.exit(f"{RUNS.name} is missing: make it with `python docs/teaching/minutes.py --run`.")
    with RUNS.open(encoding="utf-8", newline="") as file:
        return {
            r["notebook"]: (float(r["seconds"]), float(r["slowest"])) for r in csv.DictReader(file)
        }


def minutes(path: Path) -> float:
    """Return the minutes that one notebook takes."""
    counted = count(path)
    waits, _ = read_runs().get(path.stem[:2], (0.0, 0.0))
    return (
        counted["words"] / WORDS_A_MINUTE
        + counted["lines"] * SECONDS_A_LINE / 60
        + counted["outputs"] * SECONDS_AN_OUTPUT / 60
        + counted["exercises"]
        + waits / 60
    )


def run(path: Path) -> tuple[float, float]:
    """Run a notebook in a copy; return the CPU seconds of all cells, and of the slowest."""
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "notebooks"
        shutil.copytree(NOTEBOOKS, fresh, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        notebook = nbformat.read(fresh / path.name, as_version=4)
        parted = [
            part
            for c in notebook.cells
            if c.cell_type == "code"
            for part in (new_code_cell(_PROBE), c)
        ]
        notebook.cells = [*parted, new_code_cell(_PROBE)]
        where = {"metadata": {"path": str(fresh)}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    marks = [float(c.outputs[0].text) for c in notebook.cells[::2]]
    spent = [b - a for a, b in pairwise(marks)]
    return sum(spent), max(spent)


def _check_writable() -> None:
    """End with a sentence where what is measured could not be kept: a run takes minutes."""
    try:
        with RUNS.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        sys.exit(f"{RUNS.name} cannot be written ({error.strerror}): run it in a copy of your own.")


def main(numbers: list[str], *, again: bool) -> None:
    """Print a table; run the notebooks first where that is asked."""
    paths = [p for p in sorted(NOTEBOOKS.glob("*.ipynb")) if not numbers or p.stem[:2] in numbers]
    if again:
        _check_writable()
        known = read_runs() if RUNS.stat().st_size else {}
        for path in paths:
            known[path.stem[:2]] = run(path)
            print(path.stem[:2], known[path.stem[:2]], flush=True)  # noqa: T201
        with RUNS.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["notebook", "seconds", "slowest"])
            writer.writerows([k, f"{a:.1f}", f"{b:.1f}"] for k, (a, b) in sorted(known.items()))
    print("notebook  words  lines  outputs  exercises  waits  minutes")  # noqa: T201
    for path in paths:
        c = count(path)
        waits = read_runs().get(path.stem[:2], (0.0, 0.0))[0] / 60
        print(  # noqa: T201
            f"{path.stem[:2]:>8}  {c['words']:5.0f}  {c['lines']:5.0f}  {c['outputs']:7.0f}  "
            f"{c['exercises']:9.1f}  {waits:5.1f}  {minutes(path):7.1f}"
        )


if __name__ == "__main__":
    main([a for a in sys.argv[1:] if a != "--run"], again="--run" in sys.argv)
