"""Make the site in build/site, without network access: `make docs`.

It has the pages of docs/ and those beside the README; the notebooks, which are run for their
outputs; a reference from the docstrings; a gallery of charts, each with the code that makes it; and
`llms.txt`. `--fast` uses the outputs of the last run.
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
from site_links import find_broken_links  # noqa: E402
from site_notebooks import wrap_html  # noqa: E402

import ctxkit as ck  # noqa: E402

DOCS, NOTEBOOKS = ROOT / "docs", ROOT / "notebooks"
PAGES, SITE, NOTEBOOK_OUTPUTS = (
    ROOT / "build" / "site-src",
    ROOT / "build" / "site",
    ROOT / "build" / "notebooks",
)
HIDDEN_COMMENTS = re.compile(r"<!-- run\n.*?^-->\n?", re.DOTALL | re.MULTILINE)
BADGES = re.compile(r"^(\[!\[[^]]*\]\(https:[^)]*\)\]\([^)]*\)\n)+\n", re.MULTILINE)
"""Badges are pictures of another server, which no page of the site loads."""
RENAMED_PAGES = {
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
HEATMAP_CODE = """grid = ck.grid(ck.presets.fased, context_window=48_000,
               reserve_tokens=[6_000, 9_000, 12_000], keep_recent_tokens=[4_000, 9_000, 14_000])
ck.plots.heatmap(ck.sweep([session], grid), "reserve_tokens", "keep_recent_tokens")"""
VIEWS_CODE = """team = ck.team("scripted")
team.run("Write a small program, and test it.")
ck.plots.views(ck.compare(team, "views"))"""
GALLERY = (
    *GALLERY,
    ("Two settings, one figure", HEATMAP_CODE),
    ("What each agent of a team is sent", VIEWS_CODE),
)
"""Title and code of each chart of `ck.plots`, on a session that ships with the kit."""


def main() -> None:
    """Make the pages and the site, and check its links."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    copy_pages()
    write_reference()
    write_gallery()
    notebook_pages = site_notebooks.run_notebooks(
        NOTEBOOKS,
        output_folder=NOTEBOOK_OUTPUTS,
        work_folder=ROOT / "build" / "work",
        fast="--fast" in sys.argv,
    )
    for source, text in notebook_pages:
        write_page(f"notebooks/{source.stem}.md", text)
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8") + format_nav()
    config_file = ROOT / "build" / "mkdocs.yml"
    config = config.replace("build/", "").replace('paths: ["."]', 'paths: [".."]')
    config_file.write_text(config, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "-f",
        str(config_file),
    ]
    subprocess.run(command, check=True)  # noqa: S603  our own command
    search_offline(SITE)
    write_llms_files()
    problems = find_broken_links(SITE)
    for problem in problems:
        print(problem)  # noqa: T201
    if problems:
        raise SystemExit(f"{len(problems)} links of the site lead nowhere or ask a network.")
    print(f"{SITE}/index.html: {len(list(SITE.rglob('*.html')))} pages")  # noqa: T201


# -- pages -------------------------------------------------------------------------------------------------------------


def write_page(name: str, text: str) -> None:
    """Write a page of the site, without hidden comments and with links of the site."""
    text = BADGES.sub("", HIDDEN_COMMENTS.sub("", text))
    to_root = "../" * name.count("/")  # a README beside a page below is that page's own
    for old, new in RENAMED_PAGES.items():
        text = re.sub(
            rf"\]\((?:\.\./){'+' if to_root else '*'}{old}\.md", f"]({to_root}{new}.md", text
        )
    text = re.sub(r"\]\((?:\.\./)*docs/decisions(?:/)?\)", "](decisions/index.md)", text)
    text = re.sub(r"\]\((?:\.\./)*docs/", "](", text).replace("](LICENSE)", "](license.md)")
    text = re.sub(r"\]\((?:\.\./)*(notebooks/[\w-]+)\.ipynb", r"](\1.md", text)
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy_pages() -> None:
    """Copy the pages that are written by hand or by other scripts, and the files that they show."""
    for source in sorted(DOCS.glob("*.md")):
        write_page(source.name, source.read_text(encoding="utf-8"))
    for old, new in RENAMED_PAGES.items():
        write_page(f"{new}.md", (ROOT / f"{old}.md").read_text(encoding="utf-8"))
    write_page(
        "license.md", f"# Licence\n\n```text\n{(ROOT / 'LICENSE').read_text(encoding='utf-8')}```\n"
    )
    for source in sorted((*(DOCS / "teaching").glob("*.md"), *(DOCS / "questions").glob("*.md"))):
        write_page(f"{source.parent.name}/{source.name}", source.read_text(encoding="utf-8"))
    lines = ["# Decisions", ""]
    for source in sorted((DOCS / "decisions").glob("*.md")):
        text = source.read_text(encoding="utf-8")
        write_page(f"decisions/{source.name}", text)
        lines.append(f"- [{text.splitlines()[0].lstrip('# ')}]({source.name})")
    write_page("decisions/index.md", "\n".join(lines) + "\n")
    for name in (*("frontier.csv", "fuseraft_files.csv", "gate-workflow.yml", "ci-matrix.yml"),):
        shutil.copy(DOCS / name, PAGES / name)
    shutil.copytree(DOCS / "pictures", PAGES / "pictures", dirs_exist_ok=True)
    shutil.copy(DOCS / "site" / "site.css", PAGES / "site.css")


def write_reference() -> None:
    """Write the pages of the reference, which name each public object for mkdocstrings."""
    links = ["# API", ""]
    for task, all_names in make_api.list_public_names().items():
        names = [name for name in all_names if not isinstance(getattr(ck, name), ModuleType)]
        if not names:
            continue
        area, file = task.capitalize(), task.replace(" ", "-")
        write_page(
            f"api/{file}.md",
            "\n".join(
                [
                    f"# {area}",
                    "",
                    *(f"::: {get_qualified_name(getattr(ck, name))}\n" for name in names),
                ]
            ),
        )
        links.append(f"- [{area}]({file}.md): {', '.join(f'`ck.{name}`' for name in names)}")
    for title, module_name in SUBMODULES.items():
        module = sys.modules.get(module_name) or __import__(module_name, fromlist=["x"])
        names = [
            name
            for name in dir(module)
            if inspect.isroutine(member := getattr(module, name)) or inspect.isclass(member)
        ]
        file = title.lower()
        head = f"# {title}\n\n{inspect.getdoc(module) or ''}\n"
        write_page(
            f"api/{file}.md",
            "\n".join(
                [head, *(f"::: {get_qualified_name(getattr(module, name))}\n" for name in names)]
            ),
        )
        links.append(
            f"- [{title}]({file}.md): {', '.join(f'`ck.{file}.{name}`' for name in names)}"
        )
    write_page("api/index.md", "\n".join(links) + "\n")


def get_qualified_name(value: Any) -> str:
    """Return module and qualified name of an object."""
    value = inspect.unwrap(value)
    return f"{value.__module__}.{value.__qualname__}"


def write_gallery() -> None:
    """Write the gallery: every chart below the code that draws it."""
    session = ck.read(ck.samples.path("billing"))
    drawn = {re.search(r"ck\.plots\.(\w+)", code)[1] for _, code in GALLERY}
    if drawn != set(ck.plots.__all__):
        raise SystemExit(
            f"GALLERY of docs/make_site.py lacks {sorted(set(ck.plots.__all__) - drawn)}."
        )
    lines = ["# Gallery", "", "Every chart of `ck.plots`, made by the line above it; a script draws this page anew for",
           "each build. In a notebook they are interactive; here they are the twins that need no scripts.", "",
           "```python", "import ctxkit as ck", "", 'session = ck.read(ck.samples.path("billing"))', "```", ""]  # fmt: skip
    for title, code in GALLERY:
        setup, _, plot = code.rpartition("\nck.")
        namespace = {"ck": ck, "session": session}
        with (
            TemporaryDirectory() as folder,
            chdir(folder),
        ):  # a team keeps its session where it works
            exec(setup, namespace)  # noqa: S102  our own code
            chart = eval(f"ck.{plot}" if setup else code, namespace)  # noqa: S307  as above
            if "team" in namespace:
                namespace["team"].close()
        lines += [f"## {title}", "", "```python", code, "```", "", wrap_html(chart.to_html()), ""]
    write_page("gallery.md", "\n".join(lines))


# -- around the pages --------------------------------------------------------------------------------------------------


def format_nav() -> str:
    """Return the navigation in YAML: `NAV`, the notebooks, decisions and the reference."""
    pages_by_area = {
        **NAV,
        "Notebooks": [f"notebooks/{page.stem}.md" for page in sorted(NOTEBOOKS.glob("*.ipynb"))],
    }
    pages_by_area["Reference"] = ["api/index.md", *(f"api/{page}" for page in sorted(x.name for x in (PAGES / "api").glob("*.md"))
                                            if page != "index.md"), *NAV["Reference"]]  # fmt: skip
    pages_by_area["Develop"] = [
        *NAV["Develop"],
        *(f"decisions/{page.name}" for page in sorted((PAGES / "decisions").glob("*.md"))),
    ]
    lines = ["nav:"]
    for name, pages in pages_by_area.items():
        lines += [f"  - {name}:", *(f"      - {page}" for page in pages)]
    return "\n" + "\n".join(lines) + "\n"


def search_offline(site: Path) -> None:
    """Let the search work in pages opened from files: load its index as a script, without a worker."""
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    (site / "search" / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
    shutil.copy(DOCS / "site" / "offline.js", site / "offline.js")
    for page_path in site.rglob("*.html"):
        to_root = "../" * (len(page_path.relative_to(site).parts) - 1)
        text = page_path.read_text(encoding="utf-8")
        script = f'<script src="{to_root}offline.js"></script></head>'
        page_path.write_text(text.replace("</head>", script, 1), encoding="utf-8")


def write_llms_files() -> None:
    """Write `llms.txt`, a list of pages with addresses, and `llms-full.txt`, the texts of most pages."""
    lines, full_texts = ["# ctxkit", "", f"> {ck.__doc__.split(chr(10))[0]}", ""], []
    for area, names in {
        **NAV,
        "Notebooks": [f"notebooks/{p.stem}.md" for p in sorted(NOTEBOOKS.glob("*.ipynb"))],
    }.items():
        lines += [f"## {area}", ""]
        for name in names:
            text = (PAGES / name).read_text(encoding="utf-8")
            lines.append(
                f"- [{text.splitlines()[0].lstrip('# ')}]({name.removesuffix('.md')}.html): {summarise_page(text)}"
            )
            if area in ("Home", "Guides", "Reference"):
                full_texts.append(text)
        lines.append("")
    (SITE / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(full_texts), encoding="utf-8")


def summarise_page(text: str) -> str:
    """Return the first sentence of a page that is no code, table, picture or list."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    # the licence is code as a whole: of such a page the code is read, too
    paragraphs = [*without_code.split("\n\n")[1:], *text.split("\n\n")[1:]]
    no_sentence = ("#", "|", "<", "*", "!", "-", "```")
    lines = (paragraph.strip().replace("\n", " ") for paragraph in paragraphs)
    body = next((line for line in lines if line and not line.startswith(no_sentence)), "")
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", body).split(". ")[0].rstrip(".")[:200] + "."


if __name__ == "__main__":
    main()
