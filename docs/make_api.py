"""Write `docs/api-overview.md` from the stub of the package: `python docs/make_api.py`.

A test compares the page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import ctxkit as ck

PAGE = Path(__file__).with_name("api-overview.md")
STUB = Path(ck.__file__).with_name("__init__.pyi")
HEAD = """# What `ctxkit` offers

`import ctxkit as ck`, then `ck.<tab>`. Where it makes sense, a function takes a session, a path or a list of them;
`ck.compare?` shows its signature and an example. The submodules at the end have less common functions.
`python docs/make_api.py` writes this page from the package."""


def format_page() -> str:
    """Return the page in Markdown."""
    sections = [HEAD]
    for title, names in list_public_names().items():
        rows = [f"| `ck.{name}` | {summarise_docstring(getattr(ck, name))} |" for name in names]
        sections.append(
            "\n".join([f"\n\n## {title.capitalize()}\n", "| | |", "| --- | --- |", *rows])
        )
    return "".join(sections) + "\n"


def list_public_names() -> dict[str, list[str]]:
    """Return the public names by task, as the comments of the stub group them."""
    groups: dict[str, list[str]] = {}
    task = ""
    for line in STUB.read_text("utf-8").partition("\n__version__")[0].splitlines():
        if line.startswith("# ") and line[2:3].islower() and not line.startswith("# ruff"):
            task = line[2:]
        elif task:
            groups.setdefault(task, []).extend(re.findall(r"\bas (\w+)", line))
    return groups


def summarise_docstring(value: object) -> str:
    """Return the first paragraph of a docstring on one line; of a module, its public names, too."""
    text = inspect.getdoc(value) or ""
    if isinstance(value, ModuleType):
        names = ", ".join(f"`{name}`" for name in dir(value) if not name.startswith("_"))
        return f"{_first_paragraph(text)} {names}".replace("|", "\\|")
    return _first_paragraph(text).replace("|", "\\|")


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")
