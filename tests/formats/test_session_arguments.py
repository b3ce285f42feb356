"""Whatever takes a session takes the path of a log and a list of messages; what is neither is refused in a sentence."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import ctxkit as ck
from ctxkit.formats import as_sessions

SAMPLE = ck.samples.path()
PRESET = "pi"
TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "look at notes.md"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "the invoice is INV-4711"},
    {"role": "assistant", "content": "It is INV-4711."},
]
CLAUDE = [
    {"role": "user", "content": "look at notes.md"},
    {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "notes.md"}}
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "INV-4711"}],
    },
]

ONE = {
    "frame": lambda s: ck.frame(s, per="call").to_csv(),
    "report": lambda s: ck.report(s).to_text(),
    "replay": lambda s: ck.replay(s, PRESET),
    "score": lambda s: ck.score(s).to_dict(),
    "compare": lambda s: ck.compare(s, [PRESET, "none"], progress=False).to_text(),
    "sweep": lambda s: ck.sweep(s, [PRESET], progress=False).to_string(),
    "explore": lambda s: ck.explore(s).data["first"]["head"]["told"],
    "tune": lambda s: ck.tune(s, PRESET).trials.session,
    "watch": lambda s: ck.watch(s).calls,
    "calibrate": lambda s: ck.calibrate(s).kinds.to_string(),
    "write": lambda s: ck.write(s, "out.jsonl") and Path("out.jsonl").read_text(),
    "export": lambda s: ck.export(s, "out.ipynb").read_text().count("cell_type"),
    **{
        f"plots.{n}": lambda s, n=n: getattr(ck.plots, n)(s).to_text()
        for n in (
            "budget",
            "cache",
            "calibration",
            "composition",
            "diff",
            "growth",
            "loss",
            "savings",
            "thrash",
        )
    },
    **{
        f"metrics.{n}": lambda s, n=n: repr(getattr(ck.metrics, n)(s))
        for n in ("audits", "drift", "find_cache_misses", "meaning", "thrash", "when_to_compact")
    },
    "metrics.loss_tables.losses": lambda s: repr(ck.metrics.loss_tables.losses(s)),
    "metrics.session_bill.bill_session": lambda s: repr(ck.metrics.session_bill.bill_session(s)),
    "metrics.savings.amplification": ck.metrics.compaction_formulas.get_append_only_token_multiple,
    "metrics.planted.plant": lambda s: len(
        ck.metrics.planted_facts_and_compaction_audits.plant_facts(
            s, ck.metrics.planted_facts_and_compaction_audits.make_facts(3)
        ).messages
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_a_path_means_the_session_in_it(name: str, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = ck.samples.path("research")  # short, and compacted once
    told = ONE[name](ck.read(path))
    assert ONE[name](path) == told
    assert ONE[name](str(path)) == told


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize(
    "wrong", [5, object(), None, {"role": "user"}], ids=lambda x: type(x).__name__
)
def test_what_is_no_session_is_refused_in_a_sentence(name: str, wrong, monkeypatch, tmp_path):
    if name == "watch" and wrong is None:
        pytest.skip("None is the session of the magics")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ck.BadArguments, match=r"a session.*not (int|object|NoneType|dict)"):
        ONE[name](wrong)


def test_a_file_that_is_not_there_is_said(tmp_path):
    for call in (ck.report, ck.score, ck.frame, ck.plots.growth, lambda s: ck.replay(s, "pi")):
        with pytest.raises(ck.ReadError, match="no such file"):
            call(tmp_path / "none.jsonl")


def test_a_session_can_be_given_by_its_name_too():
    assert ck.replay(session=str(SAMPLE), rules="pi") == ck.replay(ck.read(SAMPLE), "pi")


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", [TALK, CLAUDE], ids=["chat completions", "anthropic"])
def test_a_list_of_messages_is_read_as_a_file_of_it_would_be(talk, tmp_path):
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(talk))
    made, read = ck.read(talk), ck.read(file)
    assert (made.path_, made.id) == (None, "messages")
    assert (made.format, made.messages, made.calls) == (read.format, read.messages, read.calls)
    assert "INV-4711" in made.messages[-2 if talk is TALK else -1].text
    assert_frame_equal(ck.frame(talk, per="message"), ck.frame(made, per="message"))
    assert ck.report(talk, None).messages_n == len(made.messages)


def test_messages_of_the_kit_are_a_session():
    session = ck.read(SAMPLE)
    assert ck.read(list(session.path)).log == session.path
    assert ck.read(session.messages).messages == session.messages


def test_objects_of_an_sdk_are_read_as_the_dicts_they_were():
    class Reply:
        def model_dump(self, exclude_none):
            return {k: v for k, v in TALK[-1].items() if v is not None or not exclude_none}

    assert ck.read([*TALK[:-1], Reply()]) == ck.read(TALK)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [5],
        [{"a": 1}],
        ["user: hi"],
        [{"role": "user", "content": object()}],
        [*TALK, ck.Message(role="user")],
    ],
)
def test_lists_that_are_no_messages_are_refused_in_a_sentence(wrong):
    with pytest.raises(
        (ck.BadArguments, ck.ReadError), match=r"^expected .*messages?.*\.$|^expected dicts"
    ):
        ck.read(wrong)


# -- several -----------------------------------------------------------------------------------------------------------


def test_several_may_be_named_each_in_its_own_way(tmp_path):
    session = ck.read(SAMPLE)
    assert as_sessions([session, SAMPLE, str(SAMPLE), TALK]) == [session] * 3 + [ck.read(TALK)]
    assert as_sessions(TALK) == [ck.read(TALK)]
    assert list(ck.frame([SAMPLE, TALK], per="session")["session"]) == [session.id, "messages"]
    assert ck.plots.growth({"log": SAMPLE, "talk": TALK}).to_text()
    (tmp_path / "one.json").write_text(json.dumps(TALK))
    (tmp_path / "two.json").write_text(json.dumps(CLAUDE))
    assert len(as_sessions(tmp_path)) == 2


def test_files_of_a_folder_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(TALK))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(as_sessions(tmp_path)) == 1
    (tmp_path / "two.jsonl").write_text("{broken\n" * 3)
    with pytest.warns(UserWarning, match="1 file of .* could not be read"):
        ck.frame(tmp_path)


@pytest.mark.parametrize("call", [ck.frame, ck.plots.growth, ck.score, lambda x: ck.sweep(x, "pi")])
def test_a_frame_is_no_list_of_sessions(call):
    with pytest.raises(ck.BadArguments, match="not DataFrame"):
        call(ck.frame(TALK))


def test_a_folder_without_sessions_says_so(tmp_path):
    with pytest.raises(ck.ReadError, match="no session"):
        ck.frame(tmp_path)


def test_a_live_session_or_a_context_is_its_session():
    context = ck.Context("pi")
    context.add(*TALK[:2])
    assert ck.report(context).messages_n == ck.report(context.session).messages_n == 2
