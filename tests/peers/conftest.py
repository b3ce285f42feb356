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
    "semantic_kernel": "semantic-kernel",
}
_passed: dict[str, list[bool]] = {}


def pytest_runtest_logreport(report):
    if report.when == "call" and not report.skipped:
        _passed.setdefault(Path(report.nodeid.split("::")[0]).stem.removeprefix("test_peer_"), []).append(report.passed)


def pytest_sessionfinish():
    target = os.environ.get("CTXKIT_PEERS")
    if not target:
        return
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
    Path(target).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
