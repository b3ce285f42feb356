"""Write docs/conformance.md from the tests and the presets (``--check``: only compare)."""

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
_CASE_NUMBER = re.compile(r"_(ty|go|pc|pi|fa|oc|fu)(\d+)(?=_|$)")
_CASE_START = re.compile(r"_(ty|go|pc|pi|fa|oc|fu)\d")
"""What a file holds that has the name of a numbered test; only such files are parsed."""

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


def collect_numbered_cases() -> dict[str, tuple[str, str]]:
    """Return what each numbered test asserts and its file, by the number of the case."""
    cases: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if _CASE_START.search(text) else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for system, number in _CASE_NUMBER.findall(node.name):
                    assertion = ast.get_docstring(node) or node.name.removeprefix("test_").replace(
                        "_", " "
                    )
                    cases.setdefault(
                        system.upper() + number,
                        (assertion.split("\n")[0], path.relative_to(ROOT).as_posix()),
                    )
    return dict(
        sorted(cases.items(), key=lambda item: (list(SYSTEMS).index(item[0][:2]), int(item[0][2:])))
    )


def collect_system_cases() -> list[tuple[str, str, str]]:
    """Return the cases of systems with their own test file: system, what is asserted, file."""
    cases = []
    for path in sorted((ROOT / "tests" / "presets").glob("test_*.py")):
        system = path.stem.removeprefix("test_")
        if system in (*names(), "clear_tools", "inspect"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    assertion = node.name.removeprefix("test_").replace("_", " ")
                    docstring = (ast.get_docstring(node) or "").split("\n")[0]
                    cases.append(
                        (
                            system,
                            f"{assertion} ({docstring})" if docstring else assertion,
                            path.relative_to(ROOT).as_posix(),
                        )
                    )
    return cases


def list_peer_results() -> list[tuple[str, str, str]]:
    """Return the last results of `make test-peers`: package and version, what is compared, cases that agree."""
    results = json.loads((ROOT / "docs" / "peers.json").read_text(encoding="utf-8"))
    rows = []
    for name, row in results.items():
        tree = ast.parse(
            (ROOT / "tests" / "peers" / f"test_peer_{name}.py").read_text(encoding="utf-8")
        )
        tests = [
            test
            for test in tree.body
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        ]
        comparison = "; ".join(
            test.name.removeprefix("test_").replace("_", " ")
            + (
                f" ({docstring})"
                if (docstring := (ast.get_docstring(test) or "").split("\n")[0])
                else ""
            )
            for test in tests
        )
        rows.append(
            (f"{row['package']} {row['version']}", comparison, f"{row['passed']} of {row['cases']}")
        )
    return rows


READ_SOURCES = {
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
"""Sources of programs that were read but not run."""


def format_engine_rows() -> list[str]:
    """Return the table rows of the last results of `make test-engines`."""
    file = ROOT / "docs" / "engines.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    lines = []
    for row in rows:
        causes = "; ".join(f"{topic}: {count}" for topic, count in row["named"].items()) or "—"
        share = (row["decisions"] - row["unnamed"]) / row["decisions"]
        lines.append(
            f"| {row['program']} | {_format_cell(row['what'])} | {row['decisions']:,} | {row['equal']:,} | {_format_cell(causes)} | "
            f"{row['unnamed']:,} | {share:.1%} |"
        )
    return lines


def format_page() -> str:
    """Return the page in Markdown."""
    cases = collect_numbered_cases()
    lines = [
        "# Conformance",
        "",
        "This page lists which behaviours of real systems the presets' tests check, and where documentation and program differ.",
        "`python docs/make_conformance.py` writes this page.",
        "",
        "## Cases",
        "",
        "| case | system | what is asserted | test |",
        "| --- | --- | --- | --- |",
        *(
            f"| {case} | {SYSTEMS[case[:2]]} | {_format_cell(assertion)} | `{file}` |"
            for case, (assertion, file) in cases.items()
        ),
        "",
        "Pi's golden values on the real session `before-compaction.jsonl` are in `tests/presets/test_golden_pi.py`.",
        "",
        "## Cases of further systems",
        "",
        "The cases are from their tests, source and documentation; each preset's docstring names its version.",
        "",
        "| system | what is asserted | test |",
        "| --- | --- | --- |",
        *(
            f"| {system} | {_format_cell(assertion)} | `{file}` |"
            for system, assertion, file in collect_system_cases()
        ),
        "",
        "## Beside the real packages",
        "",
        "`make test-peers` runs the packages on 20 synthetic conversations per case, and compares message by message what",
        "stays. The last run:",
        "",
        "| package | what is compared | cases that agree |",
        "| --- | --- | --- |",
        *(
            f"| {package} | {_format_cell(comparison)} | {equal_cases} |"
            for package, comparison, equal_cases in list_peer_results()
        ),
        "",
        "OpenHands' SDK needs Python 3.12 or later (`make test-peers PYTHON=python3.12`). With an older Python its cases are",
        "left out, and its row is from the last run that included them.",
        "",
        "## Beside the programs' own code",
        "",
        "`make test-engines` installs the programs from npm and calls their own functions with the sessions of",
        "`CTXKIT_SESSIONS`. A difference counts as *named* if the messages show that its cause is one of the preset's",
        "`differences`: sizes, if both decide alike once they count alike; short results, if both decide alike where no",
        "result is short. Pi's trigger is called at each request of Pi's own logs, with the size that Pi itself was given.",
        "All rows are from one run.",
        "",
        "| program | what is decided | decisions | equal | different, named | unexplained | agreed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *format_engine_rows(),
        "",
        "These programs were only read, not run:",
        "",
        "| program | where |",
        "| --- | --- |",
        *(f"| {name} | {_format_cell(source)} |" for name, source in READ_SOURCES.items()),
        "",
        "## Document against program",
        "",
        "By default a preset follows the documentation, where that is sound; with `quirks=True` it follows the program.",
        "",
    ]
    for name in names():
        if preset_differences(name):
            lines += [
                f"### {name}",
                "",
                "| topic | document | program | default | `quirks=True` |",
                "| --- " * 5 + "|",
            ]
            lines += [
                f"| {' | '.join(map(_format_cell, difference))} |"
                for difference in preset_differences(name)
            ]
            lines.append("")
    lines += [
        "## What is not checked",
        "",
        "| case | reason |",
        "| --- | --- |",
        *(f"| {case} | {_format_cell(reason)} |" for case, reason in NOT_YET.items()),
        "",
    ]
    return "\n".join(lines)


def _format_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    text = format_page()
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
            else "docs/conformance.md is not current"
        )
    PAGE.write_text(text, encoding="utf-8")
