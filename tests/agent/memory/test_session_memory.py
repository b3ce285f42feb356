"""Memory in a live session: blocks and hooks around turns, promotion that is told, extraction; a turn is never lost."""

from __future__ import annotations

from itertools import count

import pytest
from agent.memory.webhook_server import hook
from agent.models.fake_provider_server import FORMATS, Play, wire
from stand_in_models import COUNT, run, said

import ctxkit as ck
from ctxkit.agent import (
    LiveSession,
    LocalMemoryProvider,
    MemoryDigestLimits,
    MemoryStore,
    ProviderModel,
    ScriptedModel,
    SessionMemory,
    WebhookMemoryProvider,
    Workspace,
    make_memory_provider,
)
from ctxkit.policies import Above, LessonRecall, Rules, Summary, make_entry
from ctxkit.session import Usage
from ctxkit.tokens import estimate_schema_tokens

WISH = "Always keep the column order of the CSV."


@pytest.fixture
def held(tmp_path):
    return MemoryStore([tmp_path / "home"], tmp_path)


def opened(tmp_path, memory, turns=8, rules=None, name="main", **more):
    ticks = count(1_800_000_000)
    script = tuple(
        (said(f"It was decided to use plan {n} because it is short. " * 9, usage=None),)
        for n in range(turns)
    )
    model = ScriptedModel(script, name="made", counter=COUNT, clock=lambda: float(next(ticks)))
    live = LiveSession(name, model=model, rules=rules or Rules(), clock=lambda: float(next(ticks)),
                       workspace=Workspace(tmp_path), memory=memory, **more)  # fmt: skip
    live.inject("memory")
    return live


def blocks(session):
    return [[t for n, t, _ in m.sections if n == "memory"] for m in session.messages if m.sections]


def told(live, kind):
    heard = []
    live.listen(lambda event: heard.append(event.payload) if event.kind == kind else None)
    return heard


def test_what_is_remembered_is_put_in_when_a_session_is_opened(tmp_path, held):
    """F13: Entries are in the prompt from the session's first call on."""
    held.add(make_entry("runner", "Use pytest.", "feedback"))
    with opened(tmp_path, SessionMemory(held)) as live:
        run(live.turn("Go"))
        held.add(make_entry("later", "Came later."))
        run(live.turn("Go on"))
    assert blocks(live.session) == [
        ["## MEMORY: facts recalled from prior sessions\n[feedback] runner: Use pytest."]
    ]


def test_the_local_provider_is_fresh_each_turn_and_both_blocks_stand(tmp_path, held):
    """F23, F25, F26: Read again before each turn; both blocks are put in."""
    held.add(make_entry("runner", "Use pytest."))
    with opened(tmp_path, SessionMemory(held, [LocalMemoryProvider(held)])) as live:
        run(live.turn("Go"))
        held.add(make_entry("later", "Came later."))
        run(live.turn("Go on"))
        run(live.turn("Go on"))
    said_ = blocks(live.session)
    assert [len(b) for b in said_] == [1, 1]  # nothing new at the third
    assert said_[0][0].count("## MEMORY") == 1  # equal blocks are said once
    assert said_[1][0].count("## MEMORY") == 2
    assert said_[1][0].count("[project] later: Came later.") == 1


def test_a_digest_is_for_what_is_asked(tmp_path, held):
    """T24: The digest is retrieved for each turn by its words."""
    held.add(make_entry("ledger", "The ledger rounds half up.", "fact"))
    held.add(make_entry("export", "The export runs at night.", "fact"))
    with opened(
        tmp_path,
        SessionMemory(held, [LocalMemoryProvider(held, MemoryDigestLimits())], whole=False),
    ) as live:
        run(live.turn("Fix the ledger"))
        run(live.turn("Now the export"))
    first, second = (b[0] for b in blocks(live.session))
    assert "rounds half up" in first
    assert "at night" not in first
    assert "at night" in second


def test_hooks_run_before_and_after_each_turn_over_http(tmp_path, held):
    """F24, F25: A webhook is asked before each turn and told after some."""
    with hook(block="User prefers tabs.") as (url, asked):
        memory = SessionMemory(
            held,
            [WebhookMemoryProvider(load_url=f"{url}/l", save_url=f"{url}/s", save_every=2)],
            whole=False,
        )
        with opened(tmp_path, memory) as live:
            for n in range(4):
                run(live.turn(f"Turn {n}"))
    assert [path for path, _, _ in asked] == ["/l", "/l", "/s", "/l", "/l", "/s"]
    assert blocks(live.session) == [["User prefers tabs."]]
    assert asked[2][2]["history"][0] == {"role": "user", "content": "Turn 0"}
    assert len(asked[5][2]["history"]) == 8


class Broken:
    async def before(self, *_):
        raise KeyError("sk-ant-api03-" + "Ab1" * 30)

    async def after(self, *_):
        raise KeyError("oh")


@pytest.mark.parametrize("manner", ["hangs", "floods", "lies"])
def test_a_memory_that_fails_costs_a_sentence_and_no_turn(tmp_path, held, manner):
    with hook(manner) as (url, _):
        providers = [
            WebhookMemoryProvider(load_url=url, seconds=0.5),
            Broken(),
            LocalMemoryProvider(held),
        ]
        held.add(make_entry("runner", "Use pytest."))
        with opened(tmp_path, SessionMemory(held, providers, whole=False)) as live:
            heard = told(live, "memory_failed")
            assert run(live.turn("Go")).ended == "answered"
    assert len(heard) == 3
    assert heard[0]["error"].startswith("The memory's webhook ")
    assert "sk-ant" not in str(heard)
    assert "[project] runner: Use pytest." in blocks(live.session)[0][0]


def test_what_a_compaction_takes_is_promoted_told_and_audited(tmp_path, held):
    """T25, T27, T28: Promotion at the boundary, from which messages, by whom, and never silently."""
    rules = Rules(policy=Summary(keep_turns=1), trigger=Above(900), window=6_000, counter=COUNT)
    with opened(tmp_path, SessionMemory(held), rules=rules) as live:
        heard = told(live, "memory_promoted")
        for n in range(6):
            run(live.turn(f"{WISH} Part {n} of it."))
        assert live.session.edits
        assert heard[0]["why"] == "compaction"
        assert heard[0]["by"] == "extract"
        kept, rows = held.get_audit_rows("always-keep-the-column-order-the")
        assert kept.description == WISH
        ids = {m.id for m in live.session.messages if m.role == "user"}
        assert rows[0]["session"] == live.id
        assert set(rows[0]["messages"]) <= ids
        lines = (tmp_path / f".ctxkit/logs/events_{live.id}.jsonl").read_text()
        assert "memory_promoted" in lines


def test_a_compaction_after_a_restore_is_promoted_too(tmp_path, held):
    """Only compactions on the current path count as handled, not the one that was left."""
    rules = Rules(policy=Summary(keep_turns=1), auto=False, counter=COUNT)
    with opened(tmp_path, SessionMemory(held), rules=rules) as live:
        heard = told(live, "memory_promoted")
        for wish in (WISH, "Go on."):
            run(live.turn(wish))
        run(live.compact())
        assert [e["why"] for e in heard] == ["compaction"]
        live.restore(0)
        assert live.session.edits == ()
        run(live.turn("Never rename a column of the ledger."))
        run(live.turn("Go on."))
        run(live.compact())
        assert [e["why"] for e in heard] == ["compaction"] * 2
        assert "never-rename-column-the-ledger" in [e.name for e in held.entries()]


def test_the_end_of_a_session_is_extracted_and_what_was_forgotten_stays_so(tmp_path, held):
    """F18: What a session leaves behind is taken at its end, for this folder."""
    with opened(tmp_path, SessionMemory(held)) as live:
        run(live.turn(WISH))
        assert held.entries() == []
    names = [e.name for e in held.entries()]
    assert "always-keep-the-column-order-the" in names
    assert (tmp_path / f".ctxkit/memory/sessions/{live.id}/memory_refs.json").exists()
    held.forget("always-keep-the-column-order-the")
    with opened(tmp_path, SessionMemory(held), name="other") as live:
        run(live.turn(WISH))
    assert "always-keep-the-column-order-the" not in [e.name for e in held.entries()]


def test_what_a_person_wrote_is_not_taken_back_by_what_is_said(tmp_path, held):
    name = "always-keep-the-column-order-the"
    held.add(make_entry(name, "Columns may move.", "feedback"))
    with opened(tmp_path, SessionMemory(held)) as live:
        run(live.turn(WISH))
    assert [e.description for e in held.entries() if e.name == name] == ["Columns may move."]
    held.forget(name)  # its guid was the person's, the lesson's is another
    with opened(tmp_path, SessionMemory(held), name="other") as live:
        run(live.turn(WISH))
    assert name not in [e.name for e in held.entries()]


def test_a_session_without_a_memory_leaves_nothing(tmp_path, held):
    with opened(tmp_path, None) as live:
        run(live.turn(WISH))
    assert not held.folders[0].path.exists()
    assert not (tmp_path / ".ctxkit/memory").exists()


ANSWER = """Sure: ```json
[{"name": "Test runner", "description": "Use pytest -q.", "type": "feedback", "body": "Never -n."},
 {"name": "", "description": "no name"}, 7, {"name": "odd", "type": "../.."}]```"""


@pytest.mark.filterwarnings("default")
def test_a_model_is_asked_what_to_remember(tmp_path, held):
    """F18: Extraction asks the model for a list of entries."""
    kind = min(FORMATS)
    with wire(kind, Play("Yes."), Play(ANSWER), Play("nothing at all")) as up:
        model = ProviderModel(
            FORMATS[kind][0], context_window=50_000, options={"api_base": up.url, "api_key": "none"}
        )
        live = LiveSession("main", model=model, rules=Rules(), clock=count(1_800_000_000).__next__,
                           workspace=Workspace(tmp_path), memory=SessionMemory(held))  # fmt: skip
        with live:
            run(live.turn("Use pytest"))
            kept, cost = run(live.remember())
            with pytest.raises(ck.ModelError, match="no list"):
                run(live.remember())
    assert [(e.name, e.type, e.body) for e in kept] == [
        ("Test runner", "feedback", "Never -n."),
        ("odd", "project", ""),
    ]
    assert "tokens read" in cost
    assert "Use pytest" in str(up.asked[1])
    assert held.get_audit_rows("Test runner")[1][0]["by"].endswith(FORMATS[kind][0].split("/")[-1])


def test_live_log_and_replay_agree_with_memory_on(tmp_path, held):
    """F25: Prompts are the same live, in the log, and in a replay, with memory in all its forms."""
    held.add(make_entry("runner", "Use pytest."))
    rules = Rules(
        policy=Summary(keep_turns=1) | LessonRecall(),
        trigger=Above(900),
        window=6_000,
        counter=COUNT,
    )
    with opened(tmp_path, SessionMemory(held, [LocalMemoryProvider(held)]), rules=rules) as live:
        for n in range(6):
            run(live.turn(f"{WISH} Part {n}."))
        now = live.session
    log = ck.read(tmp_path / ".ctxkit/sessions/main.jsonl")
    sizes = [COUNT.message(m) for m in log.messages]
    fixed = estimate_schema_tokens(t.schema for t in live.agent.tools.values())
    again = ck.replay(log, rules, tokens=sizes, fixed=fixed)
    prompts = [[c.message.usage.prompt_tokens for c in s.calls] for s in (now, log, again)]
    assert prompts[0] == prompts[1] == prompts[2]
    assert len(now.edits) >= 2
    assert [[m.text for m in v] for _, v in now.views()] == [
        [m.text for m in v] for _, v in again.views()
    ]
    assert any(m.kind == "memory" for _, v in again.views() for m in v)


@pytest.mark.parametrize(("config", "kind"), [({}, LocalMemoryProvider), ({"Provider": "local"}, LocalMemoryProvider),
    ({"Provider": "webhook", "Webhook": {"LoadUrl": "http://127.0.0.1:1/x", "SaveEveryNTurns": 3, "TimeoutSeconds": 2,
                                         "Headers": {"A": "${B}"}}}, WebhookMemoryProvider)])  # fmt: skip
def test_fuserafts_configuration_names_a_provider(held, config, kind):
    """F23, F24: `Memory:` of fuseraft's configuration; `local` reads the store that EnableMemory has."""
    made = make_memory_provider(config, held)
    held.add(make_entry("later", "Came later."))
    assert kind is WebhookMemoryProvider or "later: Came later." in run(made.before("main", "Go"))
    assert isinstance(made, kind)
    assert getattr(made, "save_every", 3) == 3
    with pytest.raises(ck.BadArguments, match="no memory provider"):
        make_memory_provider({"Provider": "redis"}, held)


class Writer:
    """A model that answers every request with one text."""

    notice, context_window = "", 100_000

    def __init__(self, text):
        self.name, self._text, self.asked = "made/writer", text, 0

    async def __call__(self, request, emit):
        self.asked += 1
        if isinstance(self._text, Exception):
            raise self._text
        return said(self._text, usage=Usage(input_tokens=900, output_tokens=40))


FOUND = '[{"name": "Runner", "description": "Use pytest -q.", "type": "feedback"}]'


def test_at_the_end_a_model_says_what_to_remember_where_it_is_asked_to(tmp_path, held):
    """F18: The model is asked once, at the end; who said it, and what it cost, is told. A memory
    without that word asks nobody.
    """
    for by_model, asked in ((True, 1), (False, 0)):
        writer, memory = Writer(FOUND), SessionMemory(held, by_model=by_model)
        with opened(tmp_path, memory, name=f"s{asked}", summary_model=writer) as live:
            heard = told(live, "memory_promoted")
            run(live.turn(WISH))
            assert writer.asked == 0
        assert writer.asked == asked
        assert [p["by"] for p in heard] == ["made/writer" if asked else "extract"]
        assert (heard[0]["cost"] or "").count("900 tokens read, 40 written") == asked
    kept, rows = held.get_audit_rows("Runner")
    assert (kept.description, rows[0]["by"], rows[0]["why"]) == (
        "Use pytest -q.",
        "made/writer",
        "end",
    )


@pytest.mark.parametrize("answer", [RuntimeError("down"), "I cannot."])
def test_a_model_that_fails_at_the_end_costs_a_sentence(tmp_path, held, answer):
    """Then sentences are taken as without a model."""
    memory = SessionMemory(held, by_model=True)
    with opened(tmp_path, memory, summary_model=Writer(answer)) as live:
        heard = told(live, "memory_failed")
        run(live.turn(WISH))
    assert len(heard) == 1
    assert [e.description for e in held.entries() if e.type == "preference"] == [WISH]


def test_what_is_too_much_is_forgotten_by_itself_and_that_is_told(tmp_path, held, monkeypatch):
    """T25, T26, T27: After a promotion the store is brought within its budget: the oldest of what
    was found by itself goes, with a row in the audit, and what a person wrote stays.
    """
    monkeypatch.setattr(MemoryStore.consolidate, "__defaults__", (MemoryDigestLimits(items=3, kinds={
        "fact": (3, 9000), "note": (3, 9000), "procedure": (3, 9000), "episode": (0, 0)}),))  # fmt: skip
    held.add(make_entry("mine", "By hand.", "fact"))
    with opened(tmp_path, SessionMemory(held), turns=6) as live:
        heard = told(live, "memory_consolidated")
        for word in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta"):
            run(live.turn(f"Always keep the rule {word} of the house."))
        live._promoter._promote_messages(live.session.messages, "compaction")
    left = held.entries()
    assert len(left) == 3
    assert "mine" in [e.name for e in left]
    assert sum(len(p["names"]) for p in heard) == 5  # of six wishes and a fact
    rows = [r for r in held.newest_rows().values() if r.get("by") == "consolidation"]
    assert "more than 3" in rows[0]["why"]
    assert held.forgotten()  # so that they are not found again
