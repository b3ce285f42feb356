"""Tools run on what the model said; what is kept, shown and sent again has no keys."""

from __future__ import annotations

from itertools import count

import pytest
from stand_in_models import COUNT, Says, agent, run, said

from ctxkit.agent import LiveSession, Workspace, tool
from ctxkit.policies import Rules
from ctxkit.session import ToolCall

CODE = "db = connect(password=get_password_from_vault(1))\ndef sk_test_coverage_report(): pass\n"
KEY = "sk-proj-planted0123456789abcdef"


@pytest.fixture
def live(tmp_path):
    ticks = count(1_800_000_000)
    heard = []

    def made(*replies, **more):
        made.model = Says(*replies)
        s = LiveSession("one", model=made.model, rules=Rules(counter=COUNT), listener=heard.append,
                        clock=lambda: float(next(ticks)), workspace=Workspace(tmp_path),
                        **more)  # fmt: skip
        s.heard = heard
        return s

    return made


def call(name, **arguments):
    return said(ToolCall("c", name, arguments), stop="tool")


TEXTS = (CODE, f"client = Client({KEY!r})\n", "MODE = 'planted-mode'\n")


@pytest.mark.parametrize("text", TEXTS)
def test_what_an_agent_writes_is_what_lands(live, monkeypatch, text):
    monkeypatch.setenv("MONKEY_MODE", "planted-mode")
    with live(
        call("write_file", path="a.py", content=f"{text}# end\n"),
        call("patch_file", path="a.py", old="# end", new=f"# {KEY}"),
    ) as s:
        run(s.turn("write it"))
        assert (s.root.folder / "a.py").read_text() == f"{text}# {KEY}\n"
        assert "[redacted]" in s.log.path.read_text()
        asked = repr(live.model.asked)
        for shown in (s.log.path.read_text(), repr(s.heard), repr(s.session), asked):
            assert KEY not in shown


def test_several_calls_of_a_reply_get_their_own_arguments(live):
    first = ToolCall("c", "write_file", {"path": "1", "content": KEY})
    second = ToolCall("c", "write_file", {"path": "2", "content": "two"})
    with live(said("I write", first, second, stop="tool")) as s:
        run(s.turn("write"))
        assert (s.root.folder / "1").read_text() == KEY
        assert (s.root.folder / "2").read_text() == "two"
        results = [m for m in s.session.messages if m.role == "tool"]
        assert [m.call_id for m in results] == ["c", "c_2"]


def test_a_model_that_writes_back_what_it_read_is_told(live):
    back = call("write_file", path="a.env", content="KEY=[redacted]\n")
    with live(call("read_file", path="a.env"), back) as s:
        (s.root.folder / "a.env").write_text(f"KEY={KEY}\n")
        run(s.turn("tidy it"))
        assert (s.root.folder / "a.env").read_text() == f"KEY={KEY}\n"
        result = [m for m in s.session.messages if m.role == "tool"][-1]
        assert result.is_error
        assert "stands for a key" in result.text


def test_who_approves_sees_what_will_run():
    seen, ran = [], []

    def send(text: str) -> str:
        ran.append(text)
        return f"sent {text}"

    def allow(asked):
        seen.append(asked.arguments["text"])
        return True

    a = agent(call("send", text=KEY), tools=[tool(send)], approve=allow)
    run(a.turn("go"))
    assert seen == ran == [KEY]
    assert KEY not in repr(a.session)
