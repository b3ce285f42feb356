"""Sections over the wire: the top of the prompt is the same bytes at every call, what is new comes behind."""

from __future__ import annotations

import json
from itertools import count

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from stand_in_models import run

from ctxkit.agent import LiveSession, ProviderModel, Workspace
from ctxkit.policies import Rules


def top(body):
    """What a request begins with, as its format has it."""
    held = (
        body.get(k) for k in ("system", "instructions", "system_instruction", "systemInstruction")
    )
    return next(filter(None, held), None) or body["messages"][0]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_what_is_new_is_said_behind_all_that_a_cache_holds(kind, tmp_path):
    ticks = count(1_800_000_000, 1900)  # an hour passes in two calls
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.gitignore").write_text("build/\n")
    with wire(kind, Play("Yes.")) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS[kind][0], context_window=50_000, options=options)
        live = LiveSession("main", model=model, rules=Rules(), clock=lambda: float(next(ticks)),
                           root=tmp_path / "root", workspace=Workspace(tmp_path))  # fmt: skip
        with live:
            live.inject("on", instructions="In verse.")
            run(live.turn("One"))
            (tmp_path / "root/.gitignore").write_text("dist/\n")
            live.store.put("spec", {"a.md": (b"x", 1)})
            run(live.turn("Two"))
            said = [[n for n, _, _ in m.sections] for m in live.session.messages if m.sections]
    assert said[0] == ["base", "own", "runtime", "gitignore", "time"]
    assert set(said[1]) >= {"gitignore", "store"}
    first, second = (json.dumps(each) for each in (up.asked[0], up.asked[-1]))
    for words in ("In verse.", "## Runtime Environment", "build/", "Date/time: "):
        assert words in first
        assert words in second
    assert "dist/" in second
    assert "dist/" not in first
    assert top(up.asked[0]) == top(up.asked[-1])
    assert "build/" in json.dumps(top(up.asked[0]))
    assert second.index("Yes.") < second.index("dist/") < second.rindex("Two")
