"""Make the site in build/site, without network access: `make docs`.

Its pages are those of docs/, the README and the other pages beside it; the notebooks, which are run
for their outputs; a reference from the docstrings; a gallery of charts, each with the line that
makes it; and `llms.txt`. `--fast` uses the outputs of the last run.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import make_api  # noqa: E402  beside this file
import site_notebooks  # noqa: E402
from site_links import broken  # noqa: E402
from site_notebooks import shown  # noqa: E402

import ctxkit as ck  # noqa: E402

DOCS, NOTEBOOKS = ROOT / "docs", ROOT / "notebooks"
PAGES, SITE, RUN = (
    ROOT / "build" / "site-src",
    ROOT / "build" / "site",
    ROOT / "build" / "notebooks",
)
HIDDEN = re.compile(r"<!-- run\n.*?^-->\n?", re.DOTALL | re.MULTILINE)
BADGES = re.compile(r"^(\[!\[[^]]*\]\(https:[^)]*\)\]\([^)]*\)\n)+\n", re.MULTILINE)
"""Pictures of another server, which a page of the site does not ask for."""
MOVED = {
    "CONTRIBUTING": "contributing",
    "SECURITY": "security",
    "CHANGELOG": "changelog",
    "README": "index",
}
NAV = {
    "Home": ["index.md"],
    "Questions": [
        "questions/README.md",
        "questions/why-did-it-compact.md",
        "questions/when-should-it-compact.md",
        "questions/what-did-the-pause-cost.md",
        "questions/which-settings-for-my-agent.md",
        "questions/my-rules-were-lost.md",
        "questions/where-did-my-limit-go.md",
        "questions/what-did-the-compaction-take.md",
    ],
    "Course": ["course.md", "glossary.md", "write-a-policy.md"],
    "Guides": [
        "guide-live.md",
        "models.md",
        "prompt-sections.md",
        "memory.md",
        "when.md",
        "keep-rules.md",
        "exam.md",
        "idle.md",
        "forecasts.md",
        "tools.md",
        "session-files.md",
        "teams.md",
        "own-loop.md",
        "magics.md",
        "command-line.md",
        "polars-and-duckdb.md",
        "widgets.md",
        "front-ends.md",
        "configs.md",
        "coming-from.md",
    ],
    "Notebooks": [],
    "Gallery": ["gallery.md"],
    "Reference": [
        "api-overview.md",
        "frames.md",
        "scores.md",
        "systems.md",
        "formats.md",
        "providers.md",
    ],
    "How far to trust it": [
        "limits.md",
        "trust.md",
        "conformance.md",
        "mission.md",
        "benchmarks.md",
    ],
    "Develop": [
        "contributing.md",
        "architecture.md",
        "dependencies.md",
        "changelog.md",
        "renames.md",
        "security.md",
        "license.md",
    ],
}
SUBMODULES = {
    "Plots": "ctxkit.plots", "Metrics": "ctxkit.metrics", "Presets": "ctxkit.presets", "Prices": "ctxkit.tokens.prices",
}  # fmt: skip
GALLERY = (
    ("How a context grew", "ck.plots.growth(session)"),
    ("Recorded and replayed, in one picture", 'ck.plots.growth({"recorded": session, "pi": ck.replay(session, "pi")})'),
    ("What filled the window", "ck.plots.composition(session)"),
    ("What a compaction took", "ck.plots.diff(session, 0)"),
    ("What the cache served", "ck.plots.cache(session)"),
    ("One prompt, read and written", "ck.plots.strip(session, 176)"),
    ("What was lost, and needed later", "ck.plots.loss(session)"),
    ("Until when each rule of the user stood", "ck.plots.user_rules(session)"),
    ("What each compaction saved", "ck.plots.savings(session)"),
    ("What a pause costs", "ck.plots.idle(session)"),
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
    ran = site_notebooks.run(
        NOTEBOOKS, kept_in=RUN, work=ROOT / "build" / "work", fast="--fast" in sys.argv
    )
    for source, text in ran:
        page(f"notebooks/{source.stem}.md", text)
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8") + nav()
    made = ROOT / "build" / "mkdocs.yml"
    config = config.replace("build/", "").replace('paths: ["."]', 'paths: [".."]')
    made.write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(made)]
    subprocess.run(command, check=True)  # noqa: S603  our own
    search_offline(SITE)
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
    text = BADGES.sub("", HIDDEN.sub("", text))
    up = "../" * name.count("/")  # a README beside a page below is that page's own
    for old, new in MOVED.items():
        text = re.sub(rf"\]\((?:\.\./){'+' if up else '*'}{old}\.md", f"]({up}{new}.md", text)
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
    for source in sorted((*(DOCS / "teaching").glob("*.md"), *(DOCS / "questions").glob("*.md"))):
        page(f"{source.parent.name}/{source.name}", source.read_text(encoding="utf-8"))
    rows = ["# Decisions", ""]
    for source in sorted((DOCS / "decisions").glob("*.md")):
        text = source.read_text(encoding="utf-8")
        page(f"decisions/{source.name}", text)
        rows.append(f"- [{text.splitlines()[0].lstrip('# ')}]({source.name})")
    page("decisions/index.md", "\n".join(rows) + "\n")
    for name in (
        *("frontier.svg", "frontier.csv", "fuseraft_files.csv"),
        *("gate-workflow.yml", "ci-matrix.yml"),
    ):
        shutil.copy(DOCS / name, PAGES / name)
    shutil.copytree(DOCS / "pictures", PAGES / "pictures", dirs_exist_ok=True)
    shutil.copy(DOCS / "site" / "site.css", PAGES / "site.css")


def reference() -> None:
    """Write the pages of the reference: each public name from its docstring."""
    links = ["# API", ""]
    for task, listed in make_api.public_names().items():
        names = [n for n in listed if not isinstance(getattr(ck, n), ModuleType)]
        if not names:
            continue
        area, file = task.capitalize(), task.replace(" ", "-")
        page(
            f"api/{file}.md",
            "\n".join([f"# {area}", "", *(f"::: {place(getattr(ck, n))}\n" for n in names)]),
        )
        links.append(f"- [{area}]({file}.md): {', '.join(f'`ck.{n}`' for n in names)}")
    for title, name in SUBMODULES.items():
        module = sys.modules.get(name) or __import__(name, fromlist=["x"])
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
            if "team" in names:
                names["team"].close()
        out += [f"## {title}", "", "```python", line, "```", "", shown(chart.to_html()), ""]
    page("gallery.md", "\n".join(out))


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


def search_offline(site: Path) -> None:
    """Let the search work in pages that are opened from files: its index as a script, no worker."""
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    (site / "search" / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
    shutil.copy(DOCS / "site" / "offline.js", site / "offline.js")
    for page_path in site.rglob("*.html"):
        up = "../" * (len(page_path.relative_to(site).parts) - 1)
        text = page_path.read_text(encoding="utf-8")
        script = f'<script src="{up}offline.js"></script></head>'
        page_path.write_text(text.replace("</head>", script, 1), encoding="utf-8")


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


if __name__ == "__main__":
    main()
