"""`list`, `report` and `spend` as a newcomer uses them."""

from __future__ import annotations

import json
import os

import pytest
from builders import assistant, session, summarised, usage, user
from cli.command_runner import ctxkit, in_terminal, run_as_in_terminal, run_in_this_process

import ctxkit as ck
from ctxkit.cli.list_report_spend_watch_commands import sum_spend_by_group
from ctxkit.cli.session_index import (
    DailyModelSpend,
    IndexedLogFile,
    IndexedSession,
    SessionIndex,
    index_session,
    list_log_files,
)


def test_a_list_has_the_sessions_of_known_tools(home):
    done = ctxkit(home, "list")
    assert done.returncode == 0
    assert "BILL-4127" in done.stdout
    assert "$3.29" in done.stdout
    assert "1 could not be read" in done.stdout
    assert done.stderr == ""


def test_the_list_is_a_session_frame_in_json(home):
    rows = json.loads(run_in_this_process(home, "list", "--json", "--tool", "ctxkit").stdout)
    own = ck.frame(ck.samples.path("billing"), per="session").iloc[0]
    (row,) = rows
    assert (row["session"], row["calls_n"], row["peak_tokens"]) == (
        own["session"],
        own["calls_n"],
        own["peak_tokens"],
    )
    assert row["cost_usd"] == own["cost_usd"]
    assert row["with_subagents_usd"] == pytest.approx(own["cost_usd"])


@pytest.mark.parametrize(
    ("words", "n"),
    [
        (("--tool", "pi"), 1),
        (("--tool", "codex"), 0),
        (("--project", "WOR"), 1),
        (("--since", "1h"), 2),
        (("--since", "2999-01-01"), 0),
    ],
)
def test_a_list_is_narrowed(home, words, n):
    assert len(json.loads(run_in_this_process(home, "list", "--json", *words).stdout)) == n


@pytest.mark.parametrize(
    ("words", "n"),
    [
        (("--tool", "pi"), 1),
        (("--tool", "pi", "--most", "1"), 1),
        (("--tool", "native"), 1),
        (("--tool", "goose"), 0),
        (("--project", "agent/sessions/WORK"), 1),
    ],
)
def test_a_folder_is_narrowed_by_what_its_files_are(home, words, n):
    assert len(json.loads(run_in_this_process(home, "list", home, "--json", *words).stdout)) == n
    shown = run_in_this_process(home, "list", home, *words).stdout
    assert shown.startswith("last " if n else "Nothing fits --since, --project and --tool")
    if words[1] in ("native", "goose"):  # what has usage
        assert (
            len(json.loads(run_in_this_process(home, "spend", home, "--json", *words).stdout))
            == 2 * n
        )


OLDER = "older: --all shows them, --since and --tool choose.\n"


def test_a_list_reads_on_until_it_has_the_rows_that_were_asked_for(home):
    os.utime(home / ".pi" / "agent" / "sessions" / "work" / "broken.jsonl", (3e9, 3e9))
    os.utime(home / ".ctxkit" / "sessions" / "billing.jsonl", (1e9, 1e9))
    shown = run_in_this_process(home, "list", "-n", "1").stdout
    assert [line.split()[2] for line in shown.splitlines()[2:3]] == ["pi"]
    assert "BILL-4127" not in shown
    assert f"\n1 {OLDER}1 could not be read" in shown
    read = (home / "state" / "ctxkit" / "seen.jsonl").read_text()
    assert ("2026.jsonl" in read, "billing.jsonl" in read) == (True, False)
    assert run_in_this_process(home, "list", "-n", "0").stdout == f"3 {OLDER}"
    assert run_in_this_process(home, "list", "-n", "0", "--tool", "pi").stdout == f"2 {OLDER}"


def test_a_list_sums_up_its_costs(home):
    assert "\nIn all $3.29; 1 session without a cost.\n" in run_in_this_process(home, "list").stdout
    reply = {"model": "claude-sonnet-4-5"}
    child = session(user(), assistant(usage=usage(500_000, output=0), **reply), id="child")
    whole = assistant(usage=usage(1_000_000, output=0), **reply)
    folder = home / ".ctxkit" / "sessions"
    ck.write(session(user(), whole, children=(child,)), folder / "parent.jsonl")
    # at $3 per million tokens, beside the sample's $3.29
    assert (
        "\nIn all $6.29, $7.79 with their subagents; 1 session"
        in run_in_this_process(home, "list").stdout
    )
    assert "In all" not in run_in_this_process(home, "list", "-n", "1").stdout


def test_a_tool_that_nobody_knows_is_not_answered_with_nothing(home):
    done = run_in_this_process(home, "list", "--tool", "codx")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no tool 'codx'. Did you mean 'codex'?" in done.stderr


def test_what_has_no_price_has_no_cost(home):
    talk = session(user(), assistant(usage=usage(1000)), model="nobody/free")
    ck.write(talk, home / "free.jsonl")
    (row,) = json.loads(run_in_this_process(home, "spend", "free.jsonl", "--json").stdout)
    assert (row["total_usd"], row["unpriced_n"]) == (None, 1)
    assert "$" not in run_in_this_process(home, "spend", "free.jsonl").stdout


def test_what_was_seen_is_not_read_again_until_it_changes(home):
    place = home / ".ctxkit" / "sessions"
    seen = SessionIndex(home / "state")
    (log,) = seen.read_files(list_log_files(place))
    seen.save()
    assert (home / "state" / "seen.jsonl").stat().st_mode & 0o77 == 0
    again = SessionIndex(home / "state")
    assert again.look_up(list_log_files(place)[0]).sessions == log.sessions
    os.utime(place / "billing.jsonl", (1, 1))
    assert again.look_up(list_log_files(place)[0]).sessions is None


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe",
        b'{"seen":0}\n',
        f'{{"seen":2,"ctxkit":"{ck.__version__}"}}\n{{"path":3}}\n'.encode(),
        b"[" * 9999,
    ],
)
def test_a_damaged_note_is_no_hindrance(home, damage):
    folder = home / "state" / "ctxkit"
    folder.mkdir(parents=True)
    (folder / "seen.jsonl").write_bytes(damage)
    assert "BILL-4127" in run_in_this_process(home, "list").stdout


def test_a_state_folder_that_cannot_be_written_is_no_hindrance(home):
    (home / "state").write_text("a file")
    assert "BILL-4127" in run_in_this_process(home, "list").stdout


def test_all_figures_fit_a_terminal_of_80_columns(home):
    for words in (
        ["list"],
        ["report", "billing"],
        ["spend"],
        ["compare", "billing", "-r", "pi"],
        ["doctor"],
        ["--help"],
    ):
        code, shown = run_as_in_terminal(home, *words)
        assert code == 0, shown
        wide = [line for line in shown.splitlines() if len(line) > 80 and "/" not in line]
        assert wide == [], words


def test_text_of_a_log_writes_nothing_but_text_to_a_terminal(home):
    for words in (
        ["list"],
        ["report", "red2J title"],
        ["spend", "--by", "session"],
        ["watch", "red2J title", "--times", "1"],
        ["compare", "billing", "-r", "pi"],
    ):
        code, shown = run_as_in_terminal(home, *words)
        assert code == 0, shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_a_narrow_terminal_gets_a_narrow_table(home):
    code, shown = in_terminal(home, "list", columns=70)
    assert code == 0
    assert max(map(len, shown.splitlines()[:4])) <= 70
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_session_is_named_by_path_id_beginning_title_or_last(home):
    path = home / ".ctxkit" / "sessions" / "billing.jsonl"
    whole = json.loads(run_in_this_process(home, "report", path, "--json").stdout)
    assert (whole["session"], whole["call"]) == ("billing", 342)
    for word in ("billing", "bill-4127: the nightly export fails", "nightly", "bill"):
        assert json.loads(run_in_this_process(home, "report", word, "--json").stdout) == whole
    os.utime(path, (2e9, 2e9))
    assert json.loads(run_in_this_process(home, "report", "last", "--json").stdout) == whole
    assert "Context of BILL-4127" in run_in_this_process(home, "report", "nightly").stdout


def test_a_name_of_two_sessions_or_none_is_a_sentence(home):
    folder = home / ".ctxkit" / "sessions"
    ck.write(ck.read([{"role": "user", "content": "x"}]), folder / "other.jsonl")
    done = run_in_this_process(home, "report", "messages")
    assert (done.returncode, done.stdout) == (2, "")
    assert "2 sessions are meant by 'messages'" in done.stderr
    done = run_in_this_process(home, "report", "biling")
    assert done.returncode == 2
    assert "Did you mean 'billing'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_report_says_first_what_is_known_already(home):
    run_in_this_process(home, "list")
    first, *rest = run_in_this_process(home, "report", "billing").stdout.splitlines()
    assert first == "BILL-4127: the nightly export fails, 343 calls, $3.29 (recorded)"
    assert "tool results" in "\n".join(rest)


def test_a_report_in_json_adds_up(home):
    found = json.loads(
        run_in_this_process(home, "report", "billing", "--json", "--call", "100").stdout
    )
    assert found["call"] == 100
    assert sum(p["tokens"] for p in found["parts"]) == found["prompt_tokens"]


def test_pages_open_offline(home):
    for words in (["report", "billing"], ["spend"]):
        page = home / "page.html"
        done = run_in_this_process(home, *words, "--html", page)
        assert done.returncode == 0, done.stderr
        text = page.read_text()
        assert "Content-Security-Policy" in text
        assert "\x1b" not in text
        page.unlink()
    assert run_in_this_process(home, "list", "--html", home / "none" / "page.html").returncode == 2


@pytest.mark.parametrize("by", ["day", "week", "month", "model", "project", "tool", "session"])
def test_what_was_spent_adds_up_however_it_is_parted(home, by):
    rows = json.loads(run_in_this_process(home, "spend", "--by", by, "--json").stdout)
    assert sum(r["total_usd"] for r in rows) == pytest.approx(3.288617)
    assert sum(r["calls_n"] for r in rows) == 343


BY_GROUP = {
    "day": [
        ("2026-08-31", 1.0, 2, 1, 0),
        ("2026-09-06", 2.0, 3, 1, 0),
        ("2026-09-07", 4.0, 1, 1, 0),
        ("unknown", None, 0, 1, 1),
    ],
    "week": [
        ("2026-08-31", 3.0, 5, 1, 0),
        ("2026-09-07", 4.0, 1, 1, 0),
        ("unknown", None, 0, 1, 1),
    ],
    "month": [("2026-08", 1.0, 2, 1, 0), ("2026-09", 6.0, 4, 2, 0), ("unknown", None, 0, 1, 1)],
    "model": [("large", 6.0, 4, 2, 0), ("small", 1.0, 2, 1, 0), ("unknown", None, 0, 1, 1)],
    "project": [("unknown", 4.0, 1, 1, 1), ("web", 3.0, 5, 1, 0)],
    "tool": [("codex", 4.0, 1, 1, 1), ("pi", 3.0, 5, 1, 0)],
    "session": [("second", 4.0, 1, 1, 1), ("Mend it", 3.0, 5, 1, 0)],
}
"""Name, dollars, calls, sessions and calls without a price of each row, in order."""


def test_each_group_has_its_name_its_order_and_its_sums():
    """2026-08-31 is a Monday; the Sunday after it is of the same week and of another month."""
    first = IndexedSession(
        id="first",
        title="Mend it",
        format="pi",
        spent=(
            DailyModelSpend("2026-08-31", "small", 1.0, 2, 100, 10),
            DailyModelSpend("2026-09-06", "large", 2.0, 3, 200, 20),
        ),
    )
    second = IndexedSession(
        id="second",
        format="codex",
        spent=(
            DailyModelSpend("2026-09-07", "large", 4.0, 1, 300, 30),
            DailyModelSpend("", "", None, 0, 0, 0),
        ),
    )
    logs = [
        IndexedLogFile(path="a", modified=0.0, size=0, tool="pi", project="web", sessions=(first,)),
        IndexedLogFile(path="b", modified=0.0, size=0, sessions=(second,)),
        IndexedLogFile(path="c", modified=0.0, size=0, error="It is torn."),
    ]
    figures = ("total_usd", "calls_n", "sessions_n", "unpriced_n")
    rows = {by: sum_spend_by_group(logs, by) for by in BY_GROUP}
    assert {
        by: [(r[by], *(r[f] for f in figures)) for r in found] for by, found in rows.items()
    } == BY_GROUP
    assert [(r["prompt_tokens"], r["output_tokens"]) for r in rows["model"]] == [
        (500, 50),
        (100, 10),
        (0, 0),
    ]
    # the day of the moment counts whole, and what has no day always does
    noon = 1_788_696_000.0  # 2026-09-06 12:00 UTC
    left = sum_spend_by_group(logs, "day", noon)
    assert [r["day"] for r in left] == ["2026-09-06", "2026-09-07", "unknown"]


def test_rows_are_summed_up_where_there_are_two(home):
    days = run_in_this_process(home, "spend").stdout
    assert "\nIn all $3.29 for 343 calls.\n" in days
    assert "In all" not in run_in_this_process(home, "spend", "--by", "model").stdout


def test_spent_by_day_are_the_days_of_the_calls(home):
    calls = ck.frame(ck.samples.path("billing"), per="call")
    days = calls.groupby(calls["ts"].dt.strftime("%Y-%m-%d"))["cost_usd"].sum()
    rows = {
        r["day"]: r["total_usd"]
        for r in json.loads(run_in_this_process(home, "spend", "--json").stdout)
    }
    assert list(rows) == list(days.index)
    summaries = ck.frame(ck.samples.path("billing"), per="session")["summaries_usd"].iloc[0]
    last = days.index[-1]
    assert rows.pop(last) == pytest.approx(days.pop(last) + summaries)
    assert rows == pytest.approx(dict(days))


def _two_days(**cut):
    """A session of two days whose first prompt is summarised on the first."""
    price = {"usage": usage(1000), "model": "claude-sonnet-4-5"}
    asked = user()
    first, shown, last = (assistant(time=86400.0 * day, **price) for day in (1, 1, 2))
    return session(asked, first, summarised([asked], usage=usage(9000), **cut), shown, last)


def test_a_summary_is_paid_on_the_day_of_the_call_that_was_shown_it():
    made = _two_days(model="claude-sonnet-4-5")
    told = index_session(made)
    assert [(s.day, s.calls_n) for s in told.spent] == [("1970-01-02", 2), ("1970-01-03", 1)]
    assert told.spent[0].usd > 4 * told.spent[1].usd
    assert told.cost_usd == pytest.approx(ck.spend(made).total_usd)


def test_a_summary_without_a_price_hides_no_dollars_of_calls():
    made = _two_days(model="no-such-model")
    told = index_session(made)
    assert told.cost_usd is None
    (row,) = sum_spend_by_group(
        [IndexedLogFile(path="x", modified=0.0, size=0, sessions=(told,))], "model"
    )
    assert (row["calls_n"], row["unpriced_n"]) == (3, 1)
    assert row["total_usd"] == pytest.approx(ck.spend(made).total_usd)


def test_totals_that_a_log_states_alone_are_spent_on_one_day():
    totals = {"input_tokens": 900, "output_tokens": 40}
    told = index_session(session(user("go"), assistant("done"), details=totals))
    assert told.spent == (("", "", None, 1, 900, 40),)


def test_a_title_shows_no_secret():
    told = index_session(session(user(), title="use " + "sk-ant-" + "a1B2" * 20))
    assert told.title.startswith("use ")
    assert "a1B2a1B2" not in told.title


def test_last_is_the_newest_that_is_a_session(home):
    os.utime(home / ".ctxkit" / "sessions" / "billing.jsonl", (2e9, 2e9))
    os.utime(home / ".pi" / "agent" / "sessions" / "work" / "broken.jsonl", (3e9, 3e9))
    assert (
        json.loads(run_in_this_process(home, "report", "last", "--json").stdout)["session"]
        == "billing"
    )


def test_subagents_are_not_listed_nor_billed_twice(home, real):
    import shutil

    project = home / ".claude" / "projects" / "p"
    shutil.copytree(real / "claude-code", project)
    rows = json.loads(run_in_this_process(home, "list", "--json", "--tool", "claude-code").stdout)
    whole = ck.read_all(project, progress=False)
    assert sorted(r["session"] for r in rows) == sorted(s.id for s in whole)
    billed = ck.frame(whole, per="session", children=True)
    known = [r["with_subagents_usd"] for r in rows if r["with_subagents_usd"] is not None]
    assert sum(known) == pytest.approx(billed["cost_usd"].sum(), rel=1e-6)
    own = {
        s.id: cost
        for s, cost in zip(whole, ck.frame(whole, per="session")["cost_usd"], strict=True)
    }
    assert {r["session"]: r["cost_usd"] for r in rows} == pytest.approx(own)


def test_sessions_are_kept_and_only_what_is_new_again(home, tmp_path):
    archive = str(tmp_path / "kept")
    done = run_in_this_process(home, "keep", archive, "--tool", "pi")
    assert (done.returncode, done.stderr) == (0, "")
    assert "new" in done.stdout
    rows = json.loads(run_in_this_process(home, "keep", archive, "--tool", "pi", "--json").stdout)
    assert {row["what"] for row in rows} == {"same"}
    wrong = run_in_this_process(home, "keep", archive, "--tool", "no-such-tool")
    assert (wrong.returncode, wrong.stdout) == (2, "")
