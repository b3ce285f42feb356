"""MLflow: traces of one session, several a file, packed texts, usage, what is no call."""

from __future__ import annotations

import json
from pathlib import Path

from ctxkit.formats import Source, read_source

TRACE = json.loads((Path(__file__).parent / "golden" / "mlflow.json").read_text())


def read(*traces: object, lines: bool = False) -> list:
    packed = [json.dumps(t) for t in traces]
    data = "\n".join(packed) if lines else f"[{','.join(packed)}]"
    return read_source(Source("x.json", data.encode()))


def other(**metadata: str) -> dict:
    info = {**TRACE["info"], "trace_id": "tr-2", "trace_metadata": metadata}
    return {"info": info, "data": TRACE["data"]}


def test_agent_tools_and_what_is_no_call():
    (session,) = read(TRACE)
    assert [t.name for t in session.tools] == ["read_file"]
    assert (session.agent, session.model) == ("counter", "gpt-4o")
    assert session.skipped == {"span: agent": 1, "span: tool": 1}
    assert [m.role for m in session.messages[:2]] == ["system", "user"]
    assert session.messages[2].latency == 1.5


def test_several_traces_are_several_sessions_or_one():
    assert [s.id for s in read(TRACE, other())] == ["tr-1", "tr-2"]
    assert [s.id for s in read(TRACE, other(), lines=True)] == ["tr-1", "tr-2"]
    talk = {"mlflow.trace.session": "s-9"}
    first = {**TRACE, "info": {**TRACE["info"], "trace_metadata": talk}}
    (session,) = read(first, other(**talk))
    assert session.id == "s-9"


def test_a_trace_in_a_text_is_read():
    assert len(read(json.dumps(TRACE))[0].calls) == 3
