"""Constants and rules of widgets stand once, in Python; the scripts draw what they are handed."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import SEED

from ctxkit import widgets
from ctxkit.plots import (
    find_guard_closing,
    is_guard_off,
    is_saving_too_small,
)
from ctxkit.widgets import ChartWidget, judge_turns
from ctxkit.widgets.python_to_javascript import (
    CONSTANTS,
    declare_javascript_constants,
    translate_function_to_javascript,
)

FOLDER = Path(widgets.__file__).parent
for module in pkgutil.iter_modules([str(FOLDER)], "ctxkit.widgets."):
    importlib.import_module(module.name)


def subclasses(of):
    return [c for one in of.__subclasses__() for c in (one, *subclasses(one))]


CHARTS = sorted(
    (c for c in subclasses(ChartWidget) if c.__module__.startswith("ctxkit.")),
    key=lambda c: c.__name__,
)
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
RULES = (judge_turns, is_saving_too_small, is_guard_off, find_guard_closing)
SETTINGS = "warn|cut|cutover|least|window|min_savings"


def python_constants():
    """Name each constant that a module of widgets defines."""
    for path in FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (n.id.strip("_") for n in names if isinstance(n, ast.Name))


def test_the_registry_is_what_the_package_has():
    assert {c.__name__ for c in CHARTS} >= {"BudgetWidget", "SavingsWidget", "ThrashWidget"}
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_constant_of_a_script_stands_in_python_too(name):
    script = SCRIPTS[name]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^\"'`]*\))", script) == []  # colours are handed over
    defined = set(re.findall(r"(?:^const |, )([A-Z][A-Z_]+) = ", script, re.MULTILINE))
    assert defined & {*CONSTANTS, *python_constants()} == set()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_judges_by_a_setting(name):
    """A setting is compared with another, or with zero, but never with data: rules do that."""
    side = rf"(?:model\.get\(\"(?:{SETTINGS})\"\)|\b(?:{SETTINGS})\b)"
    found = re.findall(rf"([\w.\]\)]+) *[<>]=? *({side})", SCRIPTS[name])
    assert [pair for pair in found if not re.fullmatch(side, pair[0])] == []
    assert not re.search(r"in Python \(|same rule|one rule", SCRIPTS[name])


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: c.__name__)
def test_a_widget_is_handed_each_rule_and_each_constant_once(chart):
    view = str(chart._esm)
    assert view.count(declare_javascript_constants()) == 1
    for rule in RULES:
        defined = len(re.findall(rf"\b(?:function |const ){rule.__name__}\b", view))
        called = len(re.findall(rf"\b{rule.__name__}\(", view)) - defined
        assert defined == bool(called)
        assert view.count(translate_function_to_javascript(rule)) == defined
    functions = re.findall(r"^function (\w+)\(", view, re.MULTILINE)
    assert len(functions) == len(set(functions))


def test_what_javascript_would_read_otherwise_is_no_rule():
    def floored(shares, window):
        return len(shares) // window

    with pytest.raises(TypeError, match="No rule for the browser"):
        translate_function_to_javascript(floored)


def test_javascript_judges_as_python_does():
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node; tests/browser asks chromium the same")
    rng = random.Random(SEED)
    turns, guards = [], []
    for _ in range(300):
        n = rng.choice([0, 1, 2, 7, 40])
        inputs = [rng.randrange(30) for _ in range(n)]
        sums = [rng.randrange(90) for _ in range(n)]
        turns.append((inputs, sums, rng.randrange(90), rng.randrange(120), rng.random() < 0.5))
        shares = [rng.choice([None, 0.0, -0.2, 0.05, 0.1, 0.3]) for _ in range(n)]
        guards.append((shares, rng.choice([0, 0.05, 0.1, 0.5]), rng.randrange(4)))
    calls = f"[{json.dumps(turns)}.map(a => judge_turns(...a)), {json.dumps(guards)}.map(a => find_guard_closing(...a))]"
    script = "\n".join(
        [*map(translate_function_to_javascript, RULES), f"console.log(JSON.stringify({calls}))"]
    )
    out = subprocess.run([node, "-"], input=script, capture_output=True, text=True, check=True)
    judged, closed = json.loads(out.stdout)
    assert judged == [judge_turns(*case, restarts_sum=again) for *case, again in turns]
    assert closed == [find_guard_closing(*case) for case in guards]
    assert len({*closed}) > 3
    assert sum(len(hits["cutovers"]) for hits in judged) > 100
