"""A context report for each turn: kept with id and date, listed, shown whole, and never in the way."""

from __future__ import annotations

import os
from itertools import count

import pytest
from stand_in_models import COUNT, run, said

import ctxkit as ck
from ctxkit.agent import ContextReportStore, LiveSession, ScriptedModel, Workspace
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules


def opened(tmp_path):
    ticks = count(1_800_000_000)
    script = tuple((said(f"Word {n}. " * 40, usage=None),) for n in range(4))
    model = ScriptedModel(script, name="made", counter=COUNT, clock=lambda: float(next(ticks)))
    return LiveSession("main", model=model, rules=Rules(), clock=lambda: float(next(ticks)),
                       workspace=Workspace(tmp_path))  # fmt: skip


def test_each_turn_leaves_a_report_that_is_listed_and_found(tmp_path):
    """T6, T11, T12: Id, date and turn, and all that filled the window then; another process reads
    it.
    """
    with opened(tmp_path) as live:
        told = []
        live.listen(lambda e: told.append(e.payload) if e.kind.startswith("context_report") else 0)
        for n in range(3):
            run(live.turn(f"Turn {n}"))
        now = ck.report(live.session, -1)
    held = ContextReportStore(Workspace(tmp_path), live.id)
    assert [(k.id, k.turn) for k in held.all()] == [(f"{live.id}-{n}", n) for n in range(3)]
    assert [t["context_report_id"] for t in told] == [k.id for k in held.all()]
    assert held.all()[0].time.startswith("2027-01-15T08:")
    assert held.of(f"{live.id}-2").report == now
    assert held.of(f"{live.id}-0").report.prompt_tokens < now.prompt_tokens
    with pytest.raises(BadArguments, match="Did you mean"):
        held.of(f"{live.id}-9")


def test_a_place_that_cannot_be_written_costs_no_turn(tmp_path):
    with opened(tmp_path) as live:
        path = tmp_path / ".ctxkit" / "logs" / f"context_reports_{live.id}.jsonl"
        path.mkdir()
        assert run(live.turn("Go")).ended == "answered"
        assert live.reports.all() == []
        path.rmdir()
        os.symlink("/dev/null", path)  # noqa: PTH211
        assert run(live.turn("Go on")).ended == "answered"
        assert live.reports.all() == []


def test_lines_that_are_no_reports_are_left_out(tmp_path):
    with opened(tmp_path) as live:
        run(live.turn("Go"))
        with (tmp_path / ".ctxkit" / "logs" / f"context_reports_{live.id}.jsonl").open("a") as file:
            file.write('{"id": 3}\n' + "[" * 5000 + "\nno\n")
        run(live.turn("Go on"))
        assert [k.turn for k in live.reports.all()] == [0, 1]
