"""Imports and first counts as whole processes, CPU time, pairs in turn: what a kernel pays before
anything happens.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from ctxkit.formats import samples

UNWANTED = ["litellm", "plotly", "ipywidgets", "nbformat", "IPython", "pandas", "numpy"]
TEXT = "hello world, this is the first text"


def spent(script: str) -> float:
    """CPU seconds of one process, its start included."""
    env = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it nothing is ever warm
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pair(ours: str, peer: str, rounds: int) -> tuple[float, float]:
    """Medians of both, measured in turn after a warm-up."""
    spent(ours), spent(peer)
    taken = [(spent(ours), spent(peer)) for _ in range(rounds)]
    a, b = (statistics.median(side) for side in zip(*taken, strict=True))
    return a, b


def row(name: str, ours: float, peer: float, ratio: float, goal: str) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "goal": goal, "unit": "s CPU"}


def loaded() -> list[str]:
    """Heavy libraries that `import ctxkit` loads: none."""
    script = (
        f"import sys, json, ctxkit; print(json.dumps([m for m in {UNWANTED!r} if m in"
        " sys.modules]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    return list(json.loads(out))


CHART = """
import ctxkit as ck
chart = ck.plots.growth(ck.read({path!r}))
assert chart._repr_mimebundle_()
"""
NO_KEY = """
import asyncio
from ctxkit.agent.models.model import Request, ignore_delta
from ctxkit.agent.models.litellm_provider import ProviderModel
try:
    asyncio.run(ProviderModel("anthropic/claude-sonnet-4-5")(Request(messages=()), ignore_delta))
except Exception as e:
    assert str(e).endswith("ANTHROPIC_API_KEY."), e
"""
THEIR_LOOK = """
import litellm
assert litellm.validate_environment("anthropic/x")["missing_keys"] == ["ANTHROPIC_API_KEY"]
"""


def first_chart() -> dict[str, object]:
    """A fresh process that reads a real log and draws its growth, over `import pandas`."""
    real = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
    script = CHART.format(path=str(real if real.is_file() else samples.path()))
    ours, pandas = pair(script, "import pandas", 7)
    name = "import, read a real log, first growth chart, over `import pandas`"
    return row(name, ours, pandas, ours / pandas, "<= 1.1")


def missing_key() -> dict[str, object]:
    """A fresh process that asks a provider without its key, against LiteLLM's own look for it."""
    os.environ.pop("ANTHROPIC_API_KEY", None)
    os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
    ours, theirs = pair(NO_KEY, THEIR_LOOK, 3)
    name = "a provider's missing key, told, against litellm.validate_environment"
    return row(name, ours, theirs, theirs / ours, ">= 8 and ours <= 0.5")


def run() -> list[dict[str, object]]:
    assert loaded() == [], loaded()
    ours, bare = pair("import ctxkit", "pass", 25)
    exact = f"from ctxkit import tokens; assert tokens.exact_counter()({TEXT!r}) == 8"
    peer = f"import litellm; assert litellm.token_counter(model='gpt-4o', text={TEXT!r}) == 8"
    first, theirs = pair(exact, peer, 3)
    return [
        row("import ctxkit, over `python -c pass`", ours, bare, ours / bare, "<= 1.25"),
        row(
            "first exact count, against litellm.token_counter",
            first,
            theirs,
            theirs / first,
            ">= 8",
        ),
        first_chart(),
        missing_key(),
    ]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:55s} {line['ours']:.4f} {line['peer']:.4f} x{line['ratio']:.2f}  goal"
            f" {line['goal']}"
        )
