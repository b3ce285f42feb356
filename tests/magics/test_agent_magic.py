"""`%%agent`, `%agent`, `%compact` and the places of `%context` in a real IPython, on the scripted model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agent.test_span_exports import collector
from magics.ipython_shells import completions, new_shell
from waiting import PATIENCE, wait_until

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import BadArguments, ModelError, StoreError, UnknownName
from ctxkit.policies import Above, Rules, Summary

NOTICE = "no LLM was called"
AUDIT = "%%agent --model scripted/audit --tools files"
SLOW_TOOL = (
    "import threading\ngate = threading.Event()\ndef list_files():\n    'List.'\n    gate.wait(300)"
)


def run(shell, cell: str):
    """Run a cell as the notebook does and return the value that it displayed."""
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    return done.result


def kit(shell):
    return shell.magics_manager.registry["CtxKit"]


def lines_of_error(shell, cell: str, kind: type, match: str) -> list[str]:
    with pytest.raises(kind, match=match) as raised:
        run(shell, cell)
    return raised.value._render_traceback_()


# -- a turn ----------------------------------------------------------------------------------------------------------


def test_a_turn_runs_tools_and_ends_with_its_account(shell, capsys):
    answer = run(shell, "%%agent\nWrite heat.py")
    assert answer.text.startswith("`heat.py` converts")
    assert (Path(".ctxkit/scratch/main") / "heat.py").read_text().startswith('"""Convert')
    assert repr(answer).startswith("4 calls · ")
    shown = capsys.readouterr().out
    assert "▸ write_file(path=heat.py" in shown
    assert "tokens (4 %)" in shown
    assert len(answer.session.calls) == 4


def test_every_output_says_that_no_model_was_called(shell):
    for cell in ("%%agent\na", "%%agent --dry-run\nb", "%agent", "%%agent\nc", "%compact"):
        value = run(shell, cell)
        assert NOTICE in repr(value)
        assert NOTICE in value._repr_html_()


@pytest.mark.parametrize(("rules", "said"), [
    ("fased", r"hold 20,000 tokens free in a window of 16,000.*fased\(context_window=16_000, .*reserve_tokens_floor"),
    ("pulse_coder", r"a window of 64,000 tokens, but scripted/tour takes 16,000.*context_window_tokens=16_000"),
])  # fmt: skip
def test_rules_made_for_another_window_are_named_once(shell, capsys, rules, said):
    assert re.search(
        f"Note: rules {rules} .*{said}", repr(run(shell, f"%%agent --dry-run --rules {rules}\na"))
    )
    run(shell, f"%%agent --rules {rules}\na")
    assert re.search(f"Note: rules {rules} .*{said}", capsys.readouterr().out)
    run(shell, "%%agent\nb")
    run(shell, "%%agent --rules standard\nb")
    assert "Note:" not in capsys.readouterr().out


@pytest.mark.parametrize(("rules", "said"), [
    (Rules(policy=Summary(keep_turns=1), trigger=Above(9_000), warnings=(Above(2_000),)),
     r"! context budget: [\d,]+ tokens in the prompt, near the next compaction"),
    (presets.fuseraft(warn_at=5_000, cutover_at=90_000),
     r"! context budget: [\d,]+ tokens sent since the last compaction, warned at 5,000, cutover at 90,000"),
])  # fmt: skip
def test_a_budget_that_nears_its_end_is_told_in_words(shell, capsys, rules, said):
    shell.user_ns["mine"] = rules
    run(shell, f"{AUDIT} --rules mine\ngo")
    assert len(re.findall(said, capsys.readouterr().out)) == 1


def test_what_is_kept_of_a_turn_is_for_the_owner_alone(shell):
    run(shell, "%%agent\na")
    kept = [p for place in ("sessions", "logs") for p in Path(".ctxkit", place).iterdir()]
    assert any(p.name.startswith("ctx_viz_") for p in kept)
    assert {p.name: p.stat().st_mode & 0o077 for p in kept if p.stat().st_mode & 0o077} == {}


def test_a_live_session_knows_what_its_tools_weigh(shell):
    run(shell, "%%agent --tools files\na")
    groups = run(shell, "%context").report.groups()
    assert groups["tool schemas"] > 300
    assert "not in the log" not in groups
    run(shell, "%%agent --tools ''\nb")
    assert run(shell, "%context").report.groups()["tool schemas"] < 60


def test_a_count_of_the_provider_stands_beside_the_own_one(shell, monkeypatch):
    run(shell, "%%agent\na")
    model = kit(shell).lives.get().agent.model
    own = re.match(
        "([0-9,]+) tokens, counted here: scripted/tour gave", repr(run(shell, "%context count"))
    )[1]
    tokens = int(own.replace(",", ""))

    async def count(_, request):
        assert [m.role for m in request.messages][:1] == ["user"]
        assert "write_file" in [t.name for t in request.tools]
        return 2 * tokens

    monkeypatch.setattr(type(model), "count", count, raising=False)
    said = f"{2 * tokens:,} tokens by scripted/tour; {own} counted here (-50.0 %)."
    assert repr(run(shell, "%context count")).replace("\u2212", "-") == said


def test_the_answer_goes_to_a_variable(shell):
    answer = run(shell, "%%agent --out r --session one\nWrite it")
    assert shell.user_ns["r"] is answer
    assert answer.outcome.spent.calls == 4
    lines_of_error(
        shell,
        "%%agent --out 1r --session two\nWrite it",
        BadArguments,
        "'1r' is no name of a variable",
    )
    assert not Path(".ctxkit/sessions/two.jsonl").exists()


def test_a_cell_is_taken_as_it_stands(shell):
    shell.user_ns["x"] = 5
    body = 'a $x {x} {{x}} {"json": [1]} 100%?'
    assert run(shell, f"%%agent\n{body}").session.messages[0].text == body
    assert (
        run(shell, "%%agent --expand\nthe {{ x }} of $x {x}").session.messages[8].text
        == "the 5 of $x {x}"
    )
    assert run(shell, "%agent say {x}, $x").session.messages[16].text == "say {x}, $x"


def test_a_dry_run_sends_and_keeps_nothing(shell):
    first = repr(run(shell, "%%agent --dry-run\nWhat?"))
    assert "tool descriptions" in first
    assert "Would send 1 message, " in first
    files, more = (
        re.search(
            r"([\d,]+)  tool descr", repr(run(shell, f"%%agent --dry-run --tools {t}\nWhat?"))
        )[1]
        for t in ("files", "files,work")
    )
    assert int(more.replace(",", "")) > int(files.replace(",", ""))
    assert not Path(".ctxkit").exists()
    run(shell, "%%agent\nWrite it")
    size, before = kit(shell).lives.get().agent.compactor.context.tokens, kit(shell).session()
    page = repr(run(shell, "%%agent --dry-run\nWhat now?"))
    share = f"{100 * (size + 3) / 16_000:.0f} %"
    head, *rows = page.splitlines()
    assert head == (
        f"Would send 9 messages, {size + 3:,}/16,000 tokens ({share}), to scripted/tour."
    )
    parts = [row.strip().split("  ") for row in rows[:-2]]
    sizes = [int(tokens.replace(",", "")) for tokens, _ in parts]
    assert sum(sizes) == size + 3
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert {name for _, name in parts} == {
        "assistant", "user", "results of write_file", "results of read_file",
        "results of list_files", "tool descriptions",
    }  # fmt: skip
    assert parts[-1][1] == "tool descriptions"
    assert rows[-2] == "It would cost nothing (scripted model: no LLM was called)."
    assert "Nothing was sent. The prompt: What now?" in page
    assert kit(shell).session() is before


def test_a_dry_run_says_what_the_first_prompt_costs(shell, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "none")
    for model, said in (
        (
            "anthropic/claude-sonnet-4-5",
            "The first prompt would cost at most ${:.4f}, its reply beside.",
        ),
        ("openai/nobody-knows-it", "No price of the model is known."),
    ):
        page = repr(run(shell, f"%%agent --dry-run --model {model}\n{'n' * 300}")).splitlines()
        tokens = int(re.search(r"([\d,]+)/", page[0])[1].replace(",", ""))
        assert page[-2] == said.format(tokens * 3.75 / 1e6)  # 3.75 dollars a million written
        assert page[-1] == f"Nothing was sent. The prompt: {'n' * 199}…"


def test_a_dry_run_says_when_a_compaction_would_come_first(shell):
    shell.user_ns["tight"] = Rules(
        policy=Summary(keep_turns=1), trigger=Above(2_000), window=16_000
    )
    run(shell, f"{AUDIT}\ngo")
    assert "compaction" not in repr(run(shell, "%%agent --dry-run\ngo on"))
    assert "A compaction would come first." in repr(
        run(shell, "%%agent --dry-run --rules tight\ngo on")
    )


def test_limits_hold_a_turn_and_say_so(shell):
    account = repr(run(shell, f"{AUDIT} --max-calls 2\ngo"))
    assert account.startswith("2 calls · ")
    assert "stopped at the limit of 2 calls" in account


def test_functions_of_the_user_are_tools(shell):
    run(shell, "def list_files(path='.'):\n    'List.'\n    return 'from the notebook'")
    answer = run(shell, "%%agent --tools list_files\nWrite it")
    assert next(m.text for m in answer.session.messages if m.tool) == "from the notebook"
    assert [m.is_error for m in answer.session.messages if m.tool] == [False, True, True]


def test_rules_of_the_user_compact_by_themselves(shell):
    shell.user_ns["tight"] = Rules(
        policy=Summary(keep_tokens=3_000), trigger=Above(8_000), window=16_000
    )
    for _ in range(3):
        answer = run(shell, f"{AUDIT} --rules tight\ngo on")
    assert len(answer.session.edits) >= 1
    assert len(run(shell, "%context compactions")) == len(answer.session.edits)


def test_status_names_model_rules_tools_and_place(shell):
    run(shell, "%%agent --rules swe_agent_mask\nWrite it")
    page = repr(run(shell, "%agent"))
    assert "Session main" in page
    assert "Model: scripted/tour" in page
    assert "Rules: swe_agent_mask" in page
    assert "sessions/main.jsonl" in page


def test_the_chart_of_a_turn_opens_offline(shell):
    """F109, F110, F112, F113: After a turn there is a page with fuseraft's chart, and its path is
    said.
    """
    answer = run(shell, "%%agent\nWrite it")
    path = next(Path(".ctxkit/logs").glob("ctx_viz_*.html"))
    page = path.read_text()
    assert "Context budget" in page
    assert "summed since the last compaction" in page
    assert "<script src" not in page
    assert f"Context viz → {path.as_posix()}" in repr(answer)
    assert path.as_posix() in answer._repr_html_()


def test_outputs_have_limits_that_are_kept_with_the_session(shell):
    """A20, A21: How much of an output is kept is an option of a session, and holds in later turns."""
    run(shell, "%%agent --output lines=1,mode=head\nWrite it")
    live = kit(shell).lives.get("main")
    cut = [m.text for m in live.session.messages if "truncated: showing 1/" in m.text]
    assert cut
    run(shell, "%%agent\nGo on")
    assert kit(shell).lives.get("main").agent.outputs.lines == 1
    lines_of_error(shell, "%%agent --output line=1\nx", BadArguments, "Did you mean 'lines'")


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("--bogus", BadArguments, "no option --bogus"),
        ("--rules fasd", UnknownName, "Did you mean 'fased'"),
        ("--tools flies", BadArguments, "Did you mean 'files'"),
        ("--model scripted/tuor", BadArguments, "Did you mean 'tour'"),
        ("--model audit", BadArguments, "Did you mean 'scripted/audit'"),
        ("--max-calls 0", BadArguments, "above 0"),
        ("--max-calls many", BadArguments, "must be a number"),
        ("--session ../up", BadArguments, "no name for a session"),
        ("--expand {{nothing}}", BadArguments, "no variable 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_the_session_as_it_was(
    shell, line: str, kind: type, said: str
):
    before = run(shell, "%%agent\nWrite it").session
    lines = lines_of_error(shell, f"%%agent {line}\nGo on", kind, said)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert kit(shell).session() is before
    assert kit(shell).lives.get().name == "main"


def test_rules_that_the_window_cannot_hold_leave_the_session_as_it_was(shell):
    before = run(shell, "%%agent --session one --tools ''\nWrite it").session
    shell.user_ns["tight"] = Rules(policy=Summary(keep_turns=1), window=400, reserve=390)
    lines_of_error(
        shell,
        "%%agent --rules tight\ngo on",
        BadArguments,
        "a reserve of 390: give a larger window or a",
    )
    answer = run(shell, "%%agent\ngo on")
    assert answer.session.log[: len(before.log)] == before.log
    assert "Tools: compact_conversation in" in repr(run(shell, "%agent"))


def test_a_mistake_at_the_first_turn_makes_nothing(shell):
    lines_of_error(shell, "%%agent --rules fasd\ngo", UnknownName, "fased")
    assert not Path(".ctxkit").exists()
    lines_of_error(shell, "%agent", BadArguments, "begin one with `%%agent`")


def test_a_missing_key_is_one_line_that_names_the_variable(shell, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    cell = "%%agent --model anthropic/claude-sonnet-4-5 --out r\nhello"
    lines = lines_of_error(shell, cell, ModelError, "ANTHROPIC_API_KEY")
    assert "\n" not in "".join(lines)
    assert "kept in session 'main'" in lines[0]
    assert shell.user_ns["r"].outcome.ended == "error"


def test_completion_knows_options_sessions_and_presets(shell):
    run(shell, "%%agent --session billing\nWrite it")
    assert "--background" in completions(shell, "%%agent --ba")
    assert "billing" in completions(shell, "%%agent --session bi")
    assert "fased" in completions(shell, "%compact --rules fa")


# -- in the background ----------------------------------------------------------------------------------------------


def test_a_turn_beside_the_notebook_is_busy_until_it_ends(shell):
    run(shell, SLOW_TOOL)
    handle = run(shell, "%%agent --background --tools list_files --out r\nWrite it")
    assert handle.state == "running"
    lines_of_error(shell, "%%agent\nmore", BadArguments, "busy")
    lines_of_error(shell, "%compact", BadArguments, "busy")
    assert shell.user_ns["r"] is handle
    shell.user_ns["gate"].set()
    assert handle.result(PATIENCE).text.startswith("`heat.py`")
    assert handle.state == "done"
    assert run(shell, "%%agent\nmore").session.turns[-1] == 1


def test_stopping_keeps_the_partial_turn(shell):
    run(shell, SLOW_TOOL)
    handle = run(shell, "%%agent --background --tools list_files\nWrite it")
    wait_until(lambda: kit(shell).session().calls)
    handle.stop()
    with pytest.raises(KeyboardInterrupt, match="kept in session 'main'"):
        handle.result(PATIENCE)  # the tool runs on, and nobody waits for it
    shell.user_ns["gate"].set()
    assert handle.state == "stopped"
    kept = kit(shell).session().messages
    assert kept[-1].text == "Interrupted by the user before it ended."
    assert run(shell, "%%agent --tools files\nWrite it").text.startswith("The constant")


# -- %compact -------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(shell):
    """A session of three turns of the audit, one compaction by the rules not due yet."""
    run(shell, f"{AUDIT}\ngo")
    run(shell, f"{AUDIT} --max-calls 3\ngo on")
    return shell


def test_compact_shows_before_after_and_what_went(long):
    before = kit(long).session()
    done = run(long, "%compact --keep 1")
    assert done.before > done.after
    assert 0.3 < done.saved < 0.8
    assert f"Compacted ({done.before:,} → {done.after:,} tokens" in repr(done)
    assert len(done.removed_messages) == 12
    assert "INV-NO-871907" in done.summary
    assert len(kit(long).session().edits) == 1
    assert kit(long).session().log[: len(before.log)] == before.log
    assert repr(run(long, "%context diff")).startswith("Compaction 0")


def test_what_a_dry_run_shows_is_what_is_done(long):
    before = kit(long).session()
    would = run(long, "%compact --dry-run --keep 1")
    assert repr(would).startswith("Would compact (")
    assert kit(long).session() is before
    done = run(long, "%compact --keep 1")
    assert (would.before, would.after, would.removed_messages) == (
        done.before,
        done.after,
        done.removed_messages,
    )


def test_an_option_after_the_focus_counts_or_is_refused(long):
    before = kit(long).session()
    assert repr(run(long, "%compact keep the ids --keep 1 --dry-run")).startswith("Would compact (")
    lines_of_error(long, "%compact keep the ids --dryrun", BadArguments, "Did you mean '--dry-run'")
    assert kit(long).session() is before


def test_a_focus_is_taken_raw(long):
    long.user_ns["x"] = 5
    run(long, '%compact --keep 1 the {ids} of $x, and "--keep" nothing')
    assert long.run_line_magic("compact", "-h").text.startswith("%compact [--session")
    events = next(Path(".ctxkit/logs").glob("events_*.jsonl")).read_text()
    assert r'"focus":"the {ids} of $x, and \"--keep\" nothing"' in events


def test_a_focus_may_stand_in_a_cell(long):
    assert run(long, "%%compact --keep 1\nWhich ids were wrong?").is_applied
    assert (
        '"focus":"Which ids were wrong?"'
        in next(Path(".ctxkit/logs").glob("events_*.jsonl")).read_text()
    )


def test_keep_is_turns(long):
    assert len(run(long, "%compact --dry-run --keep 1").removed_messages) == 12
    assert len(run(long, "%compact --dry-run --keep 0").removed_messages) > 15
    assert "skipped" in repr(run(long, "%compact --dry-run --keep 2"))
    lines_of_error(long, "%compact --keep -1", BadArguments, "0 or more")


def test_rules_can_be_lent_for_once(long):
    assert (
        len(run(long, "%compact --dry-run --rules 'summary:keep_messages=4'").removed_messages) > 12
    )
    assert "skipped" in repr(run(long, "%compact --dry-run --rules pi"))  # it keeps 20,000 tokens
    lines_of_error(long, "%compact --rules pl", UnknownName, "preset")


def test_where_the_rules_do_nothing_the_newest_turn_is_kept(shell):
    for _ in range(2):
        run(shell, f"{AUDIT} --rules none --max-calls 2\ngo")
    done = run(shell, "%compact")
    assert done.is_applied
    assert [t for e in done.edits for t in e.targets] == [
        m.id for m in done.session.messages if m.turn == 0
    ]


def test_too_little_is_skipped_and_no_error(shell):
    run(shell, "%%agent\nWrite it")
    assert (
        repr(run(shell, "%compact"))
        == "Compaction skipped: there is too little history to compact."
    )
    assert kit(shell).session().edits == ()


# -- places ---------------------------------------------------------------------------------------------------------


def test_restore_goes_back_and_another_way_is_open(long):
    done = run(long, "%compact --keep 1")
    assert len(run(long, "%context checkpoints")) == 1
    page = repr(run(long, "%context restore -1"))
    assert (
        page
        == f"Session main stands before compaction 0: {done.before:,} tokens. Nothing was lost."
    )
    assert len(run(long, "%context compactions")) == 0
    assert list(run(long, "%context checkpoints")["stands"]) == [False]
    again = run(long, "%compact --keep 0")
    assert again.before == done.before
    assert len(run(long, "%context checkpoints")) == 2


def test_checkpoints_are_listed_with_branch_and_restore(long):
    """D23: Each checkpoint stands with what makes a session of it and what goes back to it."""
    whole = kit(long).session().view()
    run(long, "%compact --keep 1")
    table = run(long, "%context checkpoints")
    shown = table._repr_html_()
    assert re.findall(r'title="([^"]*)">([^<]+)</th>', shown.split("</thead>")[0]) == [
        ("Sort", "checkpoint"),
        ("Sort", "time"),
        ("of the prompt before the compaction", "tokens"),
        ("Sort", "trigger"),
        ("Sort", "stands"),
        ("opens a session of its own from here", "Branch"),
        ("goes back; what came after stays in the log", "Restore"),
    ]
    assert [re.sub("<[^>]+>", "", cell) for cell in re.findall("<t[hd] .*?</t[hd]>", shown)[7:]] == [
        "0", f"{table['time'].iloc[0]:%Y-%m-%d %H:%M}", f"{table['tokens'].iloc[0]:,}", "manual",
        "yes", "%context branch 0", "%context restore 0",
    ]  # fmt: skip
    for words in ("Branch", "Restore", "%context branch 0", "%context restore 0"):
        assert words in shown
    assert repr(run(long, table["branch"].iloc[0])).split()[1] == "main-branch-0"
    assert kit(long).session("main-branch-0").view() == whole
    assert len(kit(long).session("main").edits) == 1
    back = run(long, f"{table['restore'].iloc[0]} --session main")
    assert "stands before compaction 0" in repr(back)
    assert kit(long).session("main").view() == whole


def test_checkpoints_show_no_path_of_the_disk(long):
    """D29: Checkpoints go by their numbers; no page of theirs has the folder or the log's file."""
    run(long, "%compact --keep 1")
    table = run(long, "%context checkpoints")
    pages = [repr(table), table.to_csv(), repr(run(long, "%context restore 0")),
             repr(run(long, "%context branch 0 other"))]  # fmt: skip
    for page in (*pages, table._repr_html_()):
        assert str(Path.cwd()) not in page
        assert ".jsonl" not in page
        assert ".ctxkit/" not in page


def test_the_user_sees_what_kind_a_result_is(long):
    """A17: A result is a `tool_result`, and `tool_result_archived` once the agent no longer has it."""
    before = run(long, "%context list --user")
    assert set(before[before["role"] == "tool"]["kind"]) == {"tool_result"}
    run(long, "%compact --keep 1")
    after = run(long, "%context list --user")
    for sees, kind in ((True, "tool_result"), (False, "tool_result_archived")):
        results = after[(after["role"] == "tool") & (after["agent_sees"] == sees)]
        assert set(results["kind"]) == {kind}
    assert "tool_result_archived" in after._repr_html_()


def test_list_and_detail_show_the_report_of_a_call(long):
    """T13: `%context list` has the parts of the report, `%context detail` all of it; both add up to
    the prompt that the report has.
    """
    report = ck.report(kit(long).session(), -1)
    listed = run(long, "%context list --call -1")
    assert listed["tokens"].sum() == report.prompt_tokens
    assert {"tool schemas", "tool results"} <= set(listed["part"])
    page = repr(run(long, "%context detail --call -1"))
    assert f"{report.prompt_tokens:,} tokens" in page


def test_detail_is_the_whole_report_of_the_call_or_of_a_turn_before(long):
    """T12: It is the report with all of its parts; by its id it is the one kept of another turn."""
    now = ck.report(kit(long).session(), -1)
    assert run(long, "%context detail --call -1") == now
    assert len(now.contributors) > 3
    ids = list(run(long, "%context turns --reports").index)
    assert len(ids) > 1
    for limit, n in ((-1, 0), (0, 0), (1, 1)):
        assert list(run(long, f"%context reports --limit {limit}").index) == ids[:n]
    kept = [run(long, f"%context detail --kept {name}") for name in (ids[-1], "last")]
    assert kept[0].prompt_tokens != kept[1].prompt_tokens


def test_the_status_says_how_many_compactions_there_were(long):
    """D22: `%context status` counts the compactions of the session, and `%context` alone does."""
    for n in (0, 1):
        for line in ("%context status", "%context"):
            assert f"Compactions: {n}" in repr(run(long, line))
        run(long, "%compact --keep 1")
    assert "Compactions: 0" in repr(run(long, "%context status --call 0"))


def test_a_branch_goes_on_by_itself_with_the_same_model_and_files(long):
    run(long, "%compact --keep 1")
    assert "%%agent --session other" in repr(run(long, "%context branch 0 other"))
    answer = run(long, "%%agent\ngo on")
    assert answer.session.title == "other"
    assert answer.session.calls[-1].message.model == "scripted/audit"
    assert "manual" not in [e.trigger for e in answer.session.edits]
    assert not [m for m in answer.session.messages if m.is_error]
    assert len(kit(long).sessions.get("main").edits) == 1
    lines_of_error(long, "%context branch 0 other --session main", BadArguments, "already")


def test_use_says_which_session_is_meant(long):
    run(long, "%%agent --session second\nWrite it")
    run(long, "%context use main;")
    assert "Session main" in repr(run(long, "%agent"))
    assert run(long, f"{AUDIT}\ngo on").session.title == "main"


def test_reset_begins_anew_and_keeps_the_old_one(long):
    """D35: A fresh session has an id of its own."""
    old = kit(long).session()
    page = repr(run(long, "%context reset"))
    assert kit(long).session().id not in {"", old.id}
    assert page == f"Session main is fresh. The old one is kept as main-{old.id}."
    assert kit(long).session().messages == ()
    assert f"main-{old.id}" in list(run(long, "%context sessions").index)
    assert (
        run(long, f"%%agent --session main-{old.id}\ngo on").session.log[: len(old.log)] == old.log
    )


def test_budget_grows_with_each_turn(shell):
    rows = [run(shell, "%%agent\nWrite it") and len(run(shell, "%context turns")) for _ in range(2)]
    assert rows == [1, 2]
    assert "main" in repr(run(shell, "%context budget"))


def test_a_live_budget_is_drawn_with_its_warning_and_its_cut_over(shell):
    shell.user_ns["mine"] = presets.fuseraft(warn_at=5_000, cutover_at=9_000)
    run(shell, f"{AUDIT} --rules mine\ngo")
    chart = run(shell, "%context budget")
    assert [(n.y, n.label) for n in chart.drawing.limits] == [
        (5_000, "warn at 5,000"),
        (9_000, "cutover at 9,000"),
    ]
    peak = run(shell, "%context turns")["cumulative_input_tokens"].max()
    assert f"{100 * peak / 9_000:.0f} %" in repr(chart)
    assert "no limit" not in repr(chart)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("diff", r"has no compaction\."),
        ("restore 0", "no checkpoint"),
        ("branch 3", "no checkpoint"),
        ("restore", "needs"),
    ],
)
def test_a_place_that_is_not_there_is_named(shell, line: str, said: str):
    run(shell, "%%agent\nWrite it")
    assert len(lines_of_error(shell, f"%context {line}", BadArguments, said)) == 1


# -- other shells ---------------------------------------------------------------------------------------------------


def test_a_session_is_resumed_by_name_with_its_script(long):
    written = kit(long).session()
    long.run_line_magic("unload_ext", "ctxkit")
    other = new_shell()
    other.run_line_magic("load_ext", "ctxkit")
    answer = run(other, "%%agent --max-calls 40\ngo on")
    assert answer.session.log[: len(written.log)] == written.log
    assert answer.text.startswith("south:")
    other.run_line_magic("unload_ext", "ctxkit")


def test_unloading_gives_the_session_free(shell):
    run(shell, "%%agent\nWrite it")
    live = kit(shell).lives.get()
    shell.run_line_magic("unload_ext", "ctxkit")
    with pytest.raises(StoreError, match="closed"):
        live.log.append()
    assert not list(Path(".ctxkit/sessions").glob(".*.holder"))


def test_a_compaction_says_what_it_did_and_who_wrote(shell):
    run(shell, f"{AUDIT}\ngo")
    cleared = run(shell, "%compact --rules clear:keep_last=1")
    assert re.search(
        r"\), 4 messages were shortened · no summary, no LLM was called$", cleared.one_line
    )
    run(shell, f"{AUDIT}\ngo")
    assert re.search(
        r"\), \d+ messages would go · extractive",
        run(shell, "%compact --dry-run --keep 1").one_line,
    )


def test_what_asks_for_nothing_is_refused(shell):
    run(shell, "%%agent\ngo")
    lines_of_error(shell, "%agent --dry-run", BadArguments, "Nothing was asked")
    lines_of_error(shell, "%%agent --model scripted/audit\n ", BadArguments, "Nothing was asked")
    lines_of_error(shell, "%compact --rules none", BadArguments, "Rules none compact nothing")
    assert "Session main" in repr(run(shell, "%agent --session main"))


def test_the_context_after_a_compaction_is_the_one_that_comes_next(shell):
    run(shell, f"{AUDIT}\ngo")
    assert run(shell, "%context").report.call == 5
    done = run(shell, "%compact --keep 0")
    now = run(shell, "%context")
    assert now.one_line.endswith("· Compactions: 1 · derived")
    assert abs(now.report.prompt_tokens - done.after) < 100
    assert "before the next call" in repr(now)
    assert run(shell, "%context --call -1").report.call == 5


# -- a folder of somebody else's -----------------------------------------------------------------


def test_a_session_that_came_with_the_folder_waits_for_a_word(shell, monkeypatch, tmp_path):
    run(shell, "%%agent --session theirs\nWrite it")
    kit(shell).close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    for cell in ("%%agent --session theirs\ngo on", "%%agent --session theirs --dry-run\ngo on"):
        lines_of_error(shell, cell, BadArguments, "--session theirs --trust` goes on with it")
    run(shell, "%%agent --session own\nWrite it")
    answer = run(shell, "%%agent --session theirs --trust\ngo on")
    assert answer.session.turns[-1] == 1
    kit(shell).close()
    assert run(shell, "%%agent --session theirs\ngo on").session.turns[-1] == 2


def test_a_protected_name_is_allowed_by_an_option(shell):
    run(shell, "%%agent --root . --allow conftest.py,.envrc\nWrite it")
    assert kit(shell).lives.get().root._allowed == {"conftest.py", ".envrc"}
    run(shell, "%%agent\ngo on")  # the session remembers
    assert kit(shell).lives.get().root._allowed == {"conftest.py", ".envrc"}
    lines_of_error(shell, "%%agent --allow conftst.py\na", BadArguments, "Did you mean")


def test_a_session_whose_file_was_replaced_says_where_it_goes_on(shell):
    run(shell, "%%agent\nWrite it")
    path = Path(".ctxkit/sessions/main.jsonl")
    path.with_suffix(".swp").write_bytes(path.read_bytes())
    path.with_suffix(".swp").replace(path)
    goes_on = "--session main.rescued` goes on there"
    lines_of_error(shell, "%%agent\nthis is kept", StoreError, goes_on)
    kept = run(shell, "%%agent --session main.rescued\ngo on").session
    assert "this is kept" in [m.text for m in kept.messages]
    as_it_is = run(shell, "%%agent --session main\ngo on").session
    assert as_it_is.turns[-1] == 1


def test_a_branch_and_a_session_put_aside_are_ones_own(shell):
    run(shell, f"{AUDIT}\ngo")
    run(shell, "%context reset")
    aside = next(p.stem for p in Path(".ctxkit/sessions").glob("*-*.jsonl"))
    kit(shell).close()
    assert run(shell, f"%%agent --session {aside}\ngo on").outcome.ended == "answered"


def test_a_session_sends_its_spans_where_the_setting_says(shell):
    """Without the setting none are sent; what was said only where that is asked for."""
    run(shell, "%%agent\nHi.")
    assert not kit(shell).lives.get("main")._exports
    with collector() as (url, came):
        run(shell, f"%config CtxKit.export = {url!r}")
        run(shell, "%%agent --session sent\nSay marzipan.")
        run(shell, "%config CtxKit.export_content = True")
        run(shell, "%%agent --session told\nSay nougat.")
        kit(shell).close()
    bodies = b"".join(data for *_, data in came)
    assert b"gen_ai.usage" in bodies
    assert b"nougat" in bodies
    assert b"marzipan" not in bodies
