"""What a model is sent to extract memories, what is taken of its answer, and what a webhook is sent and may answer."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from builders import assistant, result, user
from stand_in_models import Says, run, said

from ctxkit.agent import MemoryFlusher, MemoryStore, RootFolder, WebhookMemoryProvider
from ctxkit.agent.memory import session_memory
from ctxkit.errors import BadArguments, ModelError, StoreError
from ctxkit.policies import MemoryFlushSettings, make_entry
from ctxkit.session import Message, Text, ToolCall, Usage

KEY = "sk-ant-api03-" + "Ab3xY9" * 15


def extract(answer, messages=(), stored=(), **more):
    model = Says(said(answer) if isinstance(answer, str) else answer)
    entries, _ = run(session_memory.extract_memories(model, messages, stored, **more))
    return entries, model


def test_what_a_model_is_sent_to_extract_memories():
    messages = [user("Use tabs."), result("rows"), assistant("  "), assistant(" Done. "),
                Message(role="summary", parts=(Text("So far."),))]  # fmt: skip
    stored = [make_entry("Old", "About it.", "project", "The body.")]
    _, model = extract("[]", messages, stored)
    (request,) = model.asked
    (message,) = request.messages
    assert request.tools == ()
    assert (message.role, message.id) == ("user", "extract")
    assert message.text.endswith(
        f"\n\n<known>\n{stored[0].head}\n</known>\n\n"
        "<conversation>\nuser: Use tabs.\n\nassistant: Done.\n\nsummary: So far.\n</conversation>"
    )
    assert '{"name", "description", "type", "body"}' in message.text


def test_the_newest_40000_characters_are_sent():
    long = [user("a" * 30_000), user("b" * 30_000), user("c" * 5_000)]
    _, model = extract("[]", long)
    sent = model.asked[0].messages[0].text
    rows = sent[sent.index("<conversation>\n") + 15 : sent.index("\n</conversation>")].split("\n\n")
    # each row with its role in front, and two line breaks between two rows
    newest, middle = 5_000 + 6, 30_000 + 6
    assert [len(row) for row in rows] == [40_000 - newest - 2 - middle - 2, middle, newest]
    assert [row[6] for row in rows] == ["a", "b", "c"]
    names = [make_entry(f"Name {i}", "x" * 90, "project", "") for i in range(99)]
    _, model = extract("[]", [], names)
    sent = model.asked[0].messages[0].text
    assert len(sent[sent.index("<known>\n") + 8 : sent.index("\n</known>")]) == 4_000


def test_fields_read_from_an_answer():
    items = [
        {"name": "One", "description": "About", "type": "user", "body": "Body."},
        "no object",
        {"name": "Two", "type": "unknown", "body": 5},
        {"name": ""},
    ]
    entries, _ = extract(f"Here: {json.dumps(items)} [sic]"[:-6])
    assert [(e.name, e.description, e.type, e.body) for e in entries] == [
        ("One", "About", "user", "Body."),
        ("Two", "", "project", ""),
    ]
    many = json.dumps([{"name": f"n{i}"} for i in range(25)])
    assert len(extract(many)[0]) == 20


@pytest.mark.parametrize("answer", ["", "none", "{}", "] [", "[" * 100_000 + "]"])
def test_an_answer_without_a_list_is_an_error(answer):
    with pytest.raises(
        ModelError, match=r"^The model answered with no list of what to remember\.$"
    ):
        extract(answer)


def test_a_model_that_fails_is_an_error():
    with pytest.raises(ModelError, match=r"^down$"):
        extract(ModelError("down"))
    with pytest.raises(ModelError, match=r"^ValueError: odd$"):
        extract(ValueError("odd"))

    async def hang(_request, _emit):
        await asyncio.sleep(60)

    with pytest.raises(ModelError, match=r"^The model took longer than 0\.01 seconds\.$"):
        run(session_memory.extract_memories(hang, [], [], 0.01))


def test_the_tokens_of_an_extraction():
    model = Says()
    reply = said("x", usage=Usage(input_tokens=1_200, output_tokens=30))
    assert (
        session_memory.describe_reply_tokens(reply, model) == ""
    )  # it has a notice: it costs nothing
    model.notice = ""
    assert session_memory.describe_reply_tokens(reply, model) == (
        "It was asked of test/says: 1,200 tokens read, 30 written."
    )
    assert session_memory.describe_reply_tokens(
        said("x", usage=Usage(output_tokens=3)), model
    ).endswith(" 0 tokens read, 3 written.")
    assert session_memory.describe_reply_tokens(
        said("x", usage=Usage(input_tokens=3)), model
    ).endswith(" 3 tokens read, 0 written.")
    assert session_memory.describe_reply_tokens(said("x", usage=None), model) == ""


def make_flusher(folder, writer, **settings):
    events = []
    flush = MemoryFlushSettings(**settings)
    flusher = MemoryFlusher(
        flush, RootFolder(folder), writer, lambda: 1_800_000_000.0, lambda *e: events.append(e[1])
    )
    return flusher, events


def notes(*texts):
    return said(*(ToolCall(f"s{i}", "save_memory", {"text": t}) for i, t in enumerate(texts)))


def test_messages_are_sent_cut_or_as_they_are(tmp_path):
    messages = [user("x" * 11), assistant("It is so.")]
    tool = session_memory.SAVE_MEMORY_TOOL.schema
    writer = Says(notes(), notes())
    flusher, _ = make_flusher(tmp_path, writer)
    run(flusher.save(messages, tools=(tool, tool)))
    (request,) = writer.asked
    assert request.messages[:-1] == tuple(messages)
    assert (request.messages[-1].role, request.messages[-1].kind) == ("user", "injected")
    assert request.tools == (tool, tool, tool)
    flusher, _ = make_flusher(tmp_path, writer, message_chars=10)
    run(flusher.save(messages, tools=(tool, tool)))
    request = writer.asked[-1]
    assert [m.role for m in request.messages] == ["user", "user"]
    assert request.messages[0].text == (
        "<conversation>\nuser: xxxxxxxxxx\n...(truncated)\n\nassistant: It is so.\n</conversation>"
    )
    assert request.tools == (tool,)


def test_notes_are_appended_with_their_time(tmp_path):
    other = ToolCall("o", "other", {"text": "no"})
    texts = [
        ToolCall(f"s{i}", "save_memory", {"text": t})
        for i, t in enumerate([" one ", "", None, f"two {KEY}", "three"])
    ]
    writer = Says(said(other, *texts))
    flusher, events = make_flusher(tmp_path, writer, writes=2)
    assert run(flusher.save([user("a")])).tool_calls[0] == other
    (file,) = (tmp_path / "memory").iterdir()
    heads, bodies = zip(
        *(n.split("\n\n")[:2] for n in file.read_text().split("## ")[1:]), strict=True
    )
    assert bodies == ("one", "two [redacted]")
    assert heads[0] == heads[1]
    assert events == [
        {"outcome": "saved", "path": f"memory/{file.name}", "notes": 2, "chars": len(file.read_text()), "by": "model"}
    ]  # fmt: skip
    # the same messages are saved once
    assert run(flusher.save([])) is None
    assert len(events) == 1


def test_saved_passages_are_remembered_up_to_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(session_memory, "_MAX_SAVED_DIGESTS", 2)
    flusher, events = make_flusher(tmp_path, Says(*[notes()] * 9))
    passages = [[user(text)] for text in "abc"]
    for passage in (passages[0], passages[1], passages[1], passages[2], passages[0], passages[2]):
        run(flusher.save(passage))
    assert (
        events == [{"outcome": "nothing to save"}] * 4
    )  # a, b, c, and a again, as c took its place


def test_a_flush_that_fails_may_be_repeated(tmp_path):
    flusher, events = make_flusher(
        tmp_path, Says(ModelError(f"down {KEY}"), ValueError("odd"), notes("one"))
    )
    passage = [user("a")]
    assert run(flusher.save(passage)) is None
    assert run(flusher.save(passage)) is None
    assert run(flusher.save(passage)) is not None
    assert events[:2] == [
        {"outcome": "failed", "error": "down [redacted]"},
        {"outcome": "failed", "error": "ValueError: odd"},
    ]
    assert events[2]["outcome"] == "saved"


@pytest.mark.parametrize(
    ("settings", "seconds", "limit"),
    [
        ({"seconds": 0.02}, None, "0.02"),
        ({"seconds": 0.02}, 0.001, "0.02"),
        ({"seconds": 60.0, "turn_share": 0.1}, 0.2, "0.02"),
        ({"seconds": 0.02, "turn_share": 0.1}, 60.0, "0.02"),
    ],
)
def test_a_flush_has_a_time_limit(tmp_path, settings, seconds, limit):
    async def hang(_request, _emit):
        await asyncio.sleep(60)

    flusher, events = make_flusher(tmp_path, hang, **settings)
    assert run(flusher.save([user("a")], seconds=seconds)) is None
    assert events == [{"outcome": "failed", "error": f"took longer than {limit} s"}]


def test_a_flush_is_due_once_a_cycle(tmp_path):
    flusher, _ = make_flusher(tmp_path, None, below=400)
    assert [flusher.is_due(tokens, 1_000, 0) for tokens in (599, 600, 601)] == [False, True, False]
    assert [flusher.is_due(700, 1_000, compactions) for compactions in (0, 1, 1)] == [
        False,
        True,
        False,
    ]


def answer_with(monkeypatch, respond):
    """Let a function answer the requests of webhooks; return the requests."""
    requests, client = [], httpx.AsyncClient

    def handle(request):
        requests.append(request)
        return respond(request)

    monkeypatch.setattr(
        httpx,
        "AsyncClient",
        lambda **options: client(transport=httpx.MockTransport(handle), **options),
    )
    return requests


def make_response(status_code=200, content=b"", body=None, **more):
    """Return a response as it comes over the wire: not decoded, and not read yet."""
    data = content if body is None else json.dumps(body).encode()
    return httpx.Response(status_code, stream=httpx.ByteStream(data), **more)


LOAD, SAVE = "http://h/load", "https://h/save"


def test_what_a_webhook_is_sent(monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "abc")
    monkeypatch.delenv("HOOK_NONE", raising=False)
    requests = answer_with(monkeypatch, lambda _: make_response(body={"block": " It is. "}))
    headers = {
        "Authorization": "Bearer ${HOOK_TOKEN}",
        "X-None": "${HOOK_NONE}",
        "X-Plain": "a\tb $HOME",
    }
    hook = WebhookMemoryProvider(load_url=LOAD, save_url=SAVE, headers=headers, save_every=3)
    assert run(hook.before("main", "Go on.")) == "It is."
    history = [("user", f"My key is {KEY}"), ("assistant", "Yes.")]
    assert [run(hook.after("main", history, turns)) for turns in (1, 2, 3)] == [False, False, True]
    assert [(r.method, str(r.url)) for r in requests] == [("POST", LOAD), ("POST", SAVE)]
    assert [json.loads(r.content) for r in requests] == [
        {"agent": "main"},
        {"agent": "main", "history": [{"role": "user", "content": "My key is [redacted]"},
                                      {"role": "assistant", "content": "Yes."}]},
    ]  # fmt: skip
    sent = requests[0].headers
    assert sent["authorization"] == "Bearer abc"
    assert (sent["x-none"], sent["x-plain"]) == ("", "a\tb $HOME")
    assert sent["accept-encoding"] == "identity"
    # without an address nothing is sent
    assert run(WebhookMemoryProvider(save_url=SAVE).before("main")) == ""
    assert run(WebhookMemoryProvider(load_url=LOAD).after("main", history, 10)) is False
    assert len(requests) == 2
    assert run(WebhookMemoryProvider(save_url=SAVE, save_every=0).after("main", [], 1)) is True


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"body": {"block": None}}, ""),
        ({"body": {"block": ""}}, ""),
        ({"body": {"block": "x" * 40_000}, "limit": 8}, "xxxxxxxx\n(cut to 8 characters)"),
        ({"body": {"block": "x" * 8}, "limit": 8}, "xxxxxxxx"),
        ({"body": {"other": 1}}, StoreError("The memory's webhook answered without a block.")),
        ({"body": ["block"]}, StoreError("The memory's webhook answered without a block.")),
        ({"body": {"block": 5}}, StoreError("The memory's webhook gave a block that is no text.")),
        ({"content": b"<html>"}, StoreError("The memory's webhook answered something that is no JSON.")),
        ({"status_code": 302}, StoreError("The memory's webhook answered with HTTP 302.")),
        ({"status_code": 500}, StoreError("The memory's webhook answered with HTTP 500.")),
        ({"headers": {"content-encoding": "identity"}, "body": {"block": "a"}}, "a"),
        ({"headers": {"content-encoding": "br"}, "content": b"a"},
         StoreError("The memory's webhook compressed its answer, which it was asked not to do.")),
        ({"body": {"block": "x" * 99}, "bytes": 20},
         StoreError("The memory's webhook answered with more than 20 bytes.")),
        (httpx.ConnectError("no route"), StoreError("The memory's webhook could not be asked (no route).")),
        (httpx.ConnectError(""), StoreError("The memory's webhook could not be asked (ConnectError).")),
    ],
)  # fmt: skip
def test_what_a_webhook_may_answer(monkeypatch, answer, expected):
    options = {"status_code": 200, **answer} if isinstance(answer, dict) else {}
    monkeypatch.setattr(
        "ctxkit.agent.memory.providers.MAX_BLOCK_CHARS", options.pop("limit", 30_000)
    )
    monkeypatch.setattr(
        "ctxkit.agent.memory.providers.MAX_ANSWER_BYTES", options.pop("bytes", 1_000_000)
    )

    def respond(_):
        if isinstance(answer, Exception):
            raise answer
        return make_response(**options)

    answer_with(monkeypatch, respond)
    hook = WebhookMemoryProvider(load_url=LOAD)
    if isinstance(expected, str):
        assert run(hook.before("main")) == expected
    else:
        with pytest.raises(StoreError) as error:
            run(hook.before("main"))
        assert str(error.value) == str(expected)


def test_a_header_that_cannot_be_sent_is_not_quoted(monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "abc\ndef")
    for value in ("${HOOK_TOKEN}", "é"):
        hook = WebhookMemoryProvider(load_url=LOAD, headers={"X-Token": value})
        with pytest.raises(StoreError, match="the value of its header X-Token holds") as error:
            run(hook.before("main"))
        assert "def" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "needs a load_url or a save_url"),
        ({"load_url": LOAD, "seconds": 0}, "and 0 to 600 seconds"),
        ({"load_url": LOAD, "seconds": 600.5}, "and 0 to 600 seconds"),
        ({"load_url": "ftp://h/x"}, "begins with http:// or https://"),
        ({"load_url": LOAD, "save_url": "http://me:pw@h/"}, "holds no password"),
    ],
)
def test_settings_of_a_webhook_that_are_refused(settings, error):
    with pytest.raises(BadArguments, match=error):
        WebhookMemoryProvider(**settings)
    assert WebhookMemoryProvider(load_url=LOAD, seconds=600).seconds == 600


def test_an_entry_is_looked_up_by_its_name_or_the_beginning_of_its_guid(tmp_path):
    store = MemoryStore([tmp_path / "one", tmp_path / "two"], tmp_path)
    one = store.add(
        make_entry("Tabs", "", "user", "Use tabs.", guid="aaaa1111-0000-4000-8000-000000000001")
    )
    two = store.add(
        make_entry("Ports", "", "user", "Port 80.", guid="aaaa2222-0000-4000-8000-000000000002")
    )
    for name in ("tabs", " TABS ", one.guid, one.guid.upper(), "aaaa1"):
        assert store.find_entry(name)[1] == one
    with pytest.raises(BadArguments, match=r"^Nothing is remembered as 'aaa'\."):
        store.find_entry("aaa")  # three characters are not enough
    with pytest.raises(BadArguments) as error:
        store.find_entry("aaaa")
    assert str(error.value) == (
        f"Several entries have that name: choose one by its guid, {two.guid[:8]}, {one.guid[:8]}."
    )
    with pytest.raises(BadArguments, match=r"^Nothing is remembered as 'Tab'\. .*Tabs"):
        store.find_entry("Tab")
    with pytest.raises(BadArguments) as error:
        store.find_entry("x" * 100)
    assert len(str(error.value)) == len("Nothing is remembered as ''.") + 80
    with pytest.raises(BadArguments, match=r"^A memory needs a folder\.$"):
        MemoryStore([])
