"""What sections cost: the differences of one bill, checked against sums by hand."""

from __future__ import annotations

import pytest
from builders import call, result
from conftest import sample
from experiments.sessions_with_sections import BLOCKS, MODEL, talk

import ctxkit as ck
from ctxkit.agent import ContextStore
from ctxkit.errors import BadArguments
from ctxkit.experiments import SECTION_COLUMNS
from ctxkit.experiments.ablations_of_sections_store_and_memory import (
    TIME_AT_TOP_ROW,
    _paste_session,
)
from ctxkit.tokens import default_counter


def test_a_section_costs_its_tokens_at_every_call():
    session = talk()
    table = ck.experiments.sections(session).set_index("section")
    assert list(table.index) == ["base", "gitignore", "store", "time", TIME_AT_TOP_ROW]
    assert list(ck.experiments.sections(session).columns) == [c.name for c in SECTION_COLUMNS]
    calls = len(session.calls)
    for name in ("base", "gitignore", "store", "time"):
        row = table.loc[name]
        assert row.billed_tokens == row.tokens * calls
        assert row.said_n == 1
    system = session.messages[0]
    assert table.loc[
        ["base", "gitignore", "store", "time"], "tokens"
    ].sum() == default_counter().message(system)
    assert table.loc["gitignore", "raw_chars"] == 9000


def test_its_dollars_are_written_once_and_read_at_every_later_call():
    session = talk()
    table = ck.experiments.sections(session).set_index("section")
    p = ck.prices.price(MODEL)
    tokens, calls = table.loc["gitignore", "tokens"], len(session.calls)
    by_hand = tokens * (p.cache_write + (calls - 1) * p.cache_read)
    assert table.loc["gitignore", "cost_usd"] == pytest.approx(by_hand, rel=0.02)


def test_the_time_at_the_top_would_bill_all_behind_it_anew_at_each_turn():
    session = talk()
    table = ck.experiments.sections(session).set_index("section")
    p = ck.prices.price(MODEL)
    head = 700 + table.loc[["base", "gitignore", "store"], "tokens"].sum()
    firsts = [c for c in session.calls if c.turn != session.calls[max(c.index - 1, 0)].turn]
    lost = sum(c.message.usage.cache_read_tokens - head for c in firsts)
    assert len(firsts) == 3
    assert table.loc[TIME_AT_TOP_ROW, "cost_usd"] == pytest.approx(
        lost * (p.cache_write - p.cache_read), rel=0.05
    )


def test_a_session_without_a_section_is_sent_without_it():
    session = talk()
    less = ck.experiments.without(session, "gitignore", "time")
    assert [n for n, _, _ in less.messages[0].sections] == ["base", "store"]
    assert all("build/" not in m.text for c in range(len(less.calls)) for m in less.view(c))
    assert less.messages[1:] == session.messages[1:]
    bare = ck.experiments.without(session, *(b.name for b in BLOCKS))
    assert bare.view(0)[0].role == "user"
    with pytest.raises(
        BadArguments, match="no section 'gitignor'; it has base, gitignore, store, time"
    ):
        ck.experiments.without(session, "gitignor")


def test_rules_can_be_asked_about():
    table = ck.experiments.sections(talk(turns=12), "pi").set_index("section")
    assert table.loc["gitignore", "cost_usd"] > 0


def test_sections_of_another_programs_system_prompt_are_its_headings():
    text = "Be brief.\n\n# Tools\nUse them.\n\n# Habits\n" + "Keep changes small. " * 50
    log = [
        {"role": "system", "content": text},
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "ok"},
    ]
    table = ck.experiments.sections(log).set_index("section")
    assert list(table.index) == ["preamble", "Tools", "Habits"]
    assert table.loc["Habits", "tokens"] > 100
    assert table["cost_usd"].isna().all()
    assert "Habits" not in ck.experiments.without(log, "Habits").messages[0].text


def test_a_session_without_sections_has_none():
    assert ck.experiments.sections(
        [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "ok"}]
    ).empty


def test_schemas_of_tools_are_priced_too():
    from msgspec.structs import replace

    from ctxkit.session import ToolSchema

    session = replace(talk(), tools=(ToolSchema(name="look", chars=2000),))
    row = ck.experiments.sections(session).set_index("section").loc["tool schemas"]
    assert (row.tokens, row.billed_tokens) == (500, 500 * len(session.calls))
    assert row.cost_usd > 0


# -- index and read on demand, against pasted whole --------------------------------------------------


@pytest.fixture
def store(tmp_path):
    library = ContextStore(tmp_path)
    library.put("spec", {"a.md": (b"spec " * 900, 4500)})
    return library


def test_pasting_saves_the_calls_that_read_and_is_paid_at_every_call(store):
    table = ck.experiments.index_or_paste(talk(), store).set_index("variant")
    demand, pasted = table.loc["index, read on demand"], table.loc["pasted whole"]
    assert (demand.calls_n, pasted.calls_n) == (5, 4)
    assert demand.output_tokens - pasted.output_tokens == 40
    assert pasted.store_tokens > 850 > demand.store_tokens
    whole = ck.experiments.sections(talk())
    bill = sum(c.message.usage.prompt_tokens for c in talk().calls)
    assert demand.prompt_tokens == bill
    assert demand.cost_usd > 0
    assert not whole.empty


def test_what_nobody_reads_is_cheaper_as_an_index(store):
    table = ck.experiments.index_or_paste(talk(reads=False), store).set_index("variant")
    demand, pasted = table.loc["index, read on demand"], table.loc["pasted whole"]
    assert demand.calls_n == pasted.calls_n
    more = (pasted.store_tokens - demand.store_tokens) * demand.calls_n
    assert pasted.prompt_tokens - demand.prompt_tokens == more
    assert pasted.cost_usd > demand.cost_usd


def test_an_id_that_is_used_again_keeps_its_own_result(store):
    asked = call("shell", "c0", command="ls")
    more = talk(turns=1).append(asked, result("out", asked))
    pasted = _paste_session(more, more.messages[0], "all of it").session
    assert [m.text for m in pasted.messages if m.role == "tool"] == ["out"]


def test_without_usage_pasted_text_has_the_tokens_that_are_counted(store):
    from msgspec.structs import replace

    log = tuple(replace(m, usage=None) for m in talk().log)
    table = ck.experiments.index_or_paste(replace(talk(), log=log), store).set_index("variant")
    demand, pasted = table.loc["index, read on demand"], table.loc["pasted whole"]
    assert pasted.store_tokens - demand.store_tokens > 800
    assert pasted.source == "estimated"


def test_each_call_and_message_of_a_pasted_session_has_its_place_in_the_record():
    session = talk()
    pasted = _paste_session(session, session.messages[0], "all of it")
    places = (
        (pasted.call_places, [c.message.id for c in session.calls], pasted.session.calls),
        (pasted.message_places, [m.id for m in session.messages], pasted.session.messages),
    )
    for numbers, ids, left in places:
        assert [ids[n] for n in numbers] == [getattr(x, "message", x).id for x in left]
        assert len(left) < len(ids)


def test_without_an_index_or_its_store_that_is_said(store, tmp_path):
    with pytest.raises(BadArguments, match="no index of a context store"):
        ck.experiments.index_or_paste(talk(blocks=BLOCKS[:2]), store)
    with pytest.raises(BadArguments, match="nothing of what the session's index names"):
        ck.experiments.index_or_paste(talk(), ContextStore(tmp_path / "other"))


def test_compactions_of_what_was_not_read_are_left_out(store):
    from msgspec.structs import replace

    from ctxkit.session import Edit

    session = talk(turns=6)
    ids = [m.id for m in session.messages]
    cut = Edit(kind="shortened", id="e0", targets=(ids[3],),
               inserted=(replace(session.messages[3], id="short", parts=()),))  # fmt: skip
    drop = Edit(kind="dropped", id="e1", targets=(ids[1], ids[2], ids[3]))
    log = [*session.log[:7], cut, drop, *session.log[7:]]
    table = ck.experiments.index_or_paste(replace(session, log=tuple(log)), store)
    assert (table.prompt_tokens > 0).all()


def test_a_compaction_of_many_keeps_what_replaces_those_that_remain(store):
    from msgspec.structs import replace

    from ctxkit.session import Edit, Message, Text

    session = talk(turns=6)
    ids = [m.id for m in session.messages]  # 2 and 3 are the read of the store and its result
    short = [Message(role="user", id=f"x{i}", parts=(Text(f"short {i}"),)) for i in (1, 3, 5)]
    cut = Edit(kind="replaced", id="e", targets=(ids[1], ids[3], ids[5]), inserted=tuple(short))
    gone = Edit(kind="replaced", id="g", targets=(ids[3],), inserted=(short[1],))
    summary = Edit(kind="summarised", id="f", targets=(ids[2], ids[4]), inserted=(short[0],))
    log = (*session.log[:8], cut, gone, summary, *session.log[8:])
    session = replace(session, log=log)
    pasted = _paste_session(session, session.messages[0], "all of it").session
    first, second = pasted.edits
    assert (first.targets, first.inserted) == ((ids[1], ids[5]), (short[0], short[2]))
    # one summary stands for all of its targets, so it stays whole
    assert (second.targets, second.inserted) == ((ids[4],), (short[0],))


# -- real sessions -----------------------------------------------------------------------------------

REAL = (
    "mini-swe-agent/*",
    "openhands/llm-log-*",
    "swe-agent/*",
    "tau-bench/*",
    "kimi-cli/*",
    "inspect-ai/*",
    "codex/*",
)


def test_of_real_sessions_the_rows_add_up_to_the_bill_without_all(real):
    from ctxkit.experiments.ablations_of_sections_store_and_memory import PromptVariantBiller

    seen = 0
    for pattern in REAL:
        for path in sample(sorted(real.glob(pattern)), 2):
            if not path.is_file() or path.stat().st_size > 3_000_000:
                continue
            for session in ck.read_all(path)[:2]:
                table = ck.experiments.sections(session)
                rows = table[~table.section.isin(["tool schemas", TIME_AT_TOP_ROW])]
                if rows.empty or session.edits:
                    continue
                seen += 1
                system = sum(n for m, n in zip(session.messages, PromptVariantBiller(session).sizes.tokens, strict=True)
                             if m.role == "system" and m.visible)  # fmt: skip
                assert rows.tokens.sum() == system
                bare = ck.experiments.without(session, *rows.section)
                assert all(m.role != "system" for c in range(len(bare.calls)) for m in bare.view(c))
                asked = PromptVariantBiller(session)
                none = [0 if m.role == "system" else n
                        for m, n in zip(session.messages, asked.sizes.tokens, strict=True)]  # fmt: skip
                less = asked.bill(asked.run(bare, none)).prompts
                assert asked.bill(asked.run(session)).prompts - less == rows.billed_tokens.sum()
    assert seen > 3
