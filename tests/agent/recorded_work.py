"""What tools, work records, memory, recorders and the document store do, for `recorded_turns.py`: one run each."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from builders import assistant, session, tool_call, user

from ctxkit import tokens
from ctxkit.agent import (
    ContextStore,
    LiveSession,
    MemoryStore,
    RootFolder,
    ScriptedModel,
    SessionMemory,
    Workspace,
    build_change_log,
    build_evidence_graph,
    build_tool_call_intent_log,
    check_claims_against_changes,
    encode_record,
    format_index_block,
    import_files,
    make_file_tools,
)
from ctxkit.agent.memory import format_memory_block, rank_by_score, sort_by_type
from ctxkit.agent.recorders.api_call_parsers import parse_call
from ctxkit.agent.tools import file_search
from ctxkit.errors import CtxkitError
from ctxkit.policies import Above, Rules, Summary, make_entry
from ctxkit.session import Message, Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def note(record: Any, name: str, act: Callable[[], Any]) -> None:
    """Note what a call returns, or the sentence of its error."""
    try:
        record.lines.append([name, act()])
    except CtxkitError as error:
        record.lines.append([name, type(error).__name__, str(error)])


def use_file_tools(record: Any, folder: Path) -> None:
    """Each file tool with what it does well and what it refuses; searches without ripgrep."""
    root = RootFolder(folder)
    tools = {t.name: t.run for t in make_file_tools(root)}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "src/a.py", "content": "one\ntwo\nthree\ntwo\n"}),
        ("write_file", {"path": "./src/../b.txt", "content": "é"}),
        ("write_file", {"path": "../c.txt", "content": "x"}),
        ("write_file", {"path": "src", "content": "x"}),
        ("write_file", {"path": "", "content": "x"}),
        ("read_file", {"path": "src/a.py"}),
        ("read_file", {"path": "src/a.py", "start": 2}),
        ("read_file", {"path": "src/a.py", "start": 2, "end": 3}),
        ("read_file", {"path": "src/a.py", "start": 4, "end": 9}),
        ("read_file", {"path": "src/a.py", "start": 5}),
        ("read_file", {"path": "src/a.py", "start": 3, "end": 2}),
        ("read_file", {"path": "src/a.py", "start": 0}),
        ("read_file", {"path": "none.py"}),
        ("read_file", {"path": "src"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("patch_file", {"path": "src/a.py", "old": "one", "new": "1"}),
        ("patch_file", {"path": "src/a.py", "old": "two", "new": "2"}),
        ("patch_file", {"path": "src/a.py", "old": "four", "new": "4"}),
        ("patch_file", {"path": "src/a.py", "old": "", "new": "4"}),
        ("patch_file", {"path": "none.py", "old": "a", "new": "b"}),
        ("list_files", {}),
        ("list_files", {"path": "src"}),
        ("list_files", {"pattern": "*.txt"}),
        ("list_files", {"path": "none"}),
        ("list_files", {"pattern": "*.md"}),
        ("search", {"pattern": "t[wh]"}),
        ("search", {"pattern": "t", "path": "src", "files": "*.txt"}),
        ("search", {"pattern": "é", "files": "*.txt"}),
        ("search", {"pattern": "(", "path": "src"}),
        ("search", {"pattern": "o", "path": "none"}),
    ]
    which, file_search.shutil.which = file_search.shutil.which, lambda _: None
    try:
        for name, given in calls:
            note(record, f"{name} {json.dumps(given)}", lambda n=name, g=given: tools[n](**g))
    finally:
        file_search.shutil.which = which


def write_work_records(record: Any, folder: Path) -> None:
    """The change log, the intents, the evidence and the claims of two turns."""
    code = "def total(x):\n    return x\n"
    use = "from a import total\nprint(total(1))\n"
    turns = [
        [
            ("write_file", {"path": "src/a.py", "content": code}, "Wrote.", False),
            ("write_file", {"path": "src/b.py", "content": use}, "Wrote.", False),
            ("write_file", {"path": "/etc/x", "content": "no"}, "It leads out.", True),
            ("patch_file", {"path": "src/a.py", "old": "x", "new": "y"}, "Patched.", False),
            ("shell", {"command": "pytest -q tests"}, "3 passed", False),
        ],
        [
            ("bash", {"command": "git commit -m 'Add'"}, "[main 1234567] Add", False),
            ("delete_file", {"path": "old.py"}, "Deleted.", False),
            ("bash", {"command": ["pytest", "-q"]}, "1 failed\nexit code 1", True),
            ("read_file", {"path": "src/a.py"}, code, False),
        ],
    ]
    said = [
        "I created `src/a.py` and wrote b.py. I ran `pytest -q tests`: all tests pass. I also updated c.py.",
        "Deleted old.py. All tests pass. I will create d.py, and did not change e.py.",
    ]
    log, times = [], count(1_800_000_000)
    for n, acts in enumerate(turns):
        log.append(user(f"Do {n}.", id=f"ask-{n}", turn=n, time=float(next(times))))
        for i, (name, given, text, failed) in enumerate(acts):
            call = tool_call(name, f"c{n}-{i}", **given)
            log.append(assistant("", call, id=f"look-{n}-{i}", turn=n, time=float(next(times))))
            parts = (Text(text),)
            log.append(Message(role="tool", id=f"t{n}-{i}", parts=parts, call_id=call.id, tool=name, is_error=failed, turn=n, time=float(next(times))))  # fmt: skip
        log.append(assistant(said[n], id=f"end-{n}", turn=n, time=float(next(times))))
    pending = tool_call("write_file", "last", path="z.py", content="z")
    log.append(assistant("", pending, id="open", turn=1))
    at = session(*log)
    for build in (build_change_log, build_tool_call_intent_log, build_evidence_graph):
        record.lines.append([build.__name__, json.loads(encode_record(build(at)))])
    record.lines += [["claim", *row] for row in check_claims_against_changes(at).values.tolist()]


def parse_api_calls(record: Any, folder: Path) -> None:
    """The answers of each API: whole, streamed, cut off, failed."""

    def stream(*events: dict[str, Any]) -> bytes:
        return b"".join(f"data: {json.dumps(e)}\n\n".encode() for e in events) + b"data: [DONE]\n\n"

    def chunk(**delta: Any) -> dict[str, Any]:
        return {"id": "x1", "model": "m-1", "choices": [{"index": 0, "delta": delta}]}

    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 20}}  # fmt: skip
    end = {"id": "x1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": usage}  # fmt: skip
    start = {"type": "message_start", "message": {"id": "m1", "model": "claude-m-1", "content": [], "usage": {"input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 1}}}  # fmt: skip
    blocks = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t1", "name": "f"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1'}},
    ]  # fmt: skip
    close = [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7, "input_tokens": None}},
    ]  # fmt: skip
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    done = {"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": {"input_tokens": 3}}}  # fmt: skip
    gemini = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Hm", "thought": True}, {"text": "It is "}, {"functionCall": {"name": "f", "args": {"a": 1}}}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 30, "cachedContentTokenCount": 20, "candidatesTokenCount": 4, "thoughtsTokenCount": 3},
        "modelVersion": "g-1",
    }  # fmt: skip
    ask = {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Double 21."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 21}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "42"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "description": "Doubles.", "parameters": {"type": "object"}}]}],
    }  # fmt: skip
    ollama = [
        {"model": "o-1", "message": {"role": "assistant", "thinking": "Hm", "content": "It "}, "done": False},
        {"model": "o-1", "message": {"role": "assistant", "content": "is", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "done": False},
        {"model": "o-1", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 30, "eval_count": 4},
    ]  # fmt: skip
    own = {
        "messages": [
            {"role": "user", "content": "Double 21."},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 21}}}]},
            {"role": "tool", "tool_name": "f", "content": "42"},
        ]
    }  # fmt: skip
    url = "http://h/v1beta/models/g-1:streamGenerateContent"
    failed = json.dumps({"error": {"message": "too many", "type": "rate_limit"}}).encode()
    cases: list[tuple[str, dict[str, Any], bytes, dict[str, Any]]] = [
        ("openai", {}, stream(chunk(content="It "), chunk(content="is", reasoning_content="Hm"), chunk(tool_calls=[call]), chunk(tool_calls=[rest]), end), {}),
        ("openai", {}, stream(chunk(content="It "), chunk(refusal="No")), {}),
        ("openai", {}, stream(chunk(content="It "), {"error": {"message": "overloaded"}}), {}),
        ("anthropic", {}, stream(start, *blocks, *close), {}),
        ("anthropic", {}, stream(start, *blocks), {}),
        ("anthropic", {}, stream(start, {"type": "error", "error": {"message": "overloaded"}}), {}),
        ("openai-responses", {}, stream({"type": "response.created", "response": {"id": "r1"}}, done), {}),
        ("openai-responses", {}, stream({"type": "response.created", "response": {"id": "r1"}}, {"type": "response.output_item.done", "item": item}, {"type": "response.output_text.delta", "delta": "half"}), {}),
        ("openai-responses", {}, stream({"type": "error", "message": "overloaded"}), {}),
        ("gemini", ask, stream(gemini), {}),
        ("gemini", ask, json.dumps([gemini, gemini]).encode(), {}),
        ("ollama", own, b"\n".join(json.dumps(e).encode() for e in ollama), {}),
        ("ollama", own, json.dumps(ollama[1]).encode(), {}),
    ]  # fmt: skip
    for kind in ("openai", "anthropic", "openai-responses", "gemini", "ollama"):
        cases += [(kind, {}, failed, {"status": 429}), (kind, {}, b"<html>", {"status": 502}), (kind, {}, b"", {"error": "gone"})]  # fmt: skip
    for kind, body, data, more in cases:
        record.lines.append([kind, data.decode()[:40], *parse_call(kind, url, body, data, **more)])


def remember_between_sessions(record: Any, folder: Path) -> None:
    """Entries of each type ranked and shown, in a session that compacts, and what it leaves behind."""
    (folder / "work").mkdir()
    store = MemoryStore([folder / "home"], folder / "work")
    entries = [
        make_entry("runner", "Use pytest.", "feedback", "pytest -q " * 30),
        make_entry("port", "The port is 8080.", "project"),
        make_entry("who", "Writes Rust.", "user"),
        make_entry("docs", "See the wiki at 8080.", "reference", "Line one.\nLine two."),
    ]
    for entry in entries:
        store.add(entry)
    entries = list(store.entries())
    for name, ranked in {"type": sort_by_type(entries), "score": rank_by_score(entries, "which port does pytest use")}.items():  # fmt: skip
        record.lines.append([name, [getattr(e, "name", str(e)) for e in ranked]])
        record.lines.append([format_memory_block(list(ranked))])
    script = tuple(
        (assistant(f"It was decided to use plan {n} because it is short. " * 9),) for n in range(4)
    )
    ticks = count(1_800_000_000)
    counter = tokens.get_counter("chars/4")
    model = ScriptedModel(script, name="s", counter=counter, clock=lambda: float(next(ticks)))
    rules = Rules(policy=Summary(keep_turns=1), trigger=Above(300), counter=counter)
    with LiveSession(
        "main", model=model, rules=rules, clock=lambda: float(next(ticks)), workspace=Workspace(folder / "work"),
        memory=SessionMemory(store), seed="7", listener=record.hear,
    ) as live:  # fmt: skip
        live.inject("memory")
        for prompt in ("Always keep the port 8080.", "Never push to main.", "Go on."):
            record.add_outcome(asyncio.run(live.turn(prompt)))
        record.lines += [["entry", m.role, m.text] for m in live.session.messages]
    record.lines += [["kept", e.name, e.type, e.description, e.body] for e in sorted(store.entries(), key=lambda e: e.name)]  # fmt: skip


def keep_documents(record: Any, folder: Path) -> None:
    """Files put into the context store, listed, searched, read and removed."""
    for name, text in {"a.md": "# A\nalpha beta\n", "sub/b.sql": "select alpha;\n", ".env": "KEY=1", "c.bin": "\0"}.items():  # fmt: skip
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    store = ContextStore(folder)
    for name, source in (("all", folder / "docs"), ("one", folder / "docs/a.md")):
        found = import_files(source)
        record.lines.append([name, {k: len(v) for k, v in found.files.items()}, found.skipped])
        store.put(name, found.files, source=str(source), info=found.info, description=f"About {name}.")  # fmt: skip
    record.lines.append([format_index_block(store.items())])
    for item in store.items().values():
        record.lines.append(
            [item.name, item.description, [msgspec.to_builtins(f) for f in item.files]]
        )
    for path in (".ctxkit/context", ".ctxkit/context/all", ".ctxkit/context/one", ".ctxkit/context/none", "docs"):  # fmt: skip
        note(record, f"list {path}", lambda p=path: store.list_files(p))
        note(record, f"contains {path}", lambda p=path: store.contains(p))
        note(record, f"search {path}", lambda p=path: store.search("alpha", p, "*"))
        note(record, f"text {path}", lambda p=path: store.text(p))
    note(record, "a bad name", lambda: store.put("../x", {}, source="", info=""))
    note(record, "gone", lambda: store.remove("one").name)
    note(record, "gone again", lambda: store.remove("one").name)
    record.lines.append([format_index_block(store.items())])


WORK = {
    f.__name__: f
    for f in (
        use_file_tools,
        write_work_records,
        parse_api_calls,
        remember_between_sessions,
        keep_documents,
    )
}
