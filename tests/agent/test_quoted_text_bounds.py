"""Names and texts of strangers are quoted in errors and notes up to a bound."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest
from builders import assistant, session, user
from msgspec.structs import replace
from stand_in_models import COUNT, Says, agent

from ctxkit import __version__
from ctxkit.agent import (
    ArtifactStore,
    ContextReportStore,
    ContextStore,
    McpServer,
    MemoryStore,
    OutputLimits,
    RootFolder,
    SessionLog,
    SessionMemory,
    WebhookMemoryProvider,
    Workspace,
    check_session_name,
    find_claims,
    format_index_block,
    import_files,
    make_file_tools,
    make_memory_provider,
)
from ctxkit.agent.acp_agent import describe_stop_reason
from ctxkit.agent.acp_client import AcpClient
from ctxkit.agent.memory.entry_store import WorkingFolderEntryIds
from ctxkit.agent.system_prompt import parse_section_names
from ctxkit.agent.tools.python_shell_and_summary_tools import require_brief_field_as_text
from ctxkit.errors import CtxkitError
from ctxkit.policies import Rules, Summary, make_entry

LONG = "x" * 700
DEEP = f"{LONG[:150]}/{LONG[:150]}"


def answer_of_acp_agent(error, command="agent", methods=()):
    client = AcpClient([command])
    client.initialize_answer = {"authMethods": list(methods)}
    return client.failure(error, "session/new")


def make_folder(folder, file="a.txt", data=b"text"):
    """Return a folder whose path has at least 400 characters, with a file."""
    folder = folder / LONG[:200] / LONG[:200]
    folder.mkdir(parents=True)
    (folder / file).write_bytes(data)
    return folder


def import_skipped(folder, name, data):
    (folder / "a.txt").write_text("text")
    (folder / name).write_bytes(data)
    return "; ".join(import_files(folder).skipped)


def fail_provider(_):
    class Fails:
        async def before(self, *_):
            raise RuntimeError(LONG)

    memory = SessionMemory(MemoryStore([_ / "m"], _), [Fails()])
    return asyncio.run(memory.before("dev", ""))[0]


def ask_webhook(url="http://127.0.0.1:1", **headers):
    return asyncio.run(WebhookMemoryProvider(load_url=url, headers=headers).before("dev"))


def rename_entry(folder):
    store = MemoryStore([folder / "m"], folder)
    for name in ("one", LONG[:120]):
        store.add(make_entry(name, "Said so."))
    store.edit("one", name=LONG[:120])


def summarise(_):
    model = Says(RuntimeError(LONG))
    rules = Rules(Summary(keep_turns=1), counter=COUNT, window=50_000)
    talk = session(*(m for _ in range(3) for m in (user("x" * 9), assistant("y" * 400))))
    asyncio.run(agent(at=talk, rules=rules, summary_model=model).compact())


def open_twice(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: LONG)
        with SessionLog(folder, "one", session(id="0000abcd")):
            SessionLog(folder, "one", session(id="0000abcd"))


def make_link_loop(folder):
    (folder / "loop").symlink_to("loop")
    return folder


def use_file_tool(folder, name, *arguments):
    (folder / DEEP).parent.mkdir()
    (folder / DEEP).write_text("text")
    tools = {tool.schema.name: tool for tool in make_file_tools(RootFolder(folder))}
    return tools[name].run(*arguments)


def read_whole(folder):
    (folder / DEEP).parent.mkdir()
    (folder / DEEP).write_text("text")
    RootFolder(folder).read(DEEP, 3, whole=True)


def import_too_much(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxkit.agent.document_store.MAX_TOTAL_BYTES", 3)
        import_files(make_folder(folder))


def list_description(folder):
    store = ContextStore(folder)
    store.put("spec", {"a.md": (b"a", 1)})
    return format_index_block({p: replace(i, description=LONG) for p, i in store.items().items()})


def describe_outcome(_):
    one = agent()
    outcome = asyncio.run(one.turn("Begin."))
    return dataclasses.replace(outcome, why=LONG).account()


def start_too_many_acp_agents(folder):
    running = [SimpleNamespace(name=LONG, end_reason="")] * 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AcpClient, "_running", running)
        with closing(AcpClient(["one more"])) as client:
            asyncio.run(client.open(str(folder)))


@pytest.mark.parametrize(
    ("bound", "act"),
    [
        (30, start_too_many_acp_agents),
        (60, open_twice),
        (200, lambda f: RootFolder(f).parts(LONG, there=True)),
        (200, lambda f: RootFolder(f).resolve(f"../{LONG}")),
        (200, lambda f: RootFolder(f).open_file(f"{LONG[:220]}/..").__enter__()),
        (200, lambda f: RootFolder(f).write(f"{LONG[:220]}/..", b"")),
        (200, lambda f: RootFolder(f).write(f".git/{LONG[:220]}", b"")),
        (200, read_whole),
        (200, lambda f: use_file_tool(f, "patch_file", DEEP, "old", "new")),
        (200, lambda f: use_file_tool(f, "write_file", DEEP, "[redacted]")),
        (80, lambda _: require_brief_field_as_text({}, LONG)),
        (300, lambda _: require_brief_field_as_text({LONG: 1}, "a")),
        (60, lambda _: parse_section_names(f"+{LONG}")),
        (60, lambda _: OutputLimits.of(Rules(), LONG)),
        (200, import_too_much),
        (300, list_description),
        (300, describe_outcome),
        (200, lambda f: ArtifactStore(Workspace(f), lambda: ["s"]).open_file(LONG).__enter__()),
        (200, lambda f: RootFolder(make_link_loop(f)).resolve(f"loop/{LONG}")),
        (60, lambda _: answer_of_acp_agent({}, LONG)),
        (300, lambda _: answer_of_acp_agent({"message": LONG})),
        (200, lambda _: answer_of_acp_agent({"data": {"details": LONG}})),
        (200, lambda _: answer_of_acp_agent({"code": -32000}, methods=[{"name": LONG}])),
        (40, lambda _: describe_stop_reason(LONG, answered=True)),
        (200, lambda f: ArtifactStore(Workspace(f), lambda: ["s"]).search("x", LONG, "*")),
        (200 - len("ran `"), lambda _: next(find_claims(f"I ran `{LONG[:200]}`.")).words[5:]),
        (80, lambda _: check_session_name(LONG)),
        (60, lambda f: ContextReportStore(Workspace(f), "s").of(LONG)),
        (60, lambda _: McpServer(["no-such-program"], name=LONG).tools()),
        (80, lambda _: McpServer([LONG], name="m").tools()),
        (80, lambda f: ContextStore(f).of(LONG)),
        (80, lambda f: ContextStore(f).put(LONG, {"a.md": (b"a", 1)})),
        (200, lambda f: ContextStore(f).list_files(LONG)),
        (200, lambda f: ContextStore(f).list_files(f".ctxkit/context/{LONG[:195]}")),
        (200, lambda f: ContextStore(f).open_file(LONG).__enter__()),
        (200, lambda f: import_files(make_folder(f) / LONG)),
        (200, lambda f: import_files(make_folder(f, data=b"\0"))),
        (200, lambda f: import_files(make_folder(f, LONG[:210]) / LONG[:210])),
        (80, lambda f: import_skipped(f, LONG[:210], b"text")),
        (80, lambda f: import_skipped(f, LONG[:100], b"\0")),
        (80, lambda f: MemoryStore([f / "m"], f).find_entry(LONG)),
        (200, lambda f: MemoryStore([make_folder(f, "b.md")], f).faults()[0]),
        (300, lambda f: MemoryStore([make_folder(f) / "a.txt"], f).add(make_entry("n", "Said."))),
        (80, rename_entry),
        (80, lambda f: WorkingFolderEntryIds(f).note(LONG, "g")),
        (60, lambda f: make_memory_provider({"Provider": LONG}, MemoryStore([f / "m"], f))),
        (60, lambda _: ask_webhook(**{LONG: "a\nb"})),
        (200, fail_provider),
        (500, summarise),
    ],
)
def test_what_a_stranger_wrote_is_quoted_up_to_a_bound(tmp_path, bound, act):
    try:
        text = act(tmp_path)
    except CtxkitError as error:
        text = str(error)
    quoted = max(re.findall(r"[^\s'\"()]*x{19,}…?", text), key=len)
    assert len(quoted) == bound, text


def test_an_error_of_a_webhooks_address_is_quoted_up_to_a_bound():
    with pytest.raises(CtxkitError) as error:
        ask_webhook(f"http://host:{LONG}/")
    assert len(str(error.value).partition("(")[2].rpartition(")")[0]) == 120


def test_an_acp_agent_of_another_protocol_is_named_up_to_a_bound(tmp_path):
    info = {"agentInfo": {"name": LONG}, "protocolVersion": LONG}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": info})
    sent = tmp_path / "request.json"
    unasked = json.dumps({"jsonrpc": "2.0", "id": 99, "result": {}})  # is passed over
    answers = f"{unasked}\n{answer}"
    script = f"open({str(sent)!r}, 'w').write(input()); print({answers!r}, flush=True); input()"
    program = [sys.executable, "-c", script]
    sentence = r"^The agent 'x{59}…' speaks version x{19}… of the protocol"
    with (
        closing(AcpClient(program, seconds=20)) as client,
        pytest.raises(CtxkitError, match=sentence),
    ):
        asyncio.run(client.open(str(tmp_path)))
    assert client.name == LONG[:59] + "…"
    # it is offered no files of this process, as it has its own
    assert json.loads(sent.read_text()) == {
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}},
            "clientInfo": {"name": "ctxkit", "version": __version__}}}  # fmt: skip
