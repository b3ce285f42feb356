"""A server of tools, well-behaved or not, run as a program: `python mcp_server.py MANNER`."""

from __future__ import annotations

import json
import sys
import time

MANNER = sys.argv[1] if len(sys.argv) > 1 else "good"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "Say it again.", "inputSchema": OBJECT},
    {"name": "draw", "description": "Draw it.", "inputSchema": {"type": "object"}},
    {"name": "fail", "inputSchema": {"type": "object"}},
    {"name": "environment", "inputSchema": {"type": "object"}},
]


def tools():
    if MANNER == "many":
        return [{"name": f"t{i}", "inputSchema": {"type": "object"}} for i in range(300)]
    if MANNER == "odd":
        huge = {
            "name": "huge",
            "description": "x" * 9,
            "inputSchema": {"type": "object", "x": "y" * 60_000},
        }
        return [
            *TOOLS,
            TOOLS[0],
            huge,
            {"name": "a b/ü" + "z" * 80, "inputSchema": {"type": "object"}},
        ]
    return TOOLS


def answer(method, params):
    if method == "initialize":
        server = {"name": "stand-in", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": tools()}
    name, given = params["name"], params.get("arguments") or {}
    if MANNER == "hangs":
        time.sleep(300)
    if MANNER == "dies":
        sys.exit("out of luck")
    if MANNER == "large":
        return {"content": [{"type": "text", "text": "row\n" * 2_500_000}]}
    if MANNER == "endless":
        sys.stdout.write("x" * 20_000_000)
        sys.stdout.flush()
        time.sleep(300)
    if MANNER == "lies":
        return {"content": "not a list", "isError": "perhaps"}
    if name == "draw":
        return {
            "content": [
                {"type": "text", "text": "drawn"},
                {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            ]
        }
    if name == "fail":
        return {"content": [{"type": "text", "text": "no such thing"}], "isError": True}
    if name == "environment":
        import os

        return {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    return {"content": [{"type": "text", "text": given.get("text", "")}]}


def say(row):
    sys.stdout.write(row + "\n")
    sys.stdout.flush()


def main():
    if MANNER == "mute":
        time.sleep(300)
    say("Welcome to the server!")  # some greet where only messages belong
    for row in sys.stdin:
        asked = json.loads(row)
        if "id" in asked and "method" in asked:
            if MANNER == "half" and asked["method"] == "initialize":
                said = {"jsonrpc": "2.0", "id": asked["id"], "result": {"nonsense": 1}}
            else:
                said = {
                    "jsonrpc": "2.0",
                    "id": asked["id"],
                    "result": answer(asked["method"], asked.get("params") or {}),
                }
            say(json.dumps(said))


if __name__ == "__main__":
    main()
