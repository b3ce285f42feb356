"""A result that rules offload is stored before any cut, in the session's folder, and can be read as its stub says."""

from __future__ import annotations

import re

import pytest
from stand_in_models import COUNT, live, run, said

from ctxkit import presets
from ctxkit.agent import tool
from ctxkit.agent.tools.file_tools_and_pdf_office_text import describe_artifact_reading
from ctxkit.policies import ResultOffload
from ctxkit.presets import preset
from ctxkit.session import ToolCall

RULES = presets.fuseraft().but(counter=COUNT)
ROWS = "".join(f"row {n:05d}\n" for n in range(12_000))
"""132,000 characters in 12,000 lines: over the 40,000 of the stub, and over 2,000 lines and 50 KiB."""


def flood() -> str:
    """Give many rows."""
    return ROWS


FLOOD = tool(flood)


def talk(folder, rules=RULES, tools=("files", FLOOD), calls=(), **more):
    asks = [
        said(ToolCall(f"c{i}", name, args), stop="tool") for i, (name, args) in enumerate(calls)
    ]
    return live(folder, said(ToolCall("c", "flood", {}), stop="tool"), *asks, said("done"), rules=rules,
                tools=list(tools), **more)  # fmt: skip


def stub_of(one):
    return next(
        i.message.text for i in one.sent(-1) if i.message.text.startswith("[result offloaded — ")
    )


def offloading():
    return [
        n
        for n in presets.names()
        if preset(n).pruning is not None and "ResultOffload" in repr(preset(n).pruning)
    ]


def test_a_stored_result_is_said_once_with_its_file(tmp_path):
    heard = []
    for _ in range(2):  # the second session reads the first one's log, and stores nothing anew
        with talk(tmp_path, listener=heard.append) as one:
            run(one.turn("go"))
            (file,) = one.workspace.results(one.id).glob("*.txt")
    stored = [e.payload for e in heard if e.kind == "artifact_stored"]
    assert stored == [{"tool_name": "flood", "chars": len(ROWS), "file": str(file)}]


@pytest.mark.parametrize("name", offloading())
def test_the_artifact_holds_the_whole_text(tmp_path, name):
    with talk(tmp_path, preset(name).but(counter=COUNT)) as one:
        run(one.turn("go"))
        stub = stub_of(one)
        assert f"{len(ROWS):,} chars" in stub
        (path,) = one.workspace.results(one.id).glob("*.txt")
        assert path.read_text() == ROWS
        assert path.stem in stub
        assert [p.name for p in one.root.folder.iterdir()] == []


def test_a_model_that_does_what_the_stub_says_gets_its_parts(tmp_path):
    with talk(tmp_path) as one:
        run(one.turn("go"))
        (path,) = re.findall(r"path='([^']+)'", stub_of(one))
        tools = one.agent.tools
        assert "start and end" in stub_of(one)
        assert tools["read_file"].run(path=path, start=11_999, end=11_999) == "row 11998\n"
        assert tools["search"].run(pattern="row 04321", path=path) == f"{path}:4322: row 04321"
        assert path in tools["list_files"].run(path=".ctxkit/artifacts")
        assert "row 04321" in tools["search"].run(pattern="row 04321", path=".ctxkit/artifacts")


@pytest.mark.parametrize("path", [".ctxkit/artifacts/../../x.txt", ".ctxkit/artifacts/0123456789ab.txt",
                                  ".ctxkit/artifacts/sessions/a.txt"])  # fmt: skip
def test_no_other_file_is_read_by_such_a_path(tmp_path, path):
    (tmp_path / "x.txt").write_text("secret")
    (tmp_path / ".ctxkit/artifacts/sessions").mkdir(parents=True)
    (tmp_path / ".ctxkit/artifacts/sessions/a.txt").write_text("secret")
    with talk(tmp_path, calls=[("read_file", {"path": path})]) as one:
        run(one.turn("go"))
        last = [m for m in one.session.messages if m.role == "tool"][-1]
        assert last.is_error
        assert "secret" not in last.text


def test_a_stub_names_only_tools_that_the_session_has(tmp_path):
    with talk(tmp_path, tools=[FLOOD]) as one:
        run(one.turn("go"))
        assert "read_file" not in stub_of(one)
        assert "No tool of this session reads it" in stub_of(one)


def test_fuserafts_own_names_are_said_where_the_tools_have_them():
    def read_file(path: str, startLine: int = 1, maxLines: int = 100) -> str:  # noqa: N803
        """Read."""
        return path

    def grep_in_file(path: str, pattern: str) -> str:
        """Search."""
        return path + pattern

    said_of = describe_artifact_reading([tool(read_file).schema, tool(grep_in_file).schema])
    assert "startLine and maxLines, or grep_in_file" in said_of


def test_what_cannot_be_stored_is_sent_within_the_limits_and_said(tmp_path):
    heard = []
    with talk(tmp_path, listener=heard.append) as one:
        folder = one.workspace.results(one.id)
        folder.parent.mkdir(parents=True)
        folder.write_text("in the way")
        assert run(one.turn("go")).ended == "answered"
        sent = next(i.message.text for i in one.sent(-1) if i.message.role == "tool")
        assert not sent.startswith("[result offloaded — ")
        assert len(sent) < 52_000
        assert "row 00000" in sent
        failed = [e.payload for e in heard if e.kind == "artifact_failed"]
        assert [f["tool_name"] for f in failed] == ["flood"]
        assert failed[0]["error"]


def test_the_replay_of_such_a_session_sends_the_same_stub(tmp_path):
    import ctxkit as ck

    with talk(tmp_path) as one:
        run(one.turn("go"))
        stub = stub_of(one)
        again = ck.replay(ck.read(one.log.path), RULES)
    assert stub in [i.message.text for i in again.sent(-1)]
    assert ResultOffload().advice.format(path="p") in stub.replace(
        re.findall(r"path='([^']+)'", stub)[0], "p"
    )
