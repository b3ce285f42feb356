"""Writing: whole or not at all, for the owner only, and what is lost is named."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest
from builders import assistant, result, session, summarised, system, tool_call, usage, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.errors import BadArguments, StoreError
from ctxkit.formats import WRITE_FORMATS, atif
from ctxkit.session import Attachment, Message, SizeOnly, Text, ToolSchema

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session


PICTURE = Attachment("image/png", "QUJD")


def a_session() -> Session:
    asked = assistant(
        "ok", tool_call("ls", "c1", path="."), thinking="hm", usage=usage(1, 2, 3, 4), stop="tool"
    )
    picture = Message(role="user", id="pic", parts=(Text("look"), PICTURE), time=2.0)
    log = (system(), user("do", time=1.0), asked, result("a.txt", asked), picture)
    edit = summarised([log[1]], "So far.", tokens_before=9)
    return session(*log, edit, tools=(ToolSchema(name="ls", description="list"),), model="gpt-x")


@pytest.mark.parametrize("format", WRITE_FORMATS)
def test_a_file_is_for_its_owner_only_and_nothing_is_left_beside_it(
    format: str, tmp_path: Path
) -> None:
    written = ck.write(a_session(), tmp_path / "s", format=format)
    assert (written.path, written.format) == (str(tmp_path / "s"), format)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_what_a_format_cannot_hold_is_named(tmp_path: Path) -> None:
    assert ck.write(a_session(), tmp_path / "s").lost == {}
    lost = ck.write(a_session(), tmp_path / "s", format="openai").lost
    assert lost == {"times": 2, "usages": 1, "stop reasons": 1, "thoughts": 1, "compactions": 1}
    assert ck.write(a_session(), tmp_path / "s", format="pi").lost == {
        "system prompts": 1,
        "tool schemas": 1,
    }
    assert repr(ck.write(a_session(), tmp_path / "s", format="pi")).endswith(
        "lost: 1 system prompts, 1 tool schemas>"
    )


def test_openai_messages_are_what_its_api_takes(tmp_path: Path) -> None:
    ck.write(a_session(), tmp_path / "s", format="openai")
    document = json.loads((tmp_path / "s").read_bytes())
    assert [m["role"] for m in document["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    call = document["messages"][2]["tool_calls"][0]
    assert call == {
        "id": "c1",
        "type": "function",
        "function": {"name": "ls", "arguments": '{"path":"."}'},
    }
    assert document["messages"][3]["tool_call_id"] == "c1"
    assert document["messages"][4]["content"][1]["image_url"]["url"] == "data:image/png;base64,QUJD"
    assert document["tools"][0]["function"]["name"] == "ls"
    assert document["messages"][3]["name"] == "ls"
    assert document["model"] == "gpt-x"


def test_pictures_that_openai_messages_cannot_hold_are_counted(tmp_path: Path) -> None:
    """A user's picture is written; one in a reply or a tool result is lost."""
    asked = assistant("ok", tool_call("ls", "c1"))
    replies = [
        replace(asked, parts=(*asked.parts, PICTURE)),
        replace(result("a.txt", asked), parts=(PICTURE,)),
    ]
    asks = Message(role="user", id="pic", parts=(PICTURE,))
    written = ck.write(session(asks, *replies), tmp_path / "s", format="openai")
    assert written.lost["images in tool results or replies"] == 2
    document = json.loads((tmp_path / "s").read_bytes())
    assert "model" not in document
    assert [str(m).count("QUJD") for m in document["messages"]] == [1, 0, 0]


def test_an_atif_step_holds_its_results_and_metrics(tmp_path: Path) -> None:
    ck.write(a_session(), tmp_path / "s", format="atif")
    document = json.loads((tmp_path / "s").read_bytes())
    steps = document["steps"]
    assert [s["step_id"] for s in steps] == [1, 2, 3, 4]
    assert [s["source"] for s in steps] == ["system", "user", "agent", "user"]
    assert steps[2]["observation"]["results"] == [{"source_call_id": "c1", "content": "a.txt"}]
    assert steps[2]["metrics"] == {"prompt_tokens": 6, "completion_tokens": 4, "cached_tokens": 2}
    assert document["final_metrics"]["total_prompt_tokens"] == 6


@pytest.mark.parametrize("format", [f for f in WRITE_FORMATS if f not in ("native", "otel")])
def test_the_conversation_survives_a_copy(format: str, tmp_path: Path) -> None:
    s = a_session()
    ck.write(s, tmp_path / "s", format=format)
    again = ck.read(tmp_path / "s")
    kept = [m for m in s.messages if m.role != "system" or format != "pi"]
    assert [(m.role, m.tool_calls) for m in again.messages if m.role != "summary"] == [
        (m.role, m.tool_calls) for m in kept
    ]


def test_sizes_without_texts_are_a_loss(tmp_path: Path) -> None:
    s = session(Message(role="user", id="a", parts=(SizeOnly("text", chars=9),)))
    assert ck.write(s, tmp_path / "s", format="openai").lost == {"contents known by size only": 1}


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Choose a folder that exists"):
        ck.write(a_session(), tmp_path / "none" / "s")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="could not be written"):
        ck.write(a_session(), tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_an_unknown_format_asks_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(BadArguments, match="Did you mean 'native'"):
        ck.write(a_session(), tmp_path / "s", format="nativ")


def test_what_subagents_of_subagents_lose_is_counted():
    leaf = session(assistant("done", usage=usage(write=9)), id="leaf")
    told = session(user(), children=(session(user(), id="mid", children=(leaf,)),))
    assert atif.encode_session(told)[1]["cache writes"] == 1
