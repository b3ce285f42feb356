"""A policy that nobody gave a trigger is due before every call, and says so once."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ctxkit as ck
from ctxkit.policies import Rules, triggers

WORDS = "window:keep_tokens=3000"
MEANT = pytest.mark.filterwarnings("error")
SESSION = ck.read(ck.samples.path())


def mine(history, budget):
    return history


PLACES = {
    "replay": lambda rules: ck.replay(SESSION, rules),
    "compare": lambda rules: ck.compare(SESSION, [rules], progress=False, loss=False),
    "sweep": lambda rules: ck.sweep([SESSION], [rules], progress=False),
    "context": ck.Context,
}


@pytest.mark.parametrize(
    "rules", [WORDS, mine, Rules(policy=WORDS)], ids=["words", "function", "rules"]
)
@pytest.mark.parametrize("place", PLACES)
def test_a_policy_without_a_trigger_is_warned_of_with_what_to_add(place, rules):
    rules = rules.but() if isinstance(rules, Rules) else rules
    with pytest.warns(
        UserWarning, match=r"without a trigger.*due before every call.*trigger=triggers\."
    ) as told:
        PLACES[place](rules)
    assert len(told) == 1


FINE = {
    "trigger": Rules(policy=WORDS, trigger=triggers.Above(30_000)),
    "meant": Rules(policy=WORDS, trigger=triggers.Always()),
    "pruning": Rules(pruning="shorten"),
    **{name: name for name in ck.presets.names()},
}


@MEANT
@pytest.mark.parametrize("name", FINE)
def test_rules_with_a_trigger_prunings_and_presets_are_not(name):
    PLACES["context"](FINE[name])


@MEANT
def test_fit_asks_once_so_there_is_nothing_to_warn_of():
    ck.fit([{"role": "user", "content": "hi"}], WORDS)


def test_it_is_said_once_a_process():
    code = f"""if True:
        import ctxkit as ck
        session = ck.read(ck.samples.path())
        for i in range(3):
            ck.replay(session, {WORDS!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stderr.count("UserWarning") == 1
