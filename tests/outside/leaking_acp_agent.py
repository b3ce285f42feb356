"""An agent of the Agent Client Protocol that puts a key into everything it says: `python leaking_acp_agent.py PLACE`.

Each place has a key of its own, so that a test sees which one came through.
"""

from __future__ import annotations

import json
import sys
from random import Random
from string import ascii_letters, digits

PLACES = (
    "name", "text", "coloured text", "text around an event", "thought", "title", "kind", "tool name", "id", "input",
    "content", "difference", "output", "plan", "stop", "error", "login", "version", "death", "late text",
)  # fmt: skip


def planted_key(place: str) -> str:
    """Return the key that the agent says at a place, in the form of GitHub's."""
    random = Random(place)
    return "ghp_" + "".join(random.choice(ascii_letters + digits) for _ in range(36))


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(kind, /, **more):
    params = {"sessionId": "s1", "update": {"sessionUpdate": kind, **more}}
    say({"method": "session/update", "params": params})


def text(words):
    return {"type": "text", "text": words}


def speak(words, kind="agent_message_chunk", between=lambda: None):
    """Say words in pieces of five characters."""
    for i in range(0, len(words), 5):
        update(kind, content=text(words[i : i + 5]))
        between()


def gauge():
    """Tell of a context that grew and fell: a compaction, in the middle of a text."""
    update("usage_update", used=90_000, size=100_000)
    update("usage_update", used=9_000, size=100_000)


def call(**more):
    made = {
        "toolCallId": "c1",
        "title": "Run it",
        "kind": "execute",
        "rawInput": {"command": "make"},
    }
    update("tool_call", status="pending", **{**made, **more})


def work(place):
    """Take a turn; return the answer to the prompt."""
    key = planted_key(place)
    said = {
        "name": lambda: speak("Hello. "),
        "text": lambda: speak(f"The key is {key} today. "),
        "coloured text": lambda: speak(f"It is \x1b[31m{key[:20]}\x1b[1m{key[20:]}\x1b[0m. "),
        "text around an event": lambda: speak(f"The key is {key} today. ", between=gauge),
        "thought": lambda: speak(f"I know {key} well. ", "agent_thought_chunk"),
        "title": lambda: call(title=f"Run {key}", rawInput={}),
        "kind": lambda: call(title=f"{key} it", kind="other"),
        "tool name": lambda: call(_meta={"x": {"toolName": key}}),
        "id": lambda: call(toolCallId=key),
        "input": lambda: call(rawInput={"command": f"curl -H 'Authorization: Bearer {key}' x"}),
        "plan": lambda: update("plan", entries=[{"content": key, "status": "pending"}]),
        "late text": lambda: [call(), speak(f"It was {key}")],
    }
    said.get(place, lambda: None)()
    ident = {"toolCallId": planted_key("id") if place == "id" else "c1"}
    if place == "content":
        call()
        update(
            "tool_call_update",
            **ident,
            status="completed",
            content=[{"content": text(f"is {key}")}],
        )
    if place == "difference":
        call()
        change = {"type": "diff", "path": key, "oldText": "x\n", "newText": f"{key}\n"}
        update("tool_call_update", **ident, status="completed", content=[change])
    if place == "output":
        call()
        update(
            "tool_call_update",
            **ident,
            status="failed",
            rawOutput={"out": f"is \x1b[1m{key}\x1b[0m"},
        )
    if place == "death":
        sys.stderr.write(f"Error: the token \x1b[31m{key}\x1b[0m is bad\n")
        sys.exit(9)
    if place == "error":
        return {"error": {"code": 5, "message": f"no {key}", "data": {"details": f"not {key}"}}}
    return {"result": {"stopReason": key if place == "stop" else "end_turn"}}


def greeting(place):
    name = f"agent {planted_key(place)}" if place == "name" else "stand-in"
    ways = [{"id": "web", "name": f"with {planted_key(place)}"}]
    spoken = planted_key(place) if place == "version" else 1
    return {"protocolVersion": spoken, "agentInfo": {"name": name}, "authMethods": ways}


def main(place):
    for row in sys.stdin:
        message = json.loads(row)
        method, ident = message.get("method"), message.get("id")
        if method == "initialize":
            say({"id": ident, "result": greeting(place)})
        elif method == "session/new" and place == "login":
            say({"id": ident, "error": {"code": -32000, "message": planted_key(place)}})
        elif method == "session/new":
            say({"id": ident, "result": {"sessionId": "s1"}})
        elif method == "session/prompt":
            say({"id": ident, **work(place)})


if __name__ == "__main__":
    main(sys.argv[1])
