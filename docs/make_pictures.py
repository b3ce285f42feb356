"""Draw the pictures of README and docs: `python docs/make_pictures.py` writes docs/pictures/*.svg.

Each shows real output for a bundled session: the text that a command prints, or a chart.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import wrap

from IPython.core.interactiveshell import InteractiveShell

import ctxkit as ck

PICTURES = Path(__file__).parent / "pictures"
COMMANDS = {
    "when": ("when research.jsonl.gz", 24),
    "spend": ("spend billing.jsonl", 18),
    "compare": (
        "compare billing.jsonl -r pi -r codex -r strands -r inspect_edit --max-loss 0.2",
        13,
    ),
}
"""Commands by the name of their picture, with the largest number of lines drawn, which end a
paragraph."""
CHARTS = {
    "window": (ck.plots.growth, "Size of every prompt of a session"),
    "composition": (ck.plots.composition, "What every prompt of a session consists of"),
    "cache": (ck.plots.cache, "What the prompt cache served at every call"),
    "loss": (ck.plots.loss, "What each compaction left in sight, by kind"),
    "rules": (ck.plots.user_rules, "The calls whose prompts state each rule"),
    "idle": (ck.plots.idle, "Dollars of a pause by its length"),
}
"""Charts of the bundled session `billing` by the name of their picture, with a text for a screen reader."""
CHARACTER_WIDTH, LINE_HEIGHT = 8.4, 19
"""Width of a character and height of a line, in pixels."""
STYLE = """
.page{fill:#ffffff;stroke:#d0d7de}.text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}
.answer{font-weight:700}.command{fill:#57606a}
@media(prefers-color-scheme:dark){.page{fill:#0d1117;stroke:#3d444d}.text{fill:#e6edf3}
.command{fill:#b6bec9}}
"""
CHART_STYLE = "svg{color:#57606a}@media(prefers-color-scheme:dark){svg{color:#b6bec9}}"
_VIEW_BOX = re.compile(r'viewBox="0 0 (\d+) (\d+)"')
_LEGEND_ENTRY = re.compile(
    r'<svg width="24" height="10" aria-hidden="true">(.*?)</svg> (.*?)</span>'
)
LEGEND_LETTER_WIDTH, LEGEND_LINE_HEIGHT = 6.4, 18
"""Width of a letter and height of a line of a legend, in pixels."""


def draw_terminal(command: str, lines: list[str]) -> str:
    """Return an SVG of a command and what it prints; the first paragraph is the answer, in bold."""
    answer_lines = lines.index("") if "" in lines else 1
    command_lines = wrap(f"$ {command}", 78, subsequent_indent="    ", break_on_hyphens=False)
    rows = [("command", line) for line in " \\\n".join(command_lines).splitlines()] + [("", "")]
    rows += [("answer" if i < answer_lines else "", line) for i, line in enumerate(lines)]
    width, height = 80 * CHARACTER_WIDTH + 32, len(rows) * LINE_HEIGHT + 24
    texts = "".join(
        f'<text class="text {kind}" x="16" y="{(i + 1) * LINE_HEIGHT + 8}" xml:space="preserve">'
        f"{html.escape(line)}</text>\n"
        for i, (kind, line) in enumerate(rows)
    )
    label = html.escape(" ".join(lines[:answer_lines]), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="{label}" width="{width:.0f}"><style>{STYLE}</style>\n'
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>\n'
        f"{texts}</svg>\n"
    )


def draw_command(command: str, max_lines: int, folder: Path) -> str:
    """Return the SVG of a command and the first lines that it prints; "…" where there are more."""
    lines = run_command(command, folder)
    return draw_terminal(
        f"ctxkit {command}", [*lines[:max_lines], *["…"] * (len(lines) > max_lines)]
    )


def run_command(command: str, folder: Path) -> list[str]:
    """Return the lines that a command prints in a folder, 80 columns wide."""
    environment = {**os.environ, "HOME": str(folder), "COLUMNS": "80", "TZ": "UTC"}
    process = subprocess.run(  # noqa: S603  our own command
        [sys.executable, "-m", "ctxkit", *command.split()],
        check=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return process.stdout.splitlines()


def draw_chart(chart: ck.plots.Chart, label: str) -> str:
    """Return the SVG of a chart with its legend and a label for screen readers."""
    svg, _, rest = chart.drawing.svg().partition("</svg>")
    picture = svg[svg.index("<svg") :]
    # a separate picture cannot inherit the text colour of a page
    picture = picture.replace(">", f"><style>{CHART_STYLE}</style>", 1)
    picture = add_legend(picture, _LEGEND_ENTRY.findall(rest)) + "</svg>\n"
    return picture.replace('aria-hidden="true"', f'role="img" aria-label="{label}"')


def add_legend(picture: str, entries: list[tuple[str, str]]) -> str:
    """Return an SVG without its closing tag, with a legend below.

    Args:
        picture: the SVG up to its `</svg>`.
        entries: for each, an SVG mark of 24 by 10 pixels, and a name.
    """
    width, height = map(int, _VIEW_BOX.search(picture).groups())
    left, top, drawn = 12.0, height + 4, []
    for mark, name in entries:
        entry_width = 28 + LEGEND_LETTER_WIDTH * len(html.unescape(name)) + 14
        if left + entry_width > width and left > 12:
            left, top = 12.0, top + LEGEND_LINE_HEIGHT
        drawn.append(
            f'<g transform="translate({left:.1f} {top})">{mark}<text x="28" y="9"'
            f' fill="currentColor" style="font:11px system-ui,sans-serif">{name}</text></g>'
        )
        left += entry_width
    box = f'viewBox="0 0 {width} {top + LEGEND_LINE_HEIGHT if entries else height}"'
    return _VIEW_BOX.sub(box, picture, count=1) + "".join(drawn)


def draw_billing_chart(name: str) -> str:
    """Return the SVG of one of `CHARTS`."""
    plot, label = CHARTS[name]
    return draw_chart(plot(ck.read(ck.samples.path("billing"))), label)


def run_agent() -> ck.Session:
    """Return a session of three turns of a scripted agent, whose context fills until it is compacted.

    Its folder always has the same name, because the name is part of the prompt and is counted.
    """
    folder = Path(tempfile.gettempdir()) / "ctxkit-pictures"
    folder.mkdir()
    os.chdir(folder)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ctxkit")
    for _ in range(3):
        options = "--session long --model scripted/audit"
        turn = shell.run_cell_magic("agent", options, "Audit the next part.")
    return turn.session


def draw_pictures() -> dict[str, str]:
    """Return each picture by its name."""
    with tempfile.TemporaryDirectory() as name:
        folder, working_folder = Path(name), Path.cwd()
        for path in ck.samples.paths():
            shutil.copy(path, folder)
        pictures = {
            name: draw_command(command, max_lines, folder)
            for name, (command, max_lines) in COMMANDS.items()
        }
        pictures |= {name: draw_billing_chart(name) for name in CHARTS}
        try:
            chart = ck.plots.growth(run_agent())
        finally:
            os.chdir(working_folder)
            shutil.rmtree(Path(tempfile.gettempdir()) / "ctxkit-pictures", ignore_errors=True)
        pictures["agent"] = draw_chart(chart, "An agent whose context fills until it is compacted")
    return pictures


def main() -> None:
    """Write the pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, picture in draw_pictures().items():
        (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
