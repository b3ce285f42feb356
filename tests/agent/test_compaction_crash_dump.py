"""A compaction that breaks in the kit itself: what happened is written down, the session is whole."""

from __future__ import annotations

from itertools import count

import pytest
from stand_in_models import COUNT, run, said

from ctxkit.agent import LiveSession, ScriptedModel, Workspace
from ctxkit.errors import StoreError
from ctxkit.policies import Count, Rules


def broken(history, budget):
    """Break where fuseraft's compactor may: in its own work, and not in the model's."""
    raise KeyError("the cut")


def opened(tmp_path, rules):
    ticks = count(1_800_000_000)
    script = tuple((said(f"Word {n}.", usage=None),) for n in range(9))
    model = ScriptedModel(script, name="made", counter=COUNT, clock=lambda: float(next(ticks)))
    return LiveSession("main", model=model, rules=rules, clock=lambda: float(next(ticks)),
                       workspace=Workspace(tmp_path))  # fmt: skip


def test_a_compaction_that_breaks_leaves_a_dump_and_a_session_that_goes_on(tmp_path):
    """F81: The sentence says how to continue and where the dump is; what was said before is there."""
    with opened(tmp_path, Rules(policy=broken, trigger=Count(4))) as live:
        run(live.turn("One"))
        with pytest.raises(StoreError, match="is whole, send the prompt again to go on") as raised:  # noqa: PT012
            for word in ("Two", "Three"):
                run(live.turn(word))
        dump = live.workspace.crash(live.id)
        assert str(dump) in str(raised.value)
        assert "KeyError: 'the cut'" in dump.read_text()
        assert dump.stat().st_mode & 0o777 == 0o600
    with opened(tmp_path, Rules()) as again:
        texts = [m.text for m in again.session.messages]
        assert texts[:3] == ["One", "Word 0.", "Two"]
        assert run(again.turn("Go on")).ended == "answered"
