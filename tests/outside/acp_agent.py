"""An agent that speaks the Agent Client Protocol, written from its published schema: `python acp_agent.py MANNER`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

MANNER = sys.argv[1] if len(sys.argv) > 1 else "good"
HEARD = sys.argv[2] if len(sys.argv) > 2 else None
"""A file that gets every message that is read, a line each."""
numbers = iter(range(1000, 2000))


def read():
    row = sys.stdin.readline()
    if not row:
        sys.exit(0)
    if HEARD:
        with Path(HEARD).open("a") as file:
            file.write(row)
    return json.loads(row)


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(session, kind, /, **more):
    say(
        {
            "method": "session/update",
            "params": {"sessionId": session, "update": {"sessionUpdate": kind, **more}},
        }
    )


def text(words):
    return {"type": "text", "text": words}


def ask(session, call, **more):
    options = [
        {"optionId": "ever", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    number = next(numbers)
    tool = {
        "toolCallId": call,
        "title": "Write a.py",
        "kind": "edit",
        "rawInput": {"path": "a.py"},
        **more,
    }
    params = {"sessionId": session, "toolCall": tool, "options": options}
    say({"id": number, "method": "session/request_permission", "params": params})
    while (answer := read()).get("id") != number:
        pass
    return answer["result"]["outcome"]


def bill(session):
    """Return how many turns the conversation has had, with this one."""
    book = Path(HEARD).with_name(f"turns of {session}")
    turns = int(book.read_text()) + 1 if book.exists() else 1
    book.write_text(str(turns))
    return turns


def work(session, prompt):
    """Take a turn; return its stop reason."""
    words = prompt[0]["text"]
    if MANNER == "chatty":
        for i in range(3000):
            update(session, "agent_message_chunk", content=text(f"{i} "))
        return {"stopReason": "end_turn"}
    while MANNER == "floods":
        update(session, "agent_message_chunk", content=text("word "))
    if MANNER == "compacts":
        update(session, "usage_update", used=90_000 if words != "more" else 21_000, size=100_000,
               cost={"amount": 0.25 if words != "more" else 0.75, "currency": "USD"})  # fmt: skip
        update(session, "agent_message_chunk", content=text("Well."))
        return {
            "stopReason": "end_turn",
            "usage": {
                "totalTokens": 120,
                "inputTokens": 100,
                "outputTokens": 20,
                "cachedReadTokens": 60,
            },
        }
    if MANNER.startswith("bills"):
        # a running total of the conversation, which outlives the process that counts it
        total = bill(session)
        update(session, "agent_message_chunk", content=text("I look."))
        update(session, "tool_call", toolCallId="c1", title="Read a.py", kind="read", status="pending",
               rawInput={"path": "a.py"})  # fmt: skip
        update(session, "tool_call_update", toolCallId="c1", status="completed",
               content=[{"type": "content", "content": text("x = 1")}])  # fmt: skip
        update(session, "agent_message_chunk", content=text("Well."))
        update(session, "usage_update", used=90_000 + total, size=120_000,
               cost={"amount": total / 100, "currency": "USD"})  # fmt: skip
        usage = {"totalTokens": 120, "inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 60}
        return {"stopReason": "end_turn", "usage": usage}
    if MANNER == "costs":  # the prompt is a list of the costs that are reported, in JSON
        for cost in json.loads(words):
            update(session, "usage_update", used=1500, size=100_000, cost=cost)
        update(session, "agent_message_chunk", content=text("Well."))
        return {"stopReason": "end_turn"}
    if MANNER == "nonsense":
        update(session, "from_the_future", content=5)
        update(session, "agent_message_chunk", content="not a block")
        update(session, "tool_call_update", toolCallId="c9", status="completed", content="?")
        say({"method": "session/update"})
        say(
            {
                "id": 7,
                "method": "fs/read_text_file",
                "params": {"sessionId": session, "path": "/etc/passwd"},
            }
        )
        refused = read()
        update(session, "agent_message_chunk", content=text(refused["error"]["message"]))
        return {}
    if MANNER == "dies":
        update(session, "agent_message_chunk", content=text("I begin"))
        update(
            session,
            "tool_call",
            toolCallId="c1",
            title="Run it",
            kind="execute",
            status="in_progress",
            rawInput={"command": "make"},
        )
        sys.stderr.write("panic: out of luck\n")
        sys.exit(9)
    if MANNER in ("hangs", "deaf"):
        update(session, "agent_message_chunk", content=text("Let me think"))
        update(
            session,
            "tool_call",
            toolCallId="c1",
            title="Run it",
            kind="execute",
            status="in_progress",
            rawInput={"command": "make"},
        )
        while True:
            if MANNER == "hangs" and read().get("method") == "session/cancel":
                return {"stopReason": "cancelled"}
            time.sleep(0.05)
    update(session, "agent_thought_chunk", content=text("Two things."))
    update(session, "agent_message_chunk", content=text("I look "))
    update(session, "agent_message_chunk", content=text("first."))
    for i, name in ((1, "a.py"), (2, "b.py")):
        update(
            session,
            "tool_call",
            toolCallId=f"c{i}",
            title=f"Read {name}",
            kind="read",
            status="pending",
            rawInput={"path": name},
        )
    for i in (2, 1):
        update(
            session,
            "tool_call_update",
            toolCallId=f"c{i}",
            status="completed",
            content=[{"type": "content", "content": text(f"file {i}")}],
        )
    update(session, "usage_update", used=1500, size=100_000)
    chosen = ask(session, "c3")
    if chosen.get("optionId") == "once":
        change = {"type": "diff", "path": "a.py", "oldText": "x = 1\n", "newText": "x = 2\n"}
        update(session, "tool_call_update", toolCallId="c3", status="completed", content=[change])
        said = "Changed it."
    else:
        update(session, "tool_call_update", toolCallId="c3", status="failed", content=[])
        said = "Then not."
    update(session, "agent_message_chunk", content=text(said))
    update(
        session, "usage_update", used=2500, size=100_000, cost={"amount": 0.01, "currency": "USD"}
    )
    return {"stopReason": "end_turn"}


def main():
    if MANNER == "mute":
        time.sleep(300)
    sessions = 0
    while True:
        message = read()
        method, ident, params = (
            message.get("method"),
            message.get("id"),
            message.get("params") or {},
        )
        if method == "initialize":
            if MANNER == "unknown":
                say({"id": ident, "error": {"code": -32601, "message": "Method not found"}})
                continue
            can = {
                "loadSession": MANNER in ("loads", "bills"),
                "promptCapabilities": {"image": MANNER != "blind"},
            }
            say({"id": ident, "result": {
                "protocolVersion": 2 if MANNER == "newer" else 1, "agentCapabilities": can,
                "agentInfo": {"name": "stand-in", "version": "1"}, "authMethods": [{"id": "web", "name": "Log in on the web"}],
            }})  # fmt: skip
        elif method == "session/new":
            if MANNER == "login":
                say({"id": ident, "error": {"code": -32000, "message": "Authentication required"}})
                continue
            sessions += os.getpid() if MANNER == "bills-anew" else 1
            say({"id": ident, "result": {} if MANNER == "half" else {"sessionId": f"s{sessions}"}})
        elif method == "session/load":
            update(params["sessionId"], "agent_message_chunk", content=text("replayed"))
            say({"id": ident, "result": None})
        elif method == "session/prompt":
            say({"id": ident, "result": work(params["sessionId"], params["prompt"])})


if __name__ == "__main__":
    main()
