"""`ctxkit when`, `spend last` and `ctxkit` alone: the first line is the answer, with its price."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from cli.command_runner import run_as_in_terminal, run_in_this_process
from cli.conftest import SAMPLE

import ctxkit as ck
from ctxkit import studies


@pytest.fixture
def one(tmp_path):
    """A home whose newest session is one of Claude Code without a title, which was compacted late."""
    folder = tmp_path / ".ctxkit" / "sessions"
    folder.mkdir(parents=True)
    shutil.copy(ck.samples.path("research"), folder / "research.jsonl")
    return tmp_path


def test_when_last_begins_with_the_answer_and_names_the_setting(one):
    done = run_in_this_process(one, "when", "last")
    assert done.returncode == 0
    assert done.stdout.startswith("Compact at 186,212 tokens, not 167,161: about $0.21 more")
    assert "\n  Rules(policy=..., trigger=triggers.Above(186_212))\n" in done.stdout
    assert "One session carries this" not in done.stdout
    assert "One session carries this" in " ".join(
        run_in_this_process(one, "when", "last", "--why").stdout.split()
    )


def test_when_answers_as_json_and_as_a_page(one):
    answer = json.loads(run_in_this_process(one, "when", "last", "--json").stdout)
    assert answer["best"] == 186_212
    assert answer["answer"].startswith("Compact at 186,212")
    assert run_in_this_process(one, "when", "last", "--html", "when.html").returncode == 0
    assert "Compact at 186,212 tokens" in (one / "when.html").read_text()


def test_another_window_gets_another_answer(one):
    assert (
        run_in_this_process(one, "when", "last", "--window", "100000").stdout
        != run_in_this_process(one, "when", "last").stdout
    )


def test_spend_takes_a_session_and_begins_with_its_price(home):
    for word in ("last", "billing", ".ctxkit/sessions/billing.jsonl"):
        if word == "last":
            (home / ".ctxkit" / "sessions" / "billing.jsonl").touch()
        shown = run_in_this_process(home, "spend", word).stdout
        assert shown.startswith("$3.29 for 343 calls: 31 % of it ($1.02) for 40 results that had")
        assert "by tool" in shown


def test_spend_by_something_keeps_its_rows_for_a_session_too(home):
    shown = run_in_this_process(home, "spend", "billing", "--by", "model").stdout.splitlines()
    assert shown[0].startswith("model")
    assert [line.split()[0] for line in shown[2:]] == ["claude-sonnet-4-5"]


def test_the_answer_about_money_is_the_largest_that_could_be_avoided():
    bill = ck.spend(ck.read(SAMPLE))
    usd = float(re.search(r"\(\$([\d.]+)\)", bill.answer)[1])
    avoidable = [sum(f.usd for f in bill.repeated_results)]
    avoidable += [r.sent_usd for r in bill.resent_tokens]
    assert usd == pytest.approx(max(avoidable), abs=0.01)


def test_alone_it_answers_for_the_newest_session(one):
    done = run_in_this_process(one)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Compact at 186,212 tokens, not 167,161")
    assert any(line.startswith("$") for line in lines)
    for command in ("when last", "spend last", "compare last"):
        assert f"ctxkit {command}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", [(), ("when", "last"), ("spend", "last"), ("compare", "last")])
def test_a_machine_without_sessions_is_answered_in_one_sentence(tmp_path, words):
    done = run_in_this_process(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ctxkit: No session of a known tool is on this machine: give")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("when", "last"), ("spend", "last"), ("compare", "last")])
def test_a_machine_whose_sessions_cannot_be_read_is_not_called_empty(tmp_path, words):
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    (folder / "torn.jsonl").write_bytes(b"\x00\xff torn")
    done = run_in_this_process(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ctxkit: Known tools have 1 file on this machine, but none is a session that a reader knows:"
        " `ctxkit list` says why.\n"
    )


def test_logs_without_usage_or_prices_are_answered_in_one_sentence_each(tmp_path):
    talk = [{"role": "user", "content": "Sum up."}, {"role": "assistant", "content": "Done."}]
    folder = tmp_path / ".ctxkit" / "sessions"
    folder.mkdir(parents=True)
    ck.write(ck.read(talk), folder / "one.jsonl")
    instead = "has no usage: a report counts its texts.\n"
    assert run_in_this_process(tmp_path, "when").stderr.endswith(f"this log {instead}")
    assert (
        run_in_this_process(tmp_path, "spend", "last").stdout
        == f"No dollars are known: the log {instead}"
    )
    alone = run_in_this_process(tmp_path).stdout
    assert f"this log {instead.strip()}" in " ".join(alone.split())
    assert (
        "Session: Sum up. (openai, 1 call). Why: ctxkit when last, ctxkit spend last."
        in " ".join(alone.split())
    )
    assert "As the log has no usage, settings are compared by size" in " ".join(
        run_in_this_process(tmp_path, "compare").stdout.split()
    )


def test_a_log_of_a_model_without_a_price_is_compared_by_size_and_loss(tmp_path):
    text = SAMPLE.read_text(encoding="utf-8").replace("claude-sonnet-4-5", "acme-1")
    (tmp_path / "acme.jsonl").write_text(text, encoding="utf-8")
    assert (
        "a comparison still shows sizes"
        in run_in_this_process(tmp_path, "when", "acme.jsonl").stderr
    )
    shown = " ".join(
        run_in_this_process(tmp_path, "compare", "acme.jsonl", "-r", "pi").stdout.split()
    )
    assert shown.startswith("Nothing can be chosen: no setting that fits the window has a known")
    assert "As model 'acme-1' has no price, settings are compared by size and loss alone." in shown


@pytest.mark.parametrize("command", ["list", "spend"])
@pytest.mark.parametrize(
    "files",
    [{}, {"notes.txt": b"hello"}, {"picture.bin": b"\x00\x01\x02"}, {"other.json": b'{"a": 1}'}],
    ids=lambda files: "".join(files) or "empty",
)
def test_a_folder_without_a_session_is_answered_in_words(tmp_path, command, files):
    folder = tmp_path / "other"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    places = ["other", *(f"other/{name}" for name in files)]
    for place in places:
        done = run_in_this_process(tmp_path, command, place)
        assert done.returncode == 0
        assert done.stdout.startswith(("No session that a reader knows", "No file that may be a"))


def test_a_session_without_a_title_is_listed_by_its_first_prompt(tmp_path):
    folder = tmp_path / ".ctxkit" / "sessions"
    folder.mkdir(parents=True)
    talk = [{"role": "user", "content": "Mend the export."}, {"role": "assistant", "content": "ok"}]
    ck.write(ck.read(talk), folder / "one.jsonl")
    assert "Mend the export." in run_in_this_process(tmp_path, "list").stdout
    assert (
        json.loads(run_in_this_process(tmp_path, "list", "--json").stdout)[0]["title"]
        == "Mend the export."
    )


@pytest.mark.parametrize("words", [(), ("when", "last"), ("spend", "last")])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_coloured(one, words):
    code, shown = run_as_in_terminal(one, *words)
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown


def test_when_answers_for_a_folder(tmp_path):

    (tmp_path / "sessions").mkdir()
    for s in studies.forecast_and_threshold_holdout.make_developers(2, sessions=4)["dev-1"]:
        ck.write(s, tmp_path / "sessions" / f"{s.id}.jsonl")
    done = run_in_this_process(tmp_path, "when", "sessions", "--extra-loss", "0.2")
    assert done.stdout.startswith("Compact at "), done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows = json.loads(run_in_this_process(tmp_path, "when", "sessions", "--json").stdout)
    assert rows["sessions_n"] == len(rows["sessions"]) == 4
    assert run_in_this_process(tmp_path, "when", "sessions", "--html", "page.html").returncode == 0
    assert "Compact at" in (tmp_path / "page.html").read_text()
    assert (
        "no session of"
        in run_in_this_process(tmp_path, "when", "sessions", "--tool", "codex").stderr
    )
