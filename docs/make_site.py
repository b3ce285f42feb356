# ruff: noqa: INP001  a script beside the pages that it makes
"""Make the site in build/site: `make docs`. Nothing is asked of a network.

Pages are those of docs/, the README and its neighbours; notebooks with their outputs, which are run
for it; a reference from the docstrings; a gallery of charts, each with the line that makes it; and
`llms.txt`. `--fast` takes the outputs of the last time.
"""

from __future__ import annotations

import html
import inspect
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat

import ctxkit as ck

ROOT = Path(__file__).parents[1]
DOCS, NOTEBOOKS = ROOT / "docs", ROOT / "notebooks"
PAGES, SITE, RUN = (
    ROOT / "build" / "site-src",
    ROOT / "build" / "site",
    ROOT / "build" / "notebooks",
)
HIDDEN = re.compile(r"<!-- run\n.*?^-->\n?", re.DOTALL | re.MULTILINE)
MOVED = {
    "CONTRIBUTING": "contributing",
    "SECURITY": "security",
    "CHANGELOG": "changelog",
    "README": "index",
}
NAV = {
    "Home": ["index.md"],
    "Course": ["course.md", "glossary.md", "write-a-policy.md"],
    "Guides": [
        "guide-live.md",
        "command-line.md",
        "polars-and-duckdb.md",
        "widgets.md",
        "configs.md",
        "coming-from.md",
    ],
    "Notebooks": [],
    "Gallery": ["gallery.md"],
    "Reference": ["frames.md", "scores.md", "systems.md", "formats.md"],
    "How far to trust it": [
        "trust.md",
        "conformance.md",
        "mission.md",
        "benchmarks.md",
        "review.md",
    ],
    "Develop": [
        "contributing.md",
        "architecture.md",
        "dependencies.md",
        "changelog.md",
        "security.md",
        "license.md",
    ],
}
AREAS = {
    "Read and write": ("read", "read_all", "write", "discover", "keep", "find", "Session", "Message", "Edit", "Usage"),
    "Tables and pictures": ("frame", "arrow", "audience", "report", "spend", "board", "explore", "break_even", "tune", "watch", "budget",
                            "savings", "thrash", "export", "read_snapshots"),
    "Replay and compare": ("replay", "score", "compare", "sweep", "grid", "advise", "gate", "load_rules", "validate", "calibrate",
                           "sections", "without", "index_or_paste", "with_memory", "History", "Room"),
    "Agents": ("fit", "Context", "history_processor", "record", "recorder", "team"),
    "Course": ("check", "contest"),
    "Errors": ("CtxkitError", "ReadError", "UnknownFormat", "UnknownPreset", "UnsoundHistory", "BadArguments",
               "ModelError", "StoreError"),
}  # fmt: skip
ROOMS = {
    "Plots": "ctxkit.plots", "Metrics": "ctxkit.metrics", "Presets": "ctxkit.presets", "Prices": "ctxkit.prices",
}  # fmt: skip
GALLERY = (
    ("How a context grew", "ck.plots.growth(session)"),
    ("Recorded and replayed, in one picture", 'ck.plots.growth({"recorded": session, "pi": ck.replay(session, "pi")})'),
    ("What filled the window", "ck.plots.composition(session)"),
    ("What a compaction took", "ck.plots.diff(session, 0)"),
    ("What the cache served", "ck.plots.cache(session)"),
    ("One prompt, read and written", "ck.plots.strip(session, 176)"),
    ("What was lost, and needed later", "ck.plots.loss(session)"),
    ("What each compaction saved", "ck.plots.savings(session)"),
    ("A budget of tokens sent", "ck.plots.budget(session)"),
    ("Compactions in a row", 'ck.plots.thrash(ck.replay(session, "pi"))'),
    ("How far the plain count is off", "ck.plots.calibration(session)"),
    ("Dollars against loss", 'ck.plots.frontier(ck.sweep([session], ["pi", "codex", "fuseraft", "none"], loss=True))'),
)  # fmt: skip
GRID = """grid = ck.grid(ck.presets.fased, context_window=48_000,
               reserve_tokens=[6_000, 9_000, 12_000], keep_recent_tokens=[4_000, 9_000, 14_000])
ck.plots.heatmap(ck.sweep([session], grid), "reserve_tokens", "keep_recent_tokens")"""
VIEWS = """team = ck.team("scripted")
team.run("Write a small program, and test it.")
ck.plots.views(ck.compare(team, "views"))"""
GALLERY = (
    *GALLERY,
    ("Two settings, one figure", GRID),
    ("What each agent of a team is sent", VIEWS),
)
"""Each chart of `ck.plots`, on the session that ships with the kit."""


def main() -> None:
    """Make the pages, the site, and look at its links."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    copied()
    reference()
    gallery()
    notebooks(fast="--fast" in sys.argv)
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8") + nav()
    made = ROOT / "build" / "mkdocs.yml"
    config = config.replace("build/", "").replace('paths: ["."]', 'paths: [".."]')
    made.write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(made)]
    subprocess.run(command, check=True)  # noqa: S603  our own
    llms()
    wrong = broken(SITE)
    for each in wrong:
        print(each)  # noqa: T201
    if wrong:
        raise SystemExit(f"{len(wrong)} links of the site lead nowhere or ask a network.")
    print(f"{SITE}/index.html: {len(list(SITE.rglob('*.html')))} pages")  # noqa: T201


# -- pages -------------------------------------------------------------------------------------------------------------


def page(name: str, text: str) -> None:
    """Write a page, without what only tests read, its links those of the site."""
    text = HIDDEN.sub("", text)
    for old, new in MOVED.items():
        text = re.sub(rf"\]\((?:\.\./)*{old}\.md", f"]({new}.md", text)
    text = re.sub(r"\]\((?:\.\./)*docs/decisions(?:/)?\)", "](decisions/index.md)", text)
    text = re.sub(r"\]\((?:\.\./)*docs/", "](", text).replace("](LICENSE)", "](license.md)")
    text = re.sub(r"\]\((?:\.\./)*(notebooks/[\w-]+)\.ipynb", r"](\1.md", text)
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copied() -> None:
    """Copy the pages that are written, and the files that they show."""
    for source in sorted(DOCS.glob("*.md")):
        page(source.name, source.read_text(encoding="utf-8"))
    for old, new in MOVED.items():
        page(f"{new}.md", (ROOT / f"{old}.md").read_text(encoding="utf-8"))
    page(
        "license.md", f"# Licence\n\n```text\n{(ROOT / 'LICENSE').read_text(encoding='utf-8')}```\n"
    )
    for source in sorted((DOCS / "teaching").glob("*.md")):
        page(f"teaching/{source.name}", source.read_text(encoding="utf-8"))
    rows = ["# Decisions", ""]
    for source in sorted((DOCS / "decisions").glob("*.md")):
        text = source.read_text(encoding="utf-8")
        page(f"decisions/{source.name}", text)
        rows.append(f"- [{text.splitlines()[0].lstrip('# ')}]({source.name})")
    page("decisions/index.md", "\n".join(rows) + "\n")
    for name in ("frontier.svg", "frontier.csv", "gate-workflow.yml"):
        shutil.copy(DOCS / name, PAGES / name)
    shutil.copy(DOCS / "site" / "site.css", PAGES / "site.css")


def reference() -> None:
    """Write the pages of the reference: each public name from its docstring."""
    told = {name for names in AREAS.values() for name in names}
    missing = set(ck.__all__) - told - set(ck._ROOMS)  # noqa: SLF001  the face is ours
    if missing or told - set(ck.__all__):
        raise SystemExit(
            f"AREAS of docs/make_site.py should have {sorted(missing)} and not {sorted(told - set(ck.__all__))}."
        )
    links = ["# API", ""]
    for area, names in AREAS.items():
        file = area.lower().replace(" ", "-")
        page(
            f"api/{file}.md",
            "\n".join([f"# {area}", "", *(f"::: {place(getattr(ck, n))}\n" for n in names)]),
        )
        links.append(f"- [{area}]({file}.md): {', '.join(f'`ck.{n}`' for n in names)}")
    for title, room in ROOMS.items():
        module = sys.modules.get(room) or __import__(room, fromlist=["x"])
        names = [
            n
            for n in dir(module)
            if inspect.isroutine(found := getattr(module, n)) or inspect.isclass(found)
        ]
        file = title.lower()
        head = f"# {title}\n\n{inspect.getdoc(module) or ''}\n"
        page(
            f"api/{file}.md",
            "\n".join([head, *(f"::: {place(getattr(module, n))}\n" for n in names)]),
        )
        links.append(f"- [{title}]({file}.md): {', '.join(f'`ck.{file}.{n}`' for n in names)}")
    page("api/index.md", "\n".join(links) + "\n")


def place(what: Any) -> str:
    """Return where a public name is written."""
    what = inspect.unwrap(what)
    return f"{what.__module__}.{what.__qualname__}"


def gallery() -> None:
    """Write the gallery: every chart, drawn by the line beside it."""
    session = ck.read(ck.samples.path("billing"))
    known = {re.search(r"ck\.plots\.(\w+)", line)[1] for _, line in GALLERY}
    if known != set(ck.plots.__all__):
        raise SystemExit(
            f"GALLERY of docs/make_site.py lacks {sorted(set(ck.plots.__all__) - known)}."
        )
    out = ["# Gallery", "", "Every chart of `ck.plots`, made by the line above it; a script draws this page anew for",
           "each build. In a notebook they are interactive; here they are the twins that need no scripts.", "",
           "```python", "import ctxkit as ck", "", 'session = ck.read(ck.samples.path("billing"))', "```", ""]  # fmt: skip
    for title, line in GALLERY:
        before, _, last = line.rpartition("\nck.")
        names = {"ck": ck, "session": session}
        with (
            TemporaryDirectory() as folder,
            chdir(folder),
        ):  # a team keeps its session where it works
            exec(before, names)  # noqa: S102  our own lines
            chart = eval(f"ck.{last}" if before else line, names)  # noqa: S307  as above
        out += [f"## {title}", "", "```python", line, "```", "", shown(chart.to_html()), ""]
    page("gallery.md", "\n".join(out))


def shown(made: str) -> str:
    """Return HTML as a block that Markdown leaves alone."""
    without_gaps = re.sub(r"\n\s*\n", "\n", made)
    return f'<div class="ctxkit-output">{without_gaps}</div>' if made.strip() else ""


# -- notebooks -----------------------------------------------------------------------------------------------------


def notebooks(*, fast: bool) -> None:
    """Run the notebooks and write them as pages with what they show."""
    from nbclient import NotebookClient  # noqa: PLC0415  the tests of this script need none

    work = ROOT / "build" / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(NOTEBOOKS, work)
    RUN.mkdir(parents=True, exist_ok=True)
    for source in sorted(NOTEBOOKS.glob("*.ipynb")):
        kept = RUN / source.name
        if not (fast and kept.is_file()):
            book = nbformat.read(source, as_version=4)
            resources = {"metadata": {"path": str(work)}}
            NotebookClient(
                book,
                timeout=600,
                kernel_name="python3",
                store_widget_state=False,
                resources=resources,
            ).execute()
            nbformat.write(book, kept)
        page(
            f"notebooks/{source.stem}.md",
            as_markdown(nbformat.read(kept, as_version=4), source.name),
        )


def as_markdown(book: Any, name: str) -> str:
    """Return a notebook that was run as Markdown."""
    out: list[str] = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"\]\((?!http|#)([\w-]+)\.ipynb", r"](\1.md", cell.source)
            out += [re.sub(r"\]\(\.\./docs/", "](../", text), ""]
            continue
        magic = cell.source.lstrip().startswith("%")
        out += [f"```{'text' if magic else 'python'}", cell.source, "```", ""]
        out += [block for o in cell.get("outputs", ()) if (block := output(o))]
    first, *rest = out
    where = f"*This page is the notebook [`{name}`](https://github.com/ctxkit/ctxkit/blob/main/notebooks/{name}), run.*"
    return "\n".join([first, "", where, *rest]) + "\n"


def output(told: Any) -> str:
    """Return what a cell showed as a block of HTML; empty where there is nothing to see."""
    data = told.get("data", {})
    if "text/html" in data:
        return shown(data["text/html"]) + "\n"
    if "image/png" in data:
        return shown(f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">') + "\n"
    text = told.get("text") or data.get("text/plain") or ""
    return shown(f"<pre>{html.escape(text)}</pre>") + "\n" if text.strip() else ""


# -- around the pages --------------------------------------------------------------------------------------------------


def nav() -> str:
    """Return the navigation: what `NAV` says, the notebooks, decisions and the reference."""
    found = {
        **NAV,
        "Notebooks": [f"notebooks/{p.stem}.md" for p in sorted(NOTEBOOKS.glob("*.ipynb"))],
    }
    found["Reference"] = ["api/index.md", *(f"api/{p}" for p in sorted(x.name for x in (PAGES / "api").glob("*.md"))
                                            if p != "index.md"), *NAV["Reference"]]  # fmt: skip
    found["Develop"] = [
        *NAV["Develop"],
        *(f"decisions/{p.name}" for p in sorted((PAGES / "decisions").glob("*.md"))),
    ]
    lines = ["nav:"]
    for name, pages in found.items():
        lines += [f"  - {name}:", *(f"      - {p}" for p in pages)]
    return "\n" + "\n".join(lines) + "\n"


def llms() -> None:
    """Write `llms.txt` (what there is, with addresses) and `llms-full.txt` (all pages that are written by hand)."""
    rows, full = ["# ctxkit", "", f"> {ck.__doc__.split(chr(10))[0]}", ""], []
    for area, names in {
        **NAV,
        "Notebooks": [f"notebooks/{p.stem}.md" for p in sorted(NOTEBOOKS.glob("*.ipynb"))],
    }.items():
        rows += [f"## {area}", ""]
        for name in names:
            text = (PAGES / name).read_text(encoding="utf-8")
            rows.append(
                f"- [{text.splitlines()[0].lstrip('# ')}]({name.removesuffix('.md')}.html): {summary(text)}"
            )
            if area in ("Home", "Guides", "Reference"):
                full.append(text)
        rows.append("")
    (SITE / "llms.txt").write_text("\n".join(rows), encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")


def summary(text: str) -> str:
    """Return the first sentence of a page."""
    body = " ".join(t for t in text.split("\n\n")[1:4] if t and t[0] not in "#|`<*").replace(
        "\n", " "
    )
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", body).split(". ")[0].rstrip(".")[:200] + "."


class Links(HTMLParser):
    """The addresses that a page leads to, those that it loads, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag."""
        told = dict(attrs)
        if told.get("id"):
            self.places.add(str(told["id"]))
        if tag == "a" and told.get("href"):
            self.leads.append(str(told["href"]))
        loaded = told.get("src") if tag != "link" else told.get("href")
        if loaded and told.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(str(loaded))


def broken(site: Path) -> list[str]:
    """Return the links that lead nowhere in the site, and what a page would load from a network."""
    pages = {
        p.resolve(): Links(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html"))
    }
    wrong: list[str] = []
    for path, found in pages.items():
        name = path.relative_to(site.resolve())
        wrong += [f"{name}: asks {a}" for a in found.loads if re.match(r"(https?:)?//", a)]
        local = [a for a in (*found.leads, *found.loads) if not re.match(r"[a-z]+:|//", a)]
        for address in local if name.name != "404.html" else []:
            file, _, anchor = address.partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.exists():
                wrong.append(f"{name}: {address} is not there")
            elif anchor and target in pages and anchor not in pages[target].places:
                wrong.append(f"{name}: {address} has no such place")
    return wrong


if __name__ == "__main__":
    main()
