"""Folders of raw request and response bodies, and how much of each request a session holds."""

from __future__ import annotations

import json
import os
from itertools import count

SYSTEM = "You are an agent that repairs builds. " * 300
TOOLS = [
    {"name": "read", "description": "Reads a file. " * 90, "input_schema": {"type": "object"}},
    {"name": "bash", "description": "Runs a command. " * 90, "input_schema": {"type": "object"}},
]
CHARS_PER_TOKEN = 4
START = 1_800_000_000
"""2027-01-15 08:00:00 UTC."""


def count_tokens(value):
    return len(json.dumps(value)) // CHARS_PER_TOKEN


def reminder(text):
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}


def write_json(path, value, at):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    os.utime(path, (at, at))


class BodyFolder:
    """Writes bodies as Claude Code's documentation describes them, one call every ten seconds."""

    def __init__(self, folder, *, session="11111111-aaaa", index=True, start=START):
        folder.mkdir(exist_ok=True)
        self.folder, self.session, self.has_index, self.at = folder, session, index, start
        self.ids, self.requests = count(), []

    def call(self, messages, content, *, source="repl_main_thread", tools=TOOLS, system=SYSTEM):
        """Write a request with its response; return the tokens that it was billed."""
        n = next(self.ids)
        header = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.332.a{n}"}
        request = {
            "model": "claude-opus-5",
            "max_tokens": 8_000,
            "system": [header, {"type": "text", "text": system}],
            "tools": tools,
            "messages": json.loads(json.dumps(messages)),
            "metadata": {"user_id": f"user_0_account__session_{self.session}"},
        }
        tokens = count_tokens(system) + count_tokens(tools) + count_tokens(messages)
        response = {
            "id": f"msg_{self.session}_{n}",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5",
            "content": content,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": tokens, "output_tokens": count_tokens(content)},
        }
        names = f"{self.session}-{n}.request.json", f"req_{self.session}_{n}.response.json"
        write_json(self.folder / names[0], request, self.at)
        write_json(self.folder / names[1], response, self.at + 4)
        self.requests.append(request)
        line = {
            "timestamp": f"2027-01-15T08:{10 * n // 60:02}:{10 * n % 60:02}.000Z",
            "session_id": self.session,
            "query_source": source,
            "request_file": f"/home/x/bodies/{names[0]}",
            "response_file": f"/home/x/bodies/{names[1]}",
        }
        if self.has_index:
            with (self.folder / "index.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self.at += 10
        return tokens


def make_folder(folder, *, calls=4, session="11111111-aaaa", index=True, start=START):
    """Write the bodies of a session that reads a file at each call."""
    bodies = BodyFolder(folder, session=session, index=index, start=start)
    messages = [{"role": "user", "content": [{"type": "text", "text": "Repair the build. " * 60}]}]
    for n in range(calls):
        use = {"type": "tool_use", "id": f"toolu_{session}_{n}", "name": "read", "input": {"n": n}}
        content = [{"type": "text", "text": f"Step {n}."}, use]
        bodies.call(messages, content)
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"line {n} " * 200}
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [result]},
        ]
    return folder


def texts_of_request(request):
    """Yield each text of a request: system prompt, tools, and what the messages hold."""
    system = request.get("system") or ()
    for block in [{"text": system}] if isinstance(system, str) else system:
        if not block["text"].startswith("x-anthropic-billing-header"):
            yield block["text"]
    yield from (json.dumps(tool["input_schema"]) + tool["description"] for tool in request["tools"])
    for message in request["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_use":
                yield json.dumps(block["input"])
            elif block["type"] == "tool_result" and isinstance(block["content"], list):
                yield from (piece["text"] for piece in block["content"])
            else:
                yield block.get("text") or block.get("thinking") or str(block.get("content", ""))


def share_not_held(session, call, request):
    """Return the share of a request's characters that no message or tool of a prompt holds.

    It is counted on the request as it was sent, not by the sizes that the kit attributes.
    """
    view = session.view(call)
    held = [t for m in view for p in m.parts for t in (getattr(p, "text", ""),) if t]
    held += [json.dumps(c.arguments) for m in view for c in m.tool_calls]
    held += [json.dumps(tool.parameters) + tool.description for tool in session.tools]
    left = {text: held.count(text) for text in set(held)}
    whole = missing = 0
    for text in texts_of_request(request):
        whole += len(text)
        if left.get(text, 0):
            left[text] -= 1
        else:
            missing += len(text)
    return missing / whole
