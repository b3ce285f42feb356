"""CPU time of imports and first counts in fresh processes: what a kernel needs before it works."""

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


def measure_process(script: str) -> float:
    """Return the CPU seconds of one process, with its start."""
    env = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it nothing is ever warm
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_pair(ours: str, peer: str, rounds: int) -> tuple[float, float]:
    """Return the median CPU seconds of two scripts that run in turns, after a warm-up."""
    measure_process(ours), measure_process(peer)
    seconds = [(measure_process(ours), measure_process(peer)) for _ in range(rounds)]
    a, b = (statistics.median(side) for side in zip(*seconds, strict=True))
    return a, b


def make_row(name: str, ours: float, peer: float, ratio: float, goal: str) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ratio, "goal": goal, "unit": "s CPU"}


def list_loaded_libraries() -> list[str]:
    """Return the heavy libraries that `import ctxkit` loads; there should be none."""
    script = (
        f"import sys, json, ctxkit; print(json.dumps([m for m in {UNWANTED!r} if m in"
        " sys.modules]))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    return list(json.loads(printed))


CHART_SCRIPT = """
import ctxkit as ck
chart = ck.plots.growth(ck.read({path!r}))
assert chart._repr_mimebundle_()
"""
MISSING_KEY_SCRIPT = """
import asyncio
from ctxkit.agent.models.model import Request, ignore_delta
from ctxkit.agent.models.litellm_provider import ProviderModel
try:
    asyncio.run(ProviderModel("anthropic/claude-sonnet-4-5")(Request(messages=()), ignore_delta))
except Exception as e:
    assert str(e).endswith("ANTHROPIC_API_KEY."), e
"""
PEER_MISSING_KEY_SCRIPT = """
import litellm
assert litellm.validate_environment("anthropic/x")["missing_keys"] == ["ANTHROPIC_API_KEY"]
"""


def measure_first_chart() -> dict[str, object]:
    """Measure a fresh process that reads a real log and draws a chart, against `import pandas`."""
    log = Path(os.environ.get("CTXKIT_SESSIONS", "")) / "pi" / "before-compaction.jsonl"
    script = CHART_SCRIPT.format(path=str(log if log.is_file() else samples.path()))
    ours, peer = measure_pair(script, "import pandas", 7)
    name = "import, read a real log, first growth chart, over `import pandas`"
    return make_row(name, ours, peer, ours / peer, "<= 1.1")


def measure_missing_key() -> dict[str, object]:
    """Measure a process that calls a provider without a key, against LiteLLM's own check."""
    os.environ.pop("ANTHROPIC_API_KEY", None)
    os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
    ours, peer = measure_pair(MISSING_KEY_SCRIPT, PEER_MISSING_KEY_SCRIPT, 3)
    name = "a provider's missing key, told, against litellm.validate_environment"
    return make_row(name, ours, peer, peer / ours, ">= 8 and ours <= 0.5")


def run() -> list[dict[str, object]]:
    assert list_loaded_libraries() == [], list_loaded_libraries()
    ours, bare_python = measure_pair("import ctxkit", "pass", 25)
    script = f"from ctxkit import tokens; assert tokens.exact_counter()({TEXT!r}) == 8"
    peer_script = (
        f"import litellm; assert litellm.token_counter(model='gpt-4o', text={TEXT!r}) == 8"
    )
    first_count, first_of_peer = measure_pair(script, peer_script, 3)
    return [
        make_row(
            "import ctxkit, over `python -c pass`", ours, bare_python, ours / bare_python, "<= 1.25"
        ),
        make_row(
            "first exact count, against litellm.token_counter",
            first_count,
            first_of_peer,
            first_of_peer / first_count,
            ">= 8",
        ),
        measure_first_chart(),
        measure_missing_key(),
    ]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:55s} {line['ours']:.4f} {line['peer']:.4f} x{line['ratio']:.2f}  goal"
            f" {line['goal']}"
        )
