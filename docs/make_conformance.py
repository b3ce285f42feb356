"""Write docs/conformance.md from the tests and the presets (``--check`` only compares)."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

from ctxkit.presets.registry_and_setting_checks import names, preset_differences

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "conformance.md"
SYSTEMS = {
    "TY": "Tyrum",
    "GO": "ai (Go)",
    "PC": "pulse-coder",
    "PI": "Pi",
    "FA": "Fased / OpenClaw",
    "OC": "OpenClaw's planner",
    "FU": "fuseraft",
}
CASE = re.compile(r"_(ty|go|pc|pi|fa|oc|fu)(\d+)(?=_|$)")

NOT_YET = {
    "GO14": "spilling to a file: a replay writes no files; the live agent's store keeps artifacts (see `offload`)",
    "GO17": "a rule of a later version (August 2026) only; the preset follows 7bc6f19",
    "PC4-PC9, later version": "the second column belongs to a later version (four turns, last replies deleted)",
    "PC2, exact value": "a list of one text part is a plain string here and weighs 3, not 10; several weigh their JSON",
    "PI9": "sizes are anchored on recorded usage; an aborted reply, which is never sent, has an estimate alone",
    "PI16": "Pi rewrites its first format when it opens a file; reading one is tested with the readers",
    "PI, golden values of large-session.jsonl": "that file is not at hand; its twin is held to all values of the cut",
    "FA18": "never where the size is not fresh: a live session counts each prompt before it is sent, so it always is",
    "FA, /compact and /status replies": "words of a chat front end; the same figures are columns of the frames",
    "FA, checkpoints": "a session here keeps its whole log; branch and restore are pointers into it",
    "FA, live tool-result cap": "a rule of one later OpenClaw commit, not of Fased",
    "FA, at most three compactions on overflow": "a replay cannot know whether a retry would have been refused again",
    "FA, server-side compaction": "what the provider's item holds is not known; `native` marks where it would act",
    "FU, memory, ranker, manager, assembly": "need fuseraft's own files on disk or several agents",
    "FU, streaming retry, trim tracker": "a replay has no provider that refuses; the trim acts above the window",
    "FU, preserve tail of the REPL": "another program than the orchestrator, with its own budget",
}


def cases() -> dict[str, tuple[str, str]]:
    """Return what each numbered test asserts and where it stands, by its number."""
    out: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for system, number in CASE.findall(node.name):
                    says = ast.get_docstring(node) or node.name.removeprefix("test_").replace(
                        "_", " "
                    )
                    out.setdefault(
                        system.upper() + number,
                        (says.split("\n")[0], path.relative_to(ROOT).as_posix()),
                    )
    return dict(
        sorted(out.items(), key=lambda item: (list(SYSTEMS).index(item[0][:2]), int(item[0][2:])))
    )


def further() -> list[tuple[str, str, str]]:
    """Return the cases of the systems that have a test file of their own: file, what is asserted, test."""
    out = []
    for path in sorted((ROOT / "tests" / "presets").glob("test_*.py")):
        system = path.stem.removeprefix("test_")
        if system in (*names(), "clear_tools", "inspect"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    says = node.name.removeprefix("test_").replace("_", " ")
                    source = (ast.get_docstring(node) or "").split("\n")[0]
                    out.append(
                        (
                            system,
                            f"{says} ({source})" if source else says,
                            path.relative_to(ROOT).as_posix(),
                        )
                    )
    return out


def peers() -> list[tuple[str, str, str]]:
    """Return what `make test-peers` found last: package and version, what is compared, how many cases agreed."""
    found = json.loads((ROOT / "docs" / "peers.json").read_text(encoding="utf-8"))
    out = []
    for name, row in found.items():
        tree = ast.parse(
            (ROOT / "tests" / "peers" / f"test_peer_{name}.py").read_text(encoding="utf-8")
        )
        tests = [
            n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")
        ]
        says = "; ".join(
            n.name.removeprefix("test_").replace("_", " ")
            + (f" ({first})" if (first := (ast.get_docstring(n) or "").split("\n")[0]) else "")
            for n in tests
        )
        out.append(
            (f"{row['package']} {row['version']}", says, f"{row['passed']} of {row['cases']}")
        )
    return out


READ = {
    "Gemini CLI's pipeline": "`context/config/profiles.ts` at 039a3fd",
    "opencode": "`session/compaction.ts` at 31e22f65 and 001aa6c, `packages/core/src/session/compaction.ts` at 031a4a9",
    "Cline": "`sdk/packages/core/src/extensions/context/` at 21cb8d2; `ContextManager.ts` before 791d238",
    "Roo Code": "`src/core/context-management/index.ts` at cb83656",
    "Goose": "`crates/goose/src/context_mgmt/mod.rs` at 0036b81",
    "Jev": "`src/compact.ts` at 15c1ea2",
    "Aider": "`aider/history.py` at 041f3a4",
    "LCM": "`README.md` of lossless-claw at 01dbcbd",
    "OpenClaw's reading of recent turns": "its bundle, 2026.9.6",
    "pulse-coder, Tyrum, ai, fuseraft, Codex, Fased": "the commits in their presets' docstrings",
}
"""What was read and not run, and where."""


def engines() -> list[str]:
    """Return the rows of what `make test-engines` found last."""
    found = ROOT / "docs" / "engines.json"
    rows = json.loads(found.read_text(encoding="utf-8")) if found.exists() else []
    out = []
    for row in rows:
        named = "; ".join(f"{topic}: {n}" for topic, n in row["named"].items()) or "—"
        share = (row["decisions"] - row["unnamed"]) / row["decisions"]
        out.append(
            f"| {row['program']} | {_cell(row['what'])} | {row['decisions']:,} | {row['equal']:,} | {_cell(named)} | "
            f"{row['unnamed']:,} | {share:.1%} |"
        )
    return out


def page() -> str:
    """Return the whole page."""
    found = cases()
    rows = [
        "# Conformance",
        "",
        "Which behaviours of real systems the tests of the presets check, and where documentation and program differ.",
        "Written by `python docs/make_conformance.py`; do not edit by hand.",
        "",
        "## Cases",
        "",
        "| case | system | what is asserted | test |",
        "| --- | --- | --- | --- |",
        *(
            f"| {n} | {SYSTEMS[n[:2]]} | {_cell(says)} | `{where}` |"
            for n, (says, where) in found.items()
        ),
        "",
        "Pi's golden values on the real session `before-compaction.jsonl` are in `tests/presets/test_golden_pi.py`.",
        "",
        "## Cases of further systems",
        "",
        "From their own tests, source and documentation; which version each preset follows is in its docstring.",
        "",
        "| system | what is asserted | test |",
        "| --- | --- | --- |",
        *(f"| {system} | {_cell(says)} | `{where}` |" for system, says, where in further()),
        "",
        "## Beside the real packages",
        "",
        "`make test-peers` runs the packages themselves on the same messages, 20 synthetic conversations per case, and",
        "compares message by message what stays. The last run:",
        "",
        "| package | what is compared | cases that agree |",
        "| --- | --- | --- |",
        *(f"| {package} | {_cell(says)} | {agreed} |" for package, says, agreed in peers()),
        "",
        "It uses two environments, because semantic-kernel and OpenHands' SDK need an older `mcp` than the others.",
        "OpenHands' SDK needs Python 3.12 or later (`make test-peers PYTHON=python3.12`); with an older Python its cases",
        "are left out, and its row is from the last run that had it.",
        "",
        "## Beside the programs' own code",
        "",
        "`make test-engines` installs the programs from npm and calls their own functions with the sessions of",
        "`CTXKIT_SESSIONS`. A difference counts as *named* if the messages show that its cause is one of the preset's",
        "`differences`. A difference in sizes counts only if both decide alike once they count alike, one in short",
        "results only if they decide alike where no result is short. The rows are from one run of all programs. Pi's",
        "trigger is called at each request of Pi's own logs, with the size that Pi itself was given.",
        "",
        "| program | what is decided | decisions | equal | different, named | unexplained | agreed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *engines(),
        "",
        "Only read, not run:",
        "",
        "| program | where |",
        "| --- | --- |",
        *(f"| {name} | {_cell(where)} |" for name, where in READ.items()),
        "",
        "## Not yet, and why",
        "",
        "| case | reason |",
        "| --- | --- |",
        *(f"| {n} | {_cell(why)} |" for n, why in NOT_YET.items()),
        "",
        "## Document against program",
        "",
        "By default a preset follows the documentation, where that is sound; with `quirks=True` it follows the program.",
        "",
    ]
    for name in names():
        if preset_differences(name):
            rows += [
                f"### {name}",
                "",
                "| topic | document | program | default | `quirks=True` |",
                "| --- " * 5 + "|",
            ]
            rows += [f"| {' | '.join(map(_cell, d))} |" for d in preset_differences(name)]
            rows.append("")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
            else "docs/conformance.md is not current"
        )
    PAGE.write_text(text, encoding="utf-8")
