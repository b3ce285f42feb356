"""Sessions under one id stay apart in every frame; SWE-agent's total tells if it masked."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.metrics import FRAME_COLUMNS
from ctxkit.session import with_unique_ids


def made(id: str = "s", **more):
    return session(user(), assistant(usage=usage()), id=id, **more)


@pytest.mark.parametrize("per", [p for p in FRAME_COLUMNS if p != "compaction"])
def test_sessions_of_one_id_stay_apart(per):
    frame = ck.frame([made(), made(), made("s (2)"), made()], per=per)
    assert frame["session"].drop_duplicates().tolist() == ["s", "s (3)", "s (2)", "s (4)"]


def test_a_subagent_is_told_to_its_own_parent():
    pair = [made(children=(made("child", parent="s"),)) for _ in range(2)]
    frame = ck.frame(pair, per="session", children=True)
    assert frame[["session", "parent"]].fillna("").to_numpy().tolist() == [
        ["s", ""],
        ["child", "s"],
        ["s (2)", ""],
        ["child (2)", "s (2)"],
    ]


def test_those_with_ids_of_their_own_are_left_as_they_are():
    given = [made("a"), made("b")]
    assert all(a is b for a, b in zip(with_unique_ids(given), given, strict=True))


def test_real_sessions_stay_apart(real):
    sessions = ck.read_all(real, progress=False)
    assert max(Counter(s.id for s in sessions).values()) > 1
    calls = ck.frame(sessions, per="call")
    assert calls.groupby("session").size().to_dict() == {
        name: n
        for name, n in ck.frame(sessions, per="session")
        .set_index("session")["calls_n"]
        .to_dict()
        .items()
        if n
    }
    assert not calls.duplicated(["session", "call"]).any()


def run(tmp_path, sent: int, steps: int = 40):
    said = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "task " * 100}]
    for _ in range(steps):
        said += [{"role": "assistant", "content": "look", "action": "ls", "thought": "look"}]
        said += [{"role": "user", "content": "x" * 4000}]
    stats = {"instance_cost": 1.5, "tokens_sent": sent, "tokens_received": 500, "api_calls": steps}
    told = {"environment": "swe", "trajectory": [], "history": said, "info": {"model_stats": stats}}
    (tmp_path / "run.traj").write_text(json.dumps(told))
    return ck.read(tmp_path / "run.traj")


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (210_000, "swe_agent_mask"),
        (260_000, "swe_agent_mask"),
        (810_000, "none"),
        (900_000, "none"),
    ],
)
def test_what_was_sent_tells_whether_a_processor_ran(tmp_path, sent, name):
    session = run(tmp_path, sent)
    assert session.details["history_processor"]["name"] == name
    assert (
        "(swe_agent_mask, inferred)" in session.notes[0]
        or "no history processor ran" in session.notes[0]
    )


def test_a_short_run_tells_nothing(tmp_path):
    assert "history_processor" not in run(tmp_path, 8_000, steps=4).details


def test_the_real_run_masked_its_observations(real):
    session = ck.read(real / "swe-agent/psf__requests-1921.traj")
    assert session.details["history_processor"] == {"name": "swe_agent_mask", "n": 5}
    row = ck.score(session, loss=False)
    assert row["prompt_tokens"] == pytest.approx(
        1_304_218, rel=1e-2
    )  # and not the 2.8 million of the whole history
    assert row["source"] == "estimated"
