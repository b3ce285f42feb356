"""The contest: a practice table on `billing`, and marks on sessions that nobody has seen."""

from __future__ import annotations

import csv
import json
import os
import tempfile
import warnings
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.course import judge_rules
from ctxkit.course.contest_entry_serialization import encode_rules
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, guards, triggers

CLEAR = Rules(policy="clear:keep_last=5", trigger=triggers.Above(25_000), name="clear")
CHAIN = Rules(
    policy="clear:keep_last=5 | summary:keep_tokens=8000", trigger=triggers.Above(18_000),
    guards=guards.UntilCold(hard_limit=40_000), name="chain",
)  # fmt: skip
FACTS = "\n".join(fact for fact, _ in ck.read(ck.samples.path()).details["facts"])


@pytest.fixture
def contest(tmp_path):
    return ck.contest(tmp_path / "deep" / "contest.json")


def test_the_cheapest_that_counts_stands_first_and_goes_on_later(contest):
    assert "No entry" in repr(contest)
    cold = guards.UntilCold(hard_limit=40_000)
    chain = "clear:keep_last=5 | summary:keep_tokens=8000"
    contest.enter("window", "window:keep_tokens=20000").enter("clear", CLEAR)
    contest.enter(
        "chain", Rules(policy=chain, trigger=triggers.Above(18_000), guards=cold, name="chain")
    )
    again = ck.contest(contest.path)
    assert [e.name for e in again.entries] == ["chain", "clear", "window"]
    assert again.best.name == "chain"
    assert again.best.cost_usd == pytest.approx(2.42, abs=0.005)
    assert [bool(e.why) for e in again.entries] == [False, False, True]
    table = ck.compare(ck.samples.path(), [CLEAR], progress=False)
    assert again.entries[1].cost_usd == pytest.approx(table.loc["clear", "cost_usd"])
    said = again.answer()
    assert "$2.42" in said
    assert "we do not know" in said


def test_rules_that_run_past_the_window_do_not_count(contest):
    entry = contest.tried("none", "none")
    assert (entry.kept_n, entry.needed_later_loss) == (15, 0.0)
    assert entry.why == "runs past the window"


def test_a_damaged_table_begins_anew_and_a_wall_is_said(contest, tmp_path):
    contest.path.parent.mkdir()
    for damage in (b"", b"[{}]", b"\xff", b'{"name": 1}'):
        contest.path.write_bytes(damage)
        assert contest.entries == ()
    wall = tmp_path / "wall"
    wall.write_text("a file")
    with pytest.raises(BadArguments, match="cannot be kept"):
        ck.contest(wall / "contest.json").enter("x", CLEAR)


@pytest.mark.parametrize("name", [CLEAR, None, 3, "", " "])
def test_an_entry_has_a_name(contest, name):
    with pytest.raises(BadArguments, match="Give a name, then"):
        contest.enter(name, "none")


def test_names_of_a_table_are_no_markup(contest):
    contest.enter("<script>alert(1)</script>", CLEAR)
    assert "<script>" not in contest._repr_html_()


def test_of_two_entries_of_one_name_the_better_stays_and_it_is_said(contest):
    contest.enter("me", CLEAR)
    worse = contest.enter("me", "none")
    assert "'me' was not replaced" in repr(worse)
    assert "runs past the window" in repr(worse)
    assert [e.rules for e in worse.entries] == ["clear"]
    better = contest.enter("me", CHAIN)
    assert "was replaced: the old one costs $2.70" in better._repr_html_()
    assert [e.rules for e in better.entries] == ["chain"]


def test_figures_that_were_written_into_a_file_change_nothing(contest):
    contest.enter("me", CLEAR)
    stored = json.loads(contest.path.read_bytes())
    honest = contest.entries[0].cost_usd
    stored[0] |= {"cost_usd": 0.01, "kept_n": 15, "needed_later_loss": 0.0}
    contest.path.write_text(json.dumps(stored))
    assert ck.contest(contest.path).entries[0].cost_usd == honest


def test_what_cannot_be_read_is_kept_beside_the_new_table(contest):
    contest.path.parent.mkdir()
    contest.path.write_text("half a ta")
    contest.enter("me", CLEAR)
    assert (contest.path.parent / "contest.damaged.json").read_text() == "half a ta"
    assert len(contest.entries) == 1


def test_rules_cannot_give_themselves_a_larger_window(contest):
    wide = Rules(policy=CLEAR.bare, trigger=triggers.Above(900_000), window=1_000_000, name="wide")
    assert "runs past the window" in contest.tried("wide", wide).why


def test_a_function_may_be_tried_and_not_entered(contest):
    def newest(history, budget):
        return history.drop(history.safe(history.back(8_000)), "old")

    rules = Rules(policy=newest, trigger=triggers.Above(30_000), name="newest")
    assert contest.tried("newest", rules).kept_n < 15
    with pytest.raises(BadArguments, match="newest cannot be entered"):
        contest.enter("newest", rules)


# -- hidden sessions ---------------------------------------------------------------------------------------------------


def hard_coded(history, budget):
    """Put the fifteen facts of the sample into a summary, and leave out the rest."""
    start = history.safe(history.back(1_500))
    return history.summarise(start, FACTS, "cheat") if start > 1 else history


def test_facts_that_were_copied_out_win_nothing_on_a_hidden_session():
    code = Rules(policy=hard_coded, trigger=triggers.Above(12_000), name="hard-coded")
    words = ck.policies.Summary(keep_tokens=1_500, prefix=FACTS + "\n")
    prefix = Rules(policy=words, trigger=triggers.Above(12_000), name="in the prefix")
    for cheat in (code, prefix):
        assert judge_rules("cheat", cheat).kept_n == 15, "on the sample it works"
        for seed in ("a", "b"):
            judged = judge_rules("cheat", cheat, ck.course.make_session(seed))
            assert judged.kept_n < 15
            assert judged.why.startswith("keeps")


def write_entries(folder, entries):
    for name, rules in entries.items():
        (folder / name).mkdir()
        data = [{"name": name, "rules": encode_rules(rules)}]
        (folder / name / "contest.json").write_text(json.dumps(data))


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """Twenty entries, of which some are no entries."""
    folder = tmp_path_factory.mktemp("class")
    entries = {
        f"clear {n}": Rules(policy=f"clear:keep_last={n}", trigger=triggers.Above(25_000), name=f"clear {n}")
        for n in range(2, 14)
    }  # fmt: skip
    entries |= {"chain": CHAIN, "none": "none", "pi": "pi", "=1+1": "codex"}
    write_entries(folder, entries)
    for name, text in {"broken": "{", "old": '[{"name": "x", "cost_usd": 0.01}]'}.items():
        (folder / f"{name}.json").write_text(text)
    code = {"policy": {"os.system": {"command": "touch /tmp/x"}}}
    (folder / "code.json").write_text(json.dumps([{"name": "code", "rules": code}]))
    forged = {"name": "forged", "rules": encode_rules("none"), "cost_usd": 0.01, "facts_n": 15}
    (folder / "forged.json").write_text(json.dumps([forged]))
    return folder, ck.course.mark(folder, seed="the lecturer's", sessions=2, progress=False)


def test_twenty_entries_are_run_again_and_a_table_is_written(marks):
    folder, table = marks
    assert len(table) == 20
    counting = table[table["counts"]]
    assert len(counting) >= 1
    assert counting["cost_usd"].is_monotonic_increasing
    assert counting["place"].tolist() == list(range(1, len(counting) + 1))
    assert table[~table["counts"]]["place"].isna().all()
    assert table.attrs["seed"] == "the lecturer's"
    with (folder / "marks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    # a spreadsheet takes no name for a formula
    assert {"'=1+1"} == {row["name"] for row in rows if "1+1" in row["name"]}


def test_what_is_no_entry_says_why_and_forging_does_not_help(marks):
    why = marks[1].set_index("file")["why"]
    assert "no contest.json" in why["broken.json"]
    assert "no contest.json" in why["old.json"]
    assert "no part" in why["code.json"]
    assert "runs past the window (on 2 of 2 sessions)" in why["forged.json"]


def test_the_winner_on_the_sample_loses_on_sessions_that_it_was_not_chosen_on():
    assert judge_rules("chain", CHAIN).why == ""
    seen = [judge_rules("chain", CHAIN, ck.course.make_session(f"winner/{n}")) for n in range(4)]
    assert sum(bool(each.why) for each in seen) >= 1


def test_a_seed_marks_alike_again_and_another_one_otherwise(marks, tmp_path):
    write_entries(tmp_path, {"clear": CLEAR})
    first, again, other = (
        ck.course.mark(tmp_path, seed=s, sessions=1, progress=False)["cost_usd"][0]
        for s in (1, 1, 2)
    )
    assert first == again != other


def test_folders_and_numbers_that_are_none_are_refused(tmp_path):
    with pytest.raises(BadArguments, match="no folder"):
        ck.course.mark(tmp_path / "nowhere")
    with pytest.raises(BadArguments, match="collect them first"):
        ck.course.mark(tmp_path, seed=1, sessions=1)
    for sessions in (0, 21, "x"):
        with pytest.raises(BadArguments, match="1 to 20"):
            ck.course.mark(tmp_path, sessions=sessions)


# -- a folder that a class shares --------------------------------------------------------------------------------------


def enter_as(user, name, folder):
    """Enter rules in a process that belongs to another user; return whether it went well."""
    child = os.fork()
    if child == 0:
        try:
            os.umask(0o077)
            os.setuid(user)
            os.environ["LOGNAME"] = name
            ck.contest(folder).enter("mine", "pi")
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_each_entry_of_a_shared_folder_has_a_file_that_others_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    ck.contest(tmp_path).enter("mine", CLEAR)
    monkeypatch.setenv("LOGNAME", "../bob b")
    table = ck.contest(tmp_path).enter("mine", "pi")
    assert [(e.name, e.by) for e in table.entries] == [("mine", "ada"), ("mine", ".._bob_b")]
    assert "mine (ada)" in repr(table)
    files = list(tmp_path.glob("*.json"))
    assert len(files) == 2
    assert {f.stat().st_mode & 0o777 for f in files} == {0o644}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs two users")
def test_two_users_of_one_machine_share_a_folder(contest):
    # what the other users' processes need is loaded before, since they may not read this folder
    contest.enter("mine", "pi")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        assert enter_as(20_001, "ada", folder)
        assert enter_as(20_002, "bob", folder)
        assert {e.by for e in ck.contest(folder).entries} == {"ada", "bob"}
        files = {f.stat().st_uid: f.stat().st_mode & 0o777 for f in folder.glob("*.json")}
        assert files == {20_001: 0o644, 20_002: 0o644}
        assert len(ck.course.mark(folder, seed=1, sessions=1, progress=False)) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BadArguments, match="cannot be kept"):
        ck.contest(tmp_path / "contest.json").enter("x", CLEAR)
    tmp_path.chmod(0o700)


def test_marks_of_a_folder_that_cannot_be_written_are_returned_all_the_same(tmp_path, monkeypatch):
    from ctxkit.course import contests

    write_entries(tmp_path, {"clear": CLEAR})

    def refused(self, *args, **more):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(contests.SafeFolder, "write", refused)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert len(ck.course.mark(tmp_path, seed=1, sessions=1, progress=False)) == 1
    assert "was not written" in str(seen[-1].message)


@pytest.mark.long
def test_of_twenty_sessions_rules_with_a_margin_hold_on_all_and_the_winner_on_one():
    margin = Rules(policy="clear:keep_last=8", trigger=triggers.Above(32_000), name="margin")
    made = [ck.course.make_session(f"exercise /{n}") for n in range(20)]
    assert [sum(not judge_rules("x", rules, s).why for s in made) for rules in (CHAIN, margin)] == [
        1,
        20,
    ]
