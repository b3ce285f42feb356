"""Run the notebooks of the course and store their outputs: `make notebooks`.

Text, tables and pictures are stored, which can be read without a kernel: on the web, in nbconvert
and in a lab that does not trust the file. Scripts, widgets, paths, times and names of this machine
are not stored. `--check` runs nothing: it lists notebooks whose outputs belong to other cells or to
another version.

    python docs/make_notebooks.py [--check] [NOTEBOOK ...]
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import re
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

import ctxkit
from ctxkit.plots.plotly_to_svg import render_svg_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
MAX_NOTEBOOK_BYTES = 600_000
"""Bytes of a notebook with its outputs."""
STORED_MIME_TYPES = ("text/plain", "text/html", "text/markdown", "image/png")
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
_HOVER_TEXT = re.compile(r"<title>.*?</title>", re.DOTALL)
_SVG = re.compile(r"<svg\b(?P<attributes>[^>]*)>(?P<body>.*?)</svg>", re.DOTALL)
_ATTRIBUTE = re.compile(r'\b(style|width|height|viewBox|aria-hidden)="([^"]*)"')
_MODEL_CLASS = re.compile(r" ctxkit-model-\w+")
_PROGRESS_BAR = re.compile(r"^.*\d+%\|.*\|.*\n?", re.MULTILINE)
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
# A picture sees no variables of the page around it, so those of the lab are in it, for both themes.
_PICTURE_STYLE = (
    "<style>svg{color:#1f1f1f;--jp-content-font-color1:#1f1f1f;--jp-content-font-color2:#4d4d4d;"
    "--jp-layout-color0:#fff}@media(prefers-color-scheme:dark){svg{color:#ececec;"
    "--jp-content-font-color1:#ececec;--jp-content-font-color2:#b8b8b8;--jp-layout-color0:#111}}"
    "</style>"
)


def main(arguments: list[str]) -> int:
    """Store or check the notebooks; return the status of the command."""
    is_check = "--check" in arguments
    named_paths = [Path(a).resolve() for a in arguments if not a.startswith("-")]
    paths = named_paths or sorted(NOTEBOOKS.glob("*.ipynb"))
    problems = list(find_problems(paths)) if is_check else list(store_notebooks(paths))
    sys.stdout.write("\n".join(problems) or f"{len(paths)} notebooks store what they show.")
    sys.stdout.write("\n")
    return bool(problems)


def find_problems(paths: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each notebook whose outputs belong to other cells or another version."""
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        for problem in check_notebook(notebook, path.stat().st_size):
            yield f"{path.name}: {problem}"


def check_notebook(notebook: Any, size: int) -> Iterator[str]:
    """Yield the problems of the outputs that a notebook stores.

    Args:
        notebook: the notebook.
        size: bytes of its file.
    """
    stored = notebook.metadata.get("ctxkit")
    if stored is None:
        yield "it stores no outputs: run `make notebooks`."
        return
    if stored != describe_source(notebook):
        yield "its outputs are of other cells or of another version: run `make notebooks`."
    if size > MAX_NOTEBOOK_BYTES:
        yield f"it has {size:,} bytes, more than {MAX_NOTEBOOK_BYTES:,}."
    for i, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            yield from (f"cell {i} {problem}" for problem in check_output(output))


def check_output(output: Any) -> Iterator[str]:
    """Yield the parts of an output that must not be stored."""
    if output.get("name") == "stderr":
        yield "stores a warning or the fault of a magic"
    other_types = set(output.get("data", ())) - set(STORED_MIME_TYPES)
    if other_types:
        yield f"stores {', '.join(sorted(other_types))}"
    text = json.dumps(output, ensure_ascii=False)
    if re.search(r"<script\b|<svg\b", text, re.IGNORECASE):
        yield "stores a script or a picture that an untrusted notebook does not show"
    for word, description in _private_words():
        if word in text:
            yield f"stores {description}"


def describe_source(notebook: Any) -> dict[str, str]:
    """Return the version of the kit and the hash of all code, to which outputs belong."""
    code = "\0".join(c.source for c in notebook.cells if c.cell_type == "code")
    return {"version": ctxkit.__version__, "code": hashlib.sha256(code.encode()).hexdigest()[:16]}


def store_notebooks(paths: Iterable[Path]) -> Iterator[str]:
    """Run notebooks and write them with their cleaned outputs; yield problems."""
    for path in paths:
        sys.stderr.write(f"{path.name} ...\n")
        notebook = run_notebook(path)
        encoded = nbformat.writes(notebook).rstrip("\n") + "\n"
        problems = list(check_notebook(notebook, len(encoded.encode())))
        yield from (f"{path.name}: {problem} It is left as it was." for problem in problems)
        if not problems:
            path.write_text(encoded, encoding="utf-8")
            sys.stderr.write(f"{path.name}: {len(encoded.encode()):,} bytes\n")


def run_notebook(path: Path) -> Any:
    """Return a notebook with its outputs, cleaned; it runs in a copy of its folder."""
    from nbclient import NotebookClient  # noqa: PLC0415  `--check` needs none

    notebook = nbformat.read(path, as_version=4)
    metadata = json.loads(json.dumps(notebook.metadata))
    with tempfile.TemporaryDirectory(prefix="notebooks-") as folder:
        work_folder = Path(folder) / "notebooks"
        shutil.copytree(
            path.parent, work_folder, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
        NotebookClient(
            notebook, timeout=600, kernel_name="python3", store_widget_state=False,
            record_timing=False, resources={"metadata": {"path": str(work_folder)}},
        ).execute()  # fmt: skip
        replacements = {folder: "", str(ROOT): "ctxkit"}
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = clean_outputs(cell.outputs, replacements)
    metadata.pop("widgets", None)
    # nbclient writes the exact version of Python, which says nothing about the outputs.
    notebook.metadata = nbformat.from_dict({**metadata, "ctxkit": describe_source(notebook)})
    return notebook


def clean_outputs(outputs: Iterable[Any], replacements: dict[str, str]) -> list[Any]:
    """Return the outputs of a cell as they are stored.

    Args:
        outputs: outputs from a kernel.
        replacements: paths of this machine, with the text that replaces each.
    """
    cleaned = (_clean_output(output, replacements) for output in _join_streams(outputs))
    return [output for output in cleaned if output is not None]


def _join_streams(outputs: Iterable[Any]) -> list[Any]:
    """Return the outputs with each run of one stream as one: a kernel splits it at any place."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _clean_output(output: Any, replacements: dict[str, str]) -> Any:
    """Return one output as it is stored; None if nothing of it is stored."""
    if output.output_type == "stream":
        # A terminal shows what was written after the last carriage return of a line.
        lines = (line.rpartition("\r")[2] for line in output.text.rstrip("\r").split("\n"))
        output.text = _without_paths(_PROGRESS_BAR.sub("", "\n".join(lines)), replacements)
        return output if output.text.strip() else None
    if output.output_type == "error":
        output.traceback = [_without_paths(line, replacements) for line in output.traceback]
        return output
    data = {
        mime_type: value if mime_type == "image/png" else _without_paths(value, replacements)
        for mime_type, value in output.data.items()
        if mime_type in STORED_MIME_TYPES
    }
    if not data.get("text/html", "?"):
        return None  # the line that is shown while a cell waits
    figure = output.data.get("application/vnd.plotly.v1+json")
    if figure is not None and "<svg" not in data.get("text/html", ""):
        data["text/html"] = render_svg_html(figure)
    has_widget = "application/vnd.jupyter.widget-view+json" in output.data
    if has_widget and "text/html" not in data:
        return None  # a progress bar or a widget without a static form
    if "text/html" in data:
        data["text/html"] = make_static_html(data["text/html"])
    output.data, output.metadata = data, {}
    return output


def make_static_html(html: str) -> str:
    """Return HTML without scripts, whose pictures an untrusted notebook shows too.

    A lab that does not trust a notebook strips `<svg>` and leaves its words, but shows images.
    """
    return _SVG.sub(_make_image, _MODEL_CLASS.sub("", _SCRIPT.sub("", html)))


def _make_image(match: re.Match[str]) -> str:
    attributes = dict(_ATTRIBUTE.findall(match["attributes"]))
    body = _HOVER_TEXT.sub("", match["body"])  # an image has no hover
    size_attributes = {
        name: attributes[name] for name in ("viewBox", "width", "height") if name in attributes
    }
    svg_attributes = "".join(f' {name}="{value}"' for name, value in size_attributes.items())
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"{svg_attributes}>{_PICTURE_STYLE}{body}</svg>'
    encoded = base64.b64encode(svg.encode()).decode()
    image_attributes = "".join(
        f' {name}="{attributes[name]}"'
        for name in ("style", "width", "height")
        if name in attributes
    )
    return f'<img alt=""{image_attributes} src="data:image/svg+xml;base64,{encoded}">'


def _without_paths(text: Any, replacements: dict[str, str]) -> Any:
    if isinstance(text, list):
        return [_without_paths(line, replacements) for line in text]
    if not isinstance(text, str):
        return text
    for path, word in sorted(replacements.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(f"{path}/", f"{word}/" if word else "").replace(path, word or ".")
    # Folders that a cell makes for itself have another name each time.
    folder = re.escape(tempfile.gettempdir())
    text = re.sub(rf"{folder}/([A-Za-z]+[-_])?[A-Za-z0-9_]{{8}}\b", "a temporary folder", text)
    clock = r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?"
    return _ADDRESS.sub("", re.sub(_today() + clock, "(the time of the run)", text))


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _private_words() -> Iterator[tuple[str, str]]:
    """Yield texts of this machine that no output may contain, each with a description."""
    yield str(ROOT), "a path of this machine"
    yield str(Path.home()) + "/", "a path of this machine"
    yield tempfile.gettempdir() + "/", "a path of this machine"
    user = getpass.getuser()
    if user != "root":  # a common word in many texts
        yield user, "the name of its user"
    yield _today(), "the time at which it ran"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
