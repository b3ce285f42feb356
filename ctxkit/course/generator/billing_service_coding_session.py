"""Make sessions like the sample `billing`: its story, with names and sizes drawn from a seed.

Two days at one ticket. Facts that are stated early are needed late.
"""

from __future__ import annotations

import random
from typing import Any

from ctxkit import tokens
from ctxkit.course.generator.repository_and_agent import (
    MODULES,
    RepositoryAgent,
    make_repository_files,
)
from ctxkit.course.generator.session_recorder import (
    SONNET,
    SampleNameAndDateReplacer,
    SessionRecorder,
)
from ctxkit.errors import BadArguments
from ctxkit.session.messages import ToolSchema
from ctxkit.session.session import Session

__all__ = ["SEED", "make_billing_session", "make_session"]

SEED = 4127
"""The seed of the sample `billing`."""
_START = 1773307800.0  # Thursday 12 March 2026, 09:30 UTC
_MAX_SEED_CHARS = 200
"""Characters of a seed."""


def _make_tool(name: str, description: str, **fields: str) -> ToolSchema:
    properties = {field: {"type": kind} for field, kind in fields.items()}
    return ToolSchema(
        name=name, description=description, parameters={"type": "object", "properties": properties}
    )


_TOOLS = (
    _make_tool(
        "read_file",
        "Read a file, or some of its lines.",
        path="string",
        first="integer",
        last="integer",
    ),
    _make_tool(
        "search", "Search files with a regular expression.", pattern="string", path="string"
    ),
    _make_tool(
        "edit",
        "Replace a text in a file, or create the file.",
        path="string",
        old="string",
        new="string",
    ),
    _make_tool("run", "Run a command in the repository.", command="string"),
)


def make_session(seed: int | str) -> Session:
    """Make a session like the sample `billing` from a seed: the same story, other names and sizes.

    Ticket, queue, invoice, currency, person, dates and numbers are others, as are the sizes of
    files, the detours of the agent and the pauses. The session lists its own fifteen facts
    (`facts_kept`). The same seed makes the same session on any machine.

    Args:
        seed: a whole number or a text, at most 200 characters.

    Returns:
        The session, with the bill of each call and a window of 48,000 tokens.

    Raises:
        BadArguments: the seed is no number and no text.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.course.make_session("an example")
        >>> session.context_window, sum(ck.course.facts_kept(ck.replay(session, "none")).values())
        (48000, 15)
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, str)):
        raise BadArguments("A seed is a whole number or a text: ck.course.make_session(7).")
    if not 0 < len(text := str(seed)) <= _MAX_SEED_CHARS:
        raise BadArguments(f"A seed has 1 to {_MAX_SEED_CHARS} characters.")
    return _make_from_seed(f"session {text}", SampleNameAndDateReplacer.draw(text))


def make_billing_session() -> Session:
    """Return the sample `billing`, as it ships with the kit."""
    return _make_from_seed(SEED, SampleNameAndDateReplacer())


def _make_from_seed(seed: int | str, names: SampleNameAndDateReplacer) -> Session:
    rng, count_tokens = random.Random(seed), tokens.exact_counter()  # noqa: S311  no secret
    schema_tokens = 1_240 + sum(
        count_tokens(f"{t.name}{t.description}{t.parameters}") for t in _TOOLS
    )
    recorder = SessionRecorder(
        _SYSTEM, rng=rng, count_tokens=count_tokens, write_summary=_write_summary,
        schema_tokens=schema_tokens, start=_START, names=names,
    )  # fmt: skip
    _record_story(RepositoryAgent(recorder, make_repository_files(rng), rng))
    facts: list[Any] = [[names.replace_names(f), names.replace_in_pattern(p)] for f, p in _FACTS]
    # the sample is called by its name, others by their seed's
    is_sample = not names.new_names
    return Session(
        id="billing" if is_sample else "made", agent="main", product="sample", cwd="/srv/billing",
        title=names.replace_names("BILL-4127: the nightly export fails"), model=SONNET.model,
        context_window=SONNET.context_window, started=_START, tools=_TOOLS, log=tuple(recorder.log),
        details={"facts": facts},
    )  # fmt: skip


_SYSTEM = """You are a coding agent that works in one repository.

# Tools
Use read_file, search, edit and run. Read a file before you edit it. An edit replaces an exact \
text everywhere in a file.

# Habits
Keep changes small. Run the tests of what you touched after each change. If a command fails, say \
so; do not hide it.
Never push, never touch production data without being told to in so many words.

# Answers
Answer in a few sentences: what you found, what you changed (with paths), what is left. No \
headings in answers.
"""

_FACTS = (
    ("The ticket is BILL-4127.", "BILL-4127"),
    (
        "The CSV column order must not change: the importer goes by position.",
        "column order|order of (the )?columns",
    ),
    ("The service stays on Python 3.9.", r"3\.9"),
    ("The nightly export failed with KeyError 'ISK'.", "ISK"),
    ("ISK has exponent 0.", r"exponent 0|\"ISK\": 0|no minor unit"),
    ("Iceland is live since 2026-03-09.", "2026-03-09|9 March"),
    ("Invoice.id is the second sort key; no keyset paging.", r"Invoice\.id|second sort key"),
    ("An unknown currency raises UnknownCurrency, no silent default.", "UnknownCurrency"),
    ("Three days are to be exported again: 2026-03-09 to 2026-03-11.", "2026-03-1[01]"),
    ("2026-03-09.csv is a partial file and must be replaced.", r"2026-03-09\.csv|partial"),
    ("Petra in finance pauses the importer; the slot is Friday 14:00.", "Petra|Friday"),
    ("The importer's queue is fin-import-7.", "fin-import-7"),
    ("32 invoices were lost in the paging test (1203 rows, 1171 distinct).", "1171"),
    ("INV-2026-118842 was imported twice and must be undone by hand.", "INV-2026-118842"),
    ("The trace header is X-Bill-Trace.", "X-Bill-Trace"),
)
"""A fact that the user or a file states, and a pattern that finds it."""

_CHANGES = (
    "billing/money.py: ISK with exponent 0; UnknownCurrency names the currency, no silent default",
    (
        "jobs/export_invoices.py: second sort key Invoice.id (no keyset paging); written to "
        ".part, renamed at the end"
    ),
    "scripts/check_duplicates.py counts duplicate ids in the CSVs of the last 30 days",
    "to_minor instead of int(x * 100) in the modules of billing/",
    "clock.today() and clock.now() instead of utcnow() in the modules of billing/",
)


def _write_summary(number: int) -> str:
    """Return the summary of a compaction; later ones omit the queue and the double import."""
    late = number > 0
    done = _CHANGES if late else _CHANGES[:4]
    more = (
        ""
        if late
        else "* Queue of the importer: fin-import-7 (docs/runbook.md). INV-2026-118842 was "
        "imported twice: undo by hand.\n"
    )
    next_ = (
        "log every job with the X-Bill-Trace header, then Friday's export"
        if late
        else "finish to_minor in the other modules"
    )
    return (
        f"## Goal\nTicket BILL-4127: the nightly export failed on Tuesday with KeyError "
        f"'ISK' (Iceland, live since "
        f"2026-03-09). Fix it, then clean up money and time in billing/.\n\n## Constraints\n"
        f"* Do not change the CSV column order: finance's importer goes by position.\n* "
        f"Stay on Python 3.9.\n"
        f"* Do not export again before Petra (finance) has paused the importer: Friday "
        f"14:00. Days 2026-03-09 to "
        f"2026-03-11; 2026-03-09.csv is partial and must be replaced.\n{more}\n## Done\n"
        + "".join(f"* {d}\n" for d in done)
        + f"\n## Next\n{next_}\n"
    )


_FRIDAY_MORNING, _FRIDAY_AFTERNOON = (
    1773390120.0,
    1773410460.0,
)  # Friday 13 March 2026, 08:22 and 14:01 UTC


def _record_story(agent: RepositoryAgent) -> None:
    _find_bug(agent)
    _fix_bug(agent)
    _plan_exports(agent)
    _replace_money(agent)
    _replace_clock(agent)
    _add_trace(agent)
    _export_again(agent)


def _find_bug(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    recorder.add_user_message(
        "Ticket BILL-4127: our nightly export started failing on Tuesday. The job is "
        "jobs/export_invoices.py. Find out "
        "why and fix it. Two constraints: do not change the column order of the CSV, "
        "finance's importer goes by "
        "position; and we must stay on Python 3.9 for this service.",
        2.0,
    )
    record(
        agent.read_file("jobs/export_invoices.py"),
        text="I will look at the job first, then at its log.",
    )
    record(agent.run_command("tail -n 30 /var/log/billing/export.log", _LOG))
    record(
        agent.read_file("billing/money.py"), agent.search_files("ISK"),
        thinking="KeyError: 'ISK' in to_minor. So a currency is missing from EXPONENTS; who bills "
                 "in ISK?",
    )  # fmt: skip
    record(agent.read_file("docs/markets.md"))
    record(agent.run_command("git log --oneline -n 6 -- billing/markets.py", _GIT))
    record(
        agent.run_tests("money", "export", failure=_FLAKY),
        text="A baseline before I change anything.",
    )
    recorder.add_answer(
        "The failure is a KeyError for ISK in billing/money.py. Iceland went live on "
        "2026-03-09 and nobody added its "
        "currency to EXPONENTS; ISK has no minor unit, so its exponent is 0. "
        "test_pages_do_not_repeat fails too."
    )
    recorder.add_user_message(
        "Yes, that flaky test has failed on and off for weeks, we ignored it. Is it related?", 95.0
    )
    record(agent.read_file("jobs/export_invoices.py", 14, 26))
    recorder.add_answer(
        "It is another bug, and a real one. Rows are paged with LIMIT and OFFSET but "
        "sorted only by updated_at; rows "
        "that share it have no stable order, so a page can repeat some and skip others. "
        "The test wrote 1203 rows, 1171 "
        "distinct: 32 invoices lost. Either keyset paging on (updated_at, id), or "
        "Invoice.id as the second sort key.",
        thinking="OFFSET with an unstable order. Finance may have missed invoices for weeks; "
        "say so.",
    )


def _fix_bug(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    recorder.add_user_message(
        "Add Invoice.id as the second sort key; no keyset paging, there is an index on "
        "(updated_at, id). For currencies "
        "I want no silent default: an unknown one must raise an error that names it, and "
        "the export must fail before it "
        "leaves a file, not half way.",
        140.0,
    )
    money, job = "billing/money.py", "jobs/export_invoices.py"
    record(agent.edit_file(money, '    "JPY": 0,\n', '    "JPY": 0,\n    "ISK": 0,\n'))
    record(agent.edit_file(money, "    exponent = EXPONENTS[currency]\n", _RAISE))
    record(
        agent.edit_file(
            money,
            "def to_minor",
            'class UnknownCurrency(KeyError):\n    """A currency whose minor unit is not '
            'known."""\n\n\ndef to_minor',
        )
    )
    record(
        agent.edit_file(
            job, ".order_by(Invoice.updated_at)", ".order_by(Invoice.updated_at, Invoice.id)"
        )
    )
    record(agent.edit_file(job, "open(path, 'w'", "open(part, 'w'"))
    record(agent.read_file(job, 26, 40), text="The quotes are double there.")
    record(
        agent.edit_file(
            job,
            '    with open(path, "w", newline="") as f:',
            '    part = f"{path}.part"\n    with open(part, "w", newline="") as f:',
        )
    )
    record(
        agent.edit_file(
            job, '    log.info("exported', '    os.replace(part, path)\n    log.info("exported'
        )
    )
    record(
        agent.run_tests(
            "money",
            "export",
            failure="E   NameError: name 'os' is not defined (jobs/export_invoices.py:36)",
        )
    )
    record(agent.edit_file(job, "import logging\n", "import logging\nimport os\n"))
    record(agent.run_tests("money", "export"))
    record(
        agent.run_command(
            "for i in $(seq 50); do pytest -q tests/test_export.py -k pages || break; done",
            "50 runs, 0 failures",
        ),
        seconds=412.0,
    )
    recorder.add_answer(
        "Done: ISK with exponent 0 and UnknownCurrency in billing/money.py; the second "
        "sort key and a .part file that is renamed at the end in jobs/export_invoices.py. "
        "The paging test passed 50 times in a row."
    )


def _plan_exports(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    recorder.add_user_message("Good. Which days do we have to export again?", 1_260.0)
    record(agent.run_command("ls -l /data/export | tail -n 4; date -u", _LS))
    record(agent.read_file("docs/runbook.md"))
    recorder.add_answer(
        "Three days failed: 2026-03-09, 2026-03-10 and 2026-03-11. 2026-03-09.csv is there "
        "but partial (1,902 of about 4,200 rows), so it must be replaced. The importer "
        "reads through the queue fin-import-7, which has to be paused first."
    )
    recorder.add_user_message(
        "Do not export again yet: Petra in finance pauses the importer, I will ask her for "
        "Friday 14:00. She also says "
        "INV-2026-118842 was imported twice. Meanwhile write scripts/check_duplicates.py "
        "that counts duplicate ids in "
        "the CSVs of the last 30 days, so that we know how bad the paging bug was.",
        220.0,
    )
    record(agent.search_files("csv", "jobs/"))
    record(
        agent.create_file("scripts/check_duplicates.py", _SCRIPT),
        thinking="Python 3.9: no match statement, no X | Y in annotations at run time.",
    )
    record(
        agent.run_command("python scripts/check_duplicates.py /data/export --days 30", _TWICE),
        seconds=21.0,
    )
    recorder.add_answer(
        "In 30 days 214 ids occur twice over 11 files; INV-2026-118842 is one of them. As "
        "many rows were skipped, so finance lacks about 214 invoices. The runbook says how "
        "to take a row out: ctl import undo INVOICE_ID. I have not run it."
    )


def _replace_money(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    modules = list(MODULES)
    pauses = (2_900.0, 65.0, 180.0, 4_100.0, 75.0)
    for i, pause in enumerate(pauses):
        group = modules[i * 3 : i * 3 + 3]
        recorder.add_user_message(
            _ASK_MONEY if i == 0 else f"Go on with {', '.join(group)}.", pause
        )
        if i == 0:
            record(
                agent.search_files(r"\* 100", "billing/"), text="All places that multiply by 100."
            )
        for module in group:
            one = MODULES[module][0].lower()
            total = f"    return int(sum(line.amount for line in {one}.lines) * 100)"
            better = (
                f"    return sum(to_minor(line.amount, {one}.currency) for line in {one}.lines)"
            )
            agent.change_module(
                module,
                total,
                better,
                reason=_WHY_MONEY,
                import_line="from billing.money import to_minor",
            )
            if f"int({one}.amount * 100)" in agent.files[f"billing/{module}.py"]:
                record(
                    agent.edit_file(
                        f"billing/{module}.py",
                        f"int({one}.amount * 100)",
                        f"to_minor({one}.amount, {one}.currency)",
                    )
                )
                record(agent.run_tests(module))
        record(agent.search_files(r"\* 100", "billing/"))
        recorder.add_answer(
            f"{', '.join(group)} use to_minor now, with the currency's own exponent; their "
            f"tests pass. The column order of the monthly files is unchanged."
        )


def _replace_clock(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    modules = list(MODULES)
    for i, pause in enumerate(
        (recorder.get_pause_until(_FRIDAY_MORNING), 120.0, 45.0, 2_400.0, 50.0)
    ):
        group = modules[i * 3 : i * 3 + 3]
        recorder.add_user_message(_ASK_TIME if i == 0 else f"Next: {', '.join(group)}.", pause)
        if i == 0:
            record(agent.search_files("utcnow", "billing/"), agent.read_file("billing/clock.py"))
        for module in group:
            agent.change_module(
                module,
                "dt.datetime.utcnow().date()",
                "clock.today()",
                reason=_WHY_TIME,
                import_line="from billing import clock",
            )
            if "dt.datetime.utcnow()" in agent.files[f"billing/{module}.py"]:
                record(
                    agent.edit_file(f"billing/{module}.py", "dt.datetime.utcnow()", "clock.now()")
                )
                record(agent.run_tests(module))
        recorder.add_answer(f"{', '.join(group)} ask billing.clock for the time. Tests pass.")


def _add_trace(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    modules = list(MODULES)
    for i, pause in enumerate((600.0, 90.0, 40.0)):
        group = modules[i * 3 : i * 3 + 3]
        recorder.add_user_message(_ASK_TRACE if i == 0 else f"And {', '.join(group)}.", pause)
        for module in group:
            one = MODULES[module][0].lower()
            old = f'log.info("closed {one} %s: %s", {one}_id, reason)'
            new = (
                f'log.info("closed {one} %s: %s", {one}_id, reason, '
                f'extra={{"trace": trace.current()}})'
            )
            agent.change_module(
                module,
                old,
                new,
                reason="X-Bill-Trace goes into every log line, through extra.",
                import_line="from billing import trace",
            )
        recorder.add_answer(f"{', '.join(group)} carry X-Bill-Trace in their log lines.")
    record(agent.run_tests())


def _export_again(agent: RepositoryAgent) -> None:
    recorder, record = agent.recorder, agent.recorder.add_tool_calls
    recorder.add_user_message(
        "It is Friday 14:00 and Petra is on the phone: the importer may be paused now. "
        "Export the missing days again, and take out what was imported twice.",
        recorder.get_pause_until(_FRIDAY_AFTERNOON),
    )
    record(
        agent.search_files("queue", "docs/"),
        thinking="The days are 2026-03-09 to 2026-03-11. The queue's name is not in front of me "
        "any more: the runbook has it.",
    )
    record(agent.read_file("docs/runbook.md"))
    record(agent.run_command("ctl queue pause fin-import-7", "fin-import-7: paused (0 in flight)"))
    for day in ("2026-03-09", "2026-03-10", "2026-03-11"):
        n = agent.rng.randrange(4100, 4400)
        record(
            agent.run_command(
                f"python -m jobs.export_invoices --day {day} --out /data/export/{day}.csv",
                f"exported {n} invoices to /data/export/{day}.csv",
            ),
            seconds=14.0,
        )
    record(
        agent.run_command(
            "head -n 1 /data/export/2026-03-09.csv",
            "invoice_id,customer,issued_on,due_on,currency,amount_minor,status",
        ),
        text="The column order must be as it was.",
    )
    record(
        agent.run_command(
            "python scripts/check_duplicates.py /data/export --days 4",
            "0 ids occur twice in 4 files",
        )
    )
    record(
        agent.run_command(
            "grep -l INV-2026 /data/export/*.csv | wc -l; ctl import list --twice",
            "30\nINV-2026-118842  imported 2026-02-26 and 2026-02-27",
        )
    )
    record(
        agent.run_command(
            "ctl import undo INV-2026-118842", "INV-2026-118842: one of two imports undone"
        )
    )
    record(agent.run_command("ctl queue resume fin-import-7", "fin-import-7: running"))
    recorder.add_answer(
        "The three days 2026-03-09 to 2026-03-11 are exported again, the partial file is "
        "replaced, the columns are as before. INV-2026-118842 is undone once, and "
        "fin-import-7 runs again. BILL-4127 can be closed; the 214 skipped invoices of the "
        "earlier weeks are still missing at finance."
    )


_ASK_MONEY = (
    "Now the other modules in billing/: several multiply by 100 instead of asking "
    "money.to_minor. Begin with refunds, credit_notes, payments. Tests after "
    "each, and leave "
    "the columns of the monthly files where they are."
)
_WHY_MONEY = (
    "int(x * 100) is wrong for JPY and ISK, and it cuts instead of rounding. The total must go "
    "line by line, as each line is rounded on its own invoice."
)
_ASK_TIME = (
    "Good morning. Next thing: utcnow() is called all over billing/. Use billing.clock there, "
    "module by module, so that tests can set the time. Begin with refunds, credit_notes, "
    "payments."
)
_WHY_TIME = "utcnow() gives a naive time; clock.now() is aware. A date is all that closed_on needs."
_ASK_TRACE = (
    "One more before this afternoon: the gateway sends X-Bill-Trace with each request. Put it "
    "into the log lines of closing; trace.current() gives it. Begin with refunds, "
    "credit_notes, payments."
)
_RAISE = (
    "    try:\n        exponent = EXPONENTS[currency]\n    except KeyError:\n        raise "
    'UnknownCurrency(f"no minor unit is known for {currency!r}") from None\n'
)
_LOG = """2026-03-09 02:00:01 INFO export: start 2026-03-08
2026-03-09 02:00:14 INFO export: exported 4212 invoices to /data/export/2026-03-08.csv
2026-03-10 02:00:01 INFO export: start 2026-03-09
2026-03-10 02:00:09 ERROR export: unhandled error
Traceback (most recent call last):
  File "/srv/billing/jobs/export_invoices.py", line 33, in export
    writer.writerow(row(invoice))
  File "/srv/billing/billing/money.py", line 17, in to_minor
    exponent = EXPONENTS[currency]
KeyError: 'ISK'
2026-03-11 02:00:10 ERROR export: unhandled error
KeyError: 'ISK'
2026-03-12 02:00:11 ERROR export: unhandled error
KeyError: 'ISK'"""
_GIT = "9c1e7aa Iceland goes live\n41b02fd VAT of Japan\n0d6be93 Markets as a table"
_FLAKY = (
    "_________ test_pages_do_not_repeat _________\n    make_invoices(db, n=1203, "
    "same_updated_at=True)\n    n = export(DAY, tmp_path / 'out.csv')\n>   assert len(ids) == "
    "len(set(ids))\nE   assert 1203 == 1171\ntests/test_export.py:58: AssertionError"
)
_LS = (
    "-rw-r--r-- 1 billing billing 612093 Mar  8 02:00 2026-03-07.csv\n-rw-r--r-- 1 billing "
    "billing 608771 Mar  9 02:00 2026-03-08.csv\n-rw-r--r-- 1 billing billing 274410 Mar 10 "
    "02:00 2026-03-09.csv\nThu Mar 12 10:02:53 UTC 2026"
)
_TWICE = (
    "214 ids occur twice in 30 files:\n  2026-02-26.csv 2026-02-27.csv: INV-2026-118842\n  "
    "2026-02-26.csv: INV-2026-118907 INV-2026-118911\n  ... and 211 more"
)
_SCRIPT = '''"""Count ids that occur more than once in the exported files of the last days."""
import argparse
import collections
import csv
import pathlib


def duplicates(folder, days):
    files = sorted(pathlib.Path(folder).glob("*.csv"))[-days:]
    where = collections.defaultdict(list)
    for path in files:
        with path.open(newline="") as f:
            for row in csv.DictReader(f):
                where[row["invoice_id"]].append(path.name)
    return len(files), {key: names for key, names in where.items() if len(names) > 1}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--days", type=int, default=30)
    args = parser.parse_args()
    n, found = duplicates(args.folder, args.days)
    print(f"{len(found)} ids occur twice in {n} files")
    for key, names in sorted(found.items())[:3]:
        print(" ", *names, key)
'''
