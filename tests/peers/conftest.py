"""Writes down, where CTXKIT_PEERS names a file, which packages were run beside the presets and how it went."""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = {
    "langchain": "langchain",
    "deepagents": "deepagents",
    "strands": "strands-agents",
    "agent_framework": "agent-framework-core",
    "inspect": "inspect_ai",
    "adk": "google-adk",
    "semantic_kernel": "semantic-kernel",
    "openhands": "openhands-sdk",
}
_passed: dict[str, list[bool]] = {}


def pytest_runtest_logreport(report):
    if report.when == "call" and not report.skipped:
        _passed.setdefault(
            Path(report.nodeid.split("::")[0]).stem.removeprefix("test_peer_"), []
        ).append(report.passed)


def pytest_sessionfinish():
    target = os.environ.get("CTXKIT_PEERS")
    if not target:
        return
    found = Path(target)
    before = json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}
    table = {}
    for name, package in PACKAGES.items():
        try:
            if name in _passed:
                table[name] = {
                    "package": package,
                    "version": version(package),
                    "cases": len(_passed[name]),
                    "passed": sum(_passed[name]),
                }
        except PackageNotFoundError:
            continue
    both = {
        name: table.get(name, before.get(name)) for name in PACKAGES
    }  # what did not run here ran elsewhere
    text = json.dumps({name: row for name, row in both.items() if row}, indent=2)
    found.write_text(text + "\n", encoding="utf-8")
