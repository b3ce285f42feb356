"""Cline and Roo Code: usage joined with replies, XML calls, summaries, markers and ranges left out."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import ctxkit as ck
from ctxkit.formats import Source, cline
from ctxkit.formats.cline import _parse_xml_arguments
from ctxkit.session import ToolCall

if TYPE_CHECKING:
    from pathlib import Path

XML = "I look.\n<read_file>\n<path>a.py</path>\n</read_file>"


def task(folder: Path, talk: Any, window: list[Any] | None = None) -> ck.Session:
    folder.mkdir(exist_ok=True)
    (folder / "api_conversation_history.json").write_text(json.dumps(talk))
    if window is not None:
        (folder / "ui_messages.json").write_text(json.dumps(window))
    return ck.read(folder)


def said(role: str, *texts: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": t} for t in texts], **more}


def request(ts: int = 1, *, after: int | None = None, **told: Any) -> dict[str, Any]:
    keys = {"conversationHistoryIndex": after} if after is not None else {}
    cut = {"conversationHistoryDeletedRange": told.pop("cut")} if "cut" in told else {}
    return {
        "ts": ts,
        "type": "say",
        "say": "api_req_started",
        "text": json.dumps(told),
        **keys,
        **cut,
    }


def test_calls_written_as_xml_are_calls(tmp_path: Path):
    result = said("user", "[read_file for 'a.py'] Result:", "x = 1", "<environment_details>\nnoon")
    session = task(
        tmp_path / "t",
        [said("user", "go"), said("assistant", XML), result, said("assistant", "Done.")],
    )
    user, reply, answer, around, done = session.messages
    assert reply.tool_calls == (ToolCall("xml-2", "read_file", {"path": "a.py"}),)
    assert reply.text == "I look."
    assert (answer.role, answer.tool, answer.call_id, answer.text) == (
        "tool",
        "read_file",
        "xml-2",
        "x = 1",
    )
    assert (around.role, around.kind) == ("user", "wrapper")
    assert (user.text, done.text) == ("go", "Done.")


def test_words_that_only_look_like_a_result_stay_words(tmp_path: Path):
    session = task(tmp_path / "t", [said("user", "go"), said("assistant", "no call"), said("user", "[x y] Result: 1"),
                                    said("user", "[read_file for 'a'] Result: 1", ts=1)])  # fmt: skip
    assert [m.role for m in session.messages] == ["user", "assistant", "user", "user"]


def test_a_request_names_its_place(tmp_path: Path):
    talk = [
        said("user", "go", ts=1),
        said("assistant", "a"),
        said("user", "more"),
        said("assistant", "b"),
    ]
    window = [request(after=-1, tokensIn=5, cancelReason="streaming_failed"), request(after=-1, tokensIn=10, tokensOut=1),
              request(after=1, tokensIn=20, tokensOut=2, cacheReads=8)]  # fmt: skip
    first, second = (c.message.usage for c in task(tmp_path / "t", talk, window).calls)
    assert (first.input_tokens, second.input_tokens, second.cache_read_tokens) == (10, 20, 8)


def test_without_place_and_time_a_failed_request_leaves_usage_missing(tmp_path: Path):
    talk = [said("user", "go", modelInfo={"modelId": "m-1"}), said("assistant", "a")]
    assert (
        task(tmp_path / "t", talk, [request(tokensIn=5), request(tokensIn=6)])
        .calls[0]
        .message.usage
        is None
    )
    assert (
        task(tmp_path / "u", talk, [request(tokensIn=6)]).calls[0].message.usage.input_tokens == 6
    )


def test_what_a_request_leaves_out_is_dropped(tmp_path: Path):
    talk = [said("user" if i % 2 == 0 else "assistant", f"m{i}", ts=i + 1) for i in range(8)]
    window = [request(after=i - 2, tokensIn=5) for i in (1, 3, 5)]
    session = task(tmp_path / "t", talk, [*window, request(after=5, cut=[2, 3], tokensIn=5)])
    (edit,) = session.edits
    assert edit.kind == "dropped"
    assert [m.text for m in session.view()] == ["m0", "m1", "m4", "m5", "m6", "m7"]


def test_roos_marker_and_summary(tmp_path: Path):
    talk = [
        said("user", "go", ts=1),
        said("assistant", "old", ts=2, truncationParent="t"),
        said(
            "user",
            "[truncated]",
            ts=3,
            isTruncationMarker=True,
            truncationId="t",
            condenseParent="s",
        ),
        said("assistant", "later", ts=4, condenseParent="s"),
        said("user", "so far", ts=5, isSummary=True, condenseId="s"),
        said("assistant", "on", ts=6, condenseParent="gone"),
    ]
    session = task(tmp_path / "t", talk)
    assert [(e.method, len(e.targets)) for e in session.edits] == [
        ("truncation", 1),
        ("condense", 2),
    ]
    assert [m.text for m in session.view()] == ["go", "so far", "on"]
    assert session.product == "roo"


def test_a_tasks_folder_is_one_session_among_many(tmp_path: Path):
    for n in range(3):
        task(
            tmp_path / f"17{n}",
            [said("user", "go", ts=1), said("assistant", "a", ts=2)],
            [request()],
        )
    found = ck.read_all(tmp_path, progress=False)
    assert [s.id for s in found] == ["170", "171", "172"]
    assert found.failed.empty


def test_marks_that_nothing_closes_are_read_in_linear_time():
    begun = time.thread_time()
    inner = "<path>a.py</path>" + "<li>" * 100_000 + "<path>b.py</path>"
    assert _parse_xml_arguments(inner) == {"path": "b.py"}
    assert _parse_xml_arguments("<a><b>1</b></a><c>2</c></a>") == {"a": "<b>1</b>", "c": "2"}
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief.", "ts": 1},
        {"role": "user", "ts": 1},
        {"role": "user", "content": "Go."},
    ],
)
def test_a_list_of_other_messages_is_no_task_history(message: dict[str, Any]):
    assert cline.sniff(Source("x.json", json.dumps([said("user", "go", ts=1)]).encode()))
    assert not cline.sniff(Source("x.json", json.dumps([message]).encode()))


def test_a_link_beside_the_history_is_not_followed(tmp_path: Path):
    (tmp_path / "elsewhere.json").write_text(
        json.dumps([{"ts": 1, "type": "say", "text": "Hidden"}])
    )
    folder = tmp_path / "task"
    folder.mkdir()
    talk = [
        {"role": "user", "content": "Hi", "ts": 1},
        {"role": "assistant", "content": "Yes", "ts": 2},
    ]
    (folder / "api_conversation_history.json").write_text(json.dumps(talk))
    window = folder / "ui_messages.json"
    window.symlink_to(tmp_path / "elsewhere.json")
    assert ck.read(folder / "api_conversation_history.json").title != "Hidden"
    window.unlink()
    window.write_bytes((tmp_path / "elsewhere.json").read_bytes())
    assert ck.read(folder / "api_conversation_history.json").title == "Hidden"


@pytest.mark.parametrize(
    ("reason", "stop"), [("user_cancelled", "aborted"), ("streaming_failed", "error")]
)
def test_a_request_that_was_cancelled_says_by_whom(tmp_path: Path, reason: str, stop: str):
    talk = [said("user", "go", ts=1), said("assistant", "a")]
    session = task(tmp_path / "t", talk, [request(after=-1, tokensIn=5, cancelReason=reason)])
    reply = session.messages[1]
    assert (reply.stop, reply.is_error) == (stop, stop == "error")


def test_a_task_has_the_model_of_its_first_reply_and_the_time_of_its_first_message(tmp_path: Path):
    """Two windows: one names a model where the history has none, one leaves it to the history."""
    second = 1_770_000_000
    talk = [
        said("user", "go"),
        said("assistant", "a", ts=1_000 * second),
        said("user", "on", ts=1_000 * (second + 5)),
        said("assistant", "b", modelInfo={"modelId": "m-2"}),
    ]
    session = task(tmp_path / "t", talk, [])
    assert (session.model, session.started) == ("m-2", second)
    assert [m.model for m in session.messages] == [None, None, None, "m-2"]
    named = {**request(after=-1, tokensIn=5), "modelInfo": {"modelId": "m-1"}}
    window = [{"say": "text", "text": "w" * 201}, named, request(after=1, tokensIn=6)]
    session = task(tmp_path / "u", talk, window)
    assert [m.model for m in session.messages] == [None, "m-1", None, "m-2"]
    assert (session.model, session.title, session.product) == ("m-1", "w" * 200, "cline")
    roo = request(after=-1, tokensIn=5, apiProtocol="anthropic")
    assert task(tmp_path / "r", talk, [roo]).product == "roo"


def test_a_task_whose_history_is_no_list_is_refused_with_its_folder(tmp_path: Path):
    with pytest.raises(ck.ReadError) as raised:
        task(tmp_path / "t", {"messages": []})
    assert raised.value.why == "expected a list of messages in api_conversation_history.json."
    assert raised.value.path == str(tmp_path / "t")
