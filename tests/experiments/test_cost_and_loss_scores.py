"""A score says what a session cost and how its cuts held; a comparison puts replays beside the record."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from builders import assistant, session, step, user
from make_scores import format_page

import ctxkit as ck
from ctxkit.engine import compute_shared_tokens, predict_input_cost, run_replay
from ctxkit.errors import BadArguments
from ctxkit.experiments import (
    SCORE_COLUMN_NAMES,
    SessionAnalysisCache,
    cost_and_loss_scores,
    score_columns,
    score_run,
    score_session,
)
from ctxkit.experiments.rules_comparison_on_one_session import DETAIL_HEADS
from ctxkit.metrics import PromptAndSharedPrefixSizes
from ctxkit.policies import Above, Rules, recorded_rules
from ctxkit.session import Usage
from ctxkit.tokens import prices

MODEL = "claude-sonnet-4-5"


def talk(n: int = 30, size: int = 2000, model: str | None = MODEL, first: int = 10_000, **more):
    """A session of n calls whose prompt grows by `size` tokens each, every prefix read from the cache."""
    log, before = [], 0
    for i in range(n):
        now = first + size * i
        u = Usage(
            input_tokens=0,
            cache_read_tokens=before,
            cache_write_tokens=now - before,
            output_tokens=100,
        )
        log += [
            user(f"step {i} in src/part{i % 7}/file.py " + "word " * size),
            assistant("ok", usage=u, model=model, time=10.0 * i, latency=1.0),
        ]
        before = now
    return session(*log, **more)


def test_a_replay_without_compaction_costs_what_the_model_says_of_the_record():
    s = talk()
    one, none = ck.score(s, loss=False), ck.score(ck.replay(s, ck.presets.none()), loss=False)
    for name in (
        "prompt_tokens",
        "peak_tokens",
        "cost_usd",
        "cache_read_tokens",
        "cache_write_tokens",
    ):
        assert none[name] == pytest.approx(one[name]), name
    assert (one["source"], none["source"]) == ("recorded", "derived")
    assert one["closure_error"] == pytest.approx(0)


def test_a_prediction_is_made_once_for_a_session_and_its_prices():
    s = talk(model="own-model-with-prices")
    for read_price in (1e-7, 9e-7):
        own = prices.Price(input=1e-6, output=5e-6, cache_read=read_price, cache_write=1e-6)
        prices.register("own-model-with-prices", own)
        found = SessionAnalysisCache(s).prediction
        assert SessionAnalysisCache(s).prediction is found
        assert found == predict_input_cost(s)
    assert found.error is not None


def test_a_cut_rewrites_everything_behind_the_first_changed_token():
    s = talk()
    rules = ck.presets.pi(context_window=50_000, keep_recent_tokens=4000, summariser="fixed")
    done, again = run_replay(s, rules), ck.replay(s, rules)
    cut, sheet = done.compactions[0], SessionAnalysisCache(s).sheet
    sent = PromptAndSharedPrefixSizes(done.prompts.tolist(), compute_shared_tokens(done).tolist())
    assert sheet.count_read_tokens(cut.call, sent) == min(cut.new.stable, done.prompts[cut.call])
    assert sheet.count_read_tokens(cut.call, sent) < done.prompts[cut.call - 1]
    assert sheet.count_read_tokens(cut.call + 1, sent) == done.prompts[cut.call]
    assert ck.score(again, loss=False)["compactions_n"] == len(done.compactions) > 0


def test_a_recorded_pause_is_carried_over_and_keeps_no_more_than_it_kept():
    s = talk(6)
    replies = [m for m in s.messages if m.role == "assistant"]
    late = Usage(
        input_tokens=0, cache_read_tokens=3000, cache_write_tokens=15_000, output_tokens=100
    )
    log = [
        e
        if e is not replies[4]
        else assistant("ok", usage=late, model=MODEL, time=9000.0, latency=1.0)
        for e in s.log
    ]
    cold = session(*log)
    a, b = (SessionAnalysisCache(x).sheet for x in (s, cold))
    assert a.read_limits[4] > 10**9
    assert b.read_limits[4] == 3000


def test_the_call_that_writes_a_summary_is_billed_fresh_or_as_a_read():
    s, p = talk(), ck.prices.price(MODEL)
    again = ck.replay(
        s, ck.presets.pi(context_window=50_000, keep_recent_tokens=4000, summariser="fixed:1000")
    )
    edits = [e for e in again.edits if e.kind == "summarised"]
    fresh, reused = (ck.score(again, loss=False, reuse=r)["summaries_usd"] for r in (False, True))
    size = [e.details["summary_tokens"] for e in edits]
    source = [e.details["source_tokens"] for e in edits]
    assert fresh == pytest.approx(sum(source) * p.input + sum(size) * p.output)
    assert reused == pytest.approx(
        sum(e.tokens_before for e in edits) * p.cache_read + sum(size) * p.output
    )


def test_without_price_or_usage_the_cost_is_missing_and_never_zero():
    unknown = ck.score(ck.replay(talk(model="nobody-knows-9"), ck.presets.none()), loss=False)
    silent = session(*(m for i in range(5) for m in (user("x" * 400), assistant("ok"))))
    for row in (
        unknown,
        ck.score(silent, loss=False),
        ck.score(ck.replay(silent, ck.presets.none()), loss=False),
    ):
        assert row["cost_usd"] is pd.NA
    assert unknown["prompt_tokens"] > 0
    assert ck.score(silent, loss=False)["source"] == "estimated"


def test_a_run_and_the_session_made_of_it_have_one_row():
    s = talk(40)
    for rules in (
        ck.presets.pi(context_window=60_000, keep_recent_tokens=4000, summariser="share"),
        ck.presets.swe_agent_mask(n=3),
        ck.presets.none(),
    ):
        a, b = (
            score_run(SessionAnalysisCache(s), run_replay(s, rules), rules.label),
            score_session(ck.replay(s, rules), loss=False),
        )
        assert a == b


@pytest.mark.parametrize("limit", [9_000, 22_000, 24_000])
def test_a_run_of_two_agents_is_full_again_at_the_call_of_its_replay(limit):
    """Where agents with other fixed parts take turns, prompts fall between compactions."""
    log = []
    for i in range(60):
        agent, fixed = ("a", 20_000) if i // 3 % 2 else ("b", 500)
        asked = Usage(input_tokens=fixed + 500 * i, cache_read_tokens=0, output_tokens=9)
        log += [user("word " * 400), assistant("ok", usage=asked, model=MODEL, agent=agent)]
    s, rules = session(*log), Rules(policy="window:keep_tokens=1000", trigger=Above(limit))
    done = run_replay(s, rules)
    assert not done.log.tokens.rising
    assert score_run(SessionAnalysisCache(s), done, rules.label) == score_session(
        ck.replay(s, rules), loss=False
    )


def test_a_comparison_begins_with_the_record_and_keeps_failures_as_rows():
    s = session(
        *(
            m
            for i in range(4)
            for m in (user("word " * 50), *step(text="y" * 400), assistant("ok"))
        ),
        id="s<1>",
    )
    found = ck.compare(
        s,
        ["none", ck.presets.pi, "clear:keep_last=1", ck.presets.none(context_window=1)],
        loss=False,
    )
    assert list(found.columns) == list(SCORE_COLUMN_NAMES)
    assert list(found.index) == [
        "recorded",
        "none",
        "pi",
        "clear:keep_last=1",
        "none(context_window=1)",
    ]
    assert list(found.replays) == [r for r in found.index if pd.isna(found.loc[r, "error"])]
    assert type(found.head(2)) is pd.DataFrame
    assert found.attrs["interrupted"] is False


def test_rules_that_raise_are_a_row_that_says_why():
    def broken(_history, _budget):
        raise IndexError("out of range")

    found = ck.compare(talk(8), [broken, "pi"], loss=False)
    assert found["error"].tolist()[1] == "IndexError: out of range"
    assert len(found.replays) == len(list(found.replays)) == 2  # the record, and pi
    assert found["prompt_tokens"].notna().tolist() == [True, False, True]
    assert "IndexError: out of range" in found.to_text()


def test_the_display_shows_the_beginning_of_a_long_error_and_note():
    def broken(_history, _budget):
        raise IndexError("<" * 500)

    rules = Rules(policy=broken, trigger=Above(0.1), name="b" * 80)
    found = ck.compare(talk(8, notes=("z" * 500,)), [rules], loss=False)
    name, error, note = f"{'b' * 59}…", f"IndexError: {'<' * 287}…", f"Note: {'z' * 399}…"
    html = found._repr_html_()
    assert f"<li>{name}: {error.replace('<', '&lt;')}</li>" in html
    assert f"<br>{note}</div>" in html
    paragraphs = [p.replace("\n", "") for p in found.to_text(why=True).split("\n\n")]
    assert f"{name}: {error}" in paragraphs
    assert paragraphs[-1] == note


def test_a_session_without_calls_has_the_window_of_its_log():
    assert ck.score(session(user(), context_window=9_000))["window_tokens"] == 9_000
    assert pd.isna(ck.score(session(user()))["window_tokens"])


def test_the_display_is_escaped_and_has_a_twin_in_text():
    found = ck.compare(talk(8, id="<b>x</b>"), ["none"], loss=False)
    assert "<b>x" not in found._repr_html_()
    assert "$" in found.to_text()
    assert "recorded trajectory" in " ".join(found.to_text(why=True).split())


def test_the_display_names_the_session_by_its_title():
    found = ck.compare(talk(8, id="s7", title="Mend the <parser>"), ["none"], loss=False)
    assert "Mend the <parser>" in found.to_text().splitlines()
    assert '<div title="id s7">Mend the &lt;parser&gt;</div>' in found._repr_html_()
    # a frame that was made without the replays knows the id alone
    assert "s7" in type(found)(pd.DataFrame(found)).to_text().splitlines()


def test_a_long_caption_of_a_comparison_is_cut(monkeypatch):
    found = ck.compare(session(user("x"), assistant("y")), ["none"], loss=False)
    monkeypatch.setattr(type(found), "caption", "c" * 1301)
    assert f"on</summary>{'c' * 1299}…</details>" in found._repr_html_()


def test_every_cell_of_the_display_carries_the_figure_it_is_sorted_by():
    found = ck.compare(talk(8), ["none", "pi"], loss=False)
    shown = found.detail.to_html()
    assert shown.count("onclick=") == len(DETAIL_HEADS) + 1
    known = int(
        found[list(DETAIL_HEADS)].notna().sum().sum()
    )  # nothing is saved where nothing is cut, and that is not zero
    assert known < len(found) * len(DETAIL_HEADS)
    assert shown.count("data-value=") == len(found) + known
    assert f'data-value="{found["prompt_tokens"].iloc[0]}"' in shown
    assert shown in found._repr_html_()


@pytest.mark.parametrize("bad", [3, None, [talk(2)]])
def test_what_is_no_session_is_refused(bad):
    with pytest.raises(ck.BadArguments, match="session"):
        ck.score(bad)
    with pytest.raises(ck.BadArguments, match="session"):
        ck.compare(bad)


def test_unknown_rules_are_refused_with_the_nearest_name():
    with pytest.raises(ck.UnknownName, match="clear"):
        ck.compare(talk(2), ["cleer"])


def test_every_preset_runs_by_itself_on_a_session_whose_fixed_part_fills_its_window():
    runs = ck.sweep(
        [
            session(*talk(12, 200, model=None, first=300_000).log, id="of no known model"),
            talk(12, 200, model="gpt-4", first=9000),
        ],
        "all",
        progress=False,
        loss=True,
    )
    assert not runs["error"].notna().any()
    assert runs["note"].str.contains("no compaction makes a prompt fit").all()


def test_a_window_that_was_asked_for_and_cannot_hold_the_fixed_part_is_refused():
    s = talk(4, 200, first=70_000)
    assert "64,000" in ck.score(ck.replay(s, ck.presets.pulse_coder()), loss=False)["note"]
    assert pd.isna(ck.score(ck.replay(s, ck.presets.pi()), loss=False)["note"])
    with pytest.raises(
        BadArguments, match=r"window of 60,000 tokens cannot hold the fixed part of the prompt"
    ):
        ck.replay(s, ck.presets.pulse_coder(context_window_tokens=60_000))


def test_pis_session_replayed_as_recorded_costs_what_it_did(real):
    """$37.90 on the input side; the table of the field's study was 5.5 % off when it carried the misses over."""
    s = ck.read(real / "pi/before-compaction.jsonl")
    assert ck.score(ck.replay(s, recorded_rules()), loss=False)["input_usd"] == pytest.approx(
        37.90, rel=0.005
    )
    assert ck.score(s, loss=False)["prompt_tokens"] == 56_382_684


def test_every_real_session_replayed_as_recorded_costs_what_it_did(real):
    """Prompts to the token, the input side within 3 %: the model is told neither the split nor the recorded sizes."""
    checked = 0
    for s in ck.read_all(real, progress=False):
        for each in (s, *s.children):
            bill = ck.score(each, loss=False) if each.has_cache else None
            if bill is None or bill["input_usd"] is pd.NA or not bill["input_usd"]:
                continue
            again = ck.score(ck.replay(each, recorded_rules()), loss=False)
            checked += 1
            assert again["prompt_tokens"] == bill["prompt_tokens"], each.path_
            assert again["input_usd"] == pytest.approx(bill["input_usd"], rel=0.03), each.path_
    assert checked >= 25


def test_the_page_on_scores_is_not_behind():
    assert (Path(__file__).parents[2] / "docs" / "scores.md").read_text(
        encoding="utf-8"
    ) == format_page()


def test_a_display_of_a_score_says_what_it_shows_in_words_that_stand_there():
    page = ck.score(ck.samples.path("billing"))._repr_html_()
    assert "needed_lost_n" not in page
    assert "share of what was used again that was out of sight by then<" in page
    assert "True after" not in page
    assert "yes after three compactions in a row without progress" in page


def test_a_window_is_exceeded_by_what_is_larger():
    base = SessionAnalysisCache(talk(3))

    def over(prompts, rules_window=None, window=100):
        base.__dict__["window"] = window
        return base.over(prompts, max(filter(None, prompts), default=None), rules_window)

    fits, none = {"window_tokens": 100}, {"window_tokens": None}
    assert over([90, 100]) == over([]) == fits
    assert over([100, None, 101, 150]) == {**fits, "first_call_over_window": 2}
    # a window of the rules counts where it is larger and a whole number
    assert over([150], 120) == {"window_tokens": 120, "first_call_over_window": 0}
    assert over([150], 150) == {"window_tokens": 150}
    assert over([101], 50) == over([101], 500.0) == {**fits, "first_call_over_window": 0}
    assert over([101], 50, window=None) == none
    assert over([101], window=0) == {"window_tokens": 0}


def test_the_interval_widens_the_prompts_alone():
    class Prediction:
        spread = (-0.25, 0.5)

    interval = cost_and_loss_scores.get_cost_interval(10.0, 8.0, Prediction)
    assert interval == {"cost_low_usd": 8.0, "cost_high_usd": 14.0}
    for total, prompts in ((None, 8.0), (10.0, None)):
        assert cost_and_loss_scores.get_cost_interval(total, prompts, Prediction) == {}
    Prediction.spread = None
    assert cost_and_loss_scores.get_cost_interval(10.0, 8.0, Prediction) == {}


def test_compactions_that_failed_are_told_apart_from_suppressed_ones():
    whys = ["guard", "failed: no model", "failed: late", "it failed: no"]
    assert cost_and_loss_scores._run_outcome("a", (3, 2), whys, "odd") == {
        "rules": "a", "hidden_messages_n": 3, "hidden_results_n": 2, "suppressed_compactions_n": 2,
        "failed_compactions_n": 2, "note": "odd",
    }  # fmt: skip


def test_the_policy_of_a_record_is_that_of_its_edits_or_its_processor():
    from builders import summarised

    from ctxkit.session import Edit

    def classify(*edits, **details):
        asked = user()
        log = (asked, assistant(), *(edit(asked) for edit in edits))
        return cost_and_loss_scores.classify_recorded_policy(session(*log, details=details))

    def drop(message):
        return Edit(kind="dropped", id="d", targets=(message.id,))

    def summarise(message):
        return summarised([message], "Short.")

    assert classify() == "raw"
    assert classify(drop) == "other"
    assert classify(drop, summarise) == "summary"
    for name, kind in (("swe_agent_mask", "mask"), ("none", "raw"), ("other_one", "other")):
        assert classify(history_processor={"name": name}) == kind
    assert classify(cannot_tell=["compactions"]) is None
    assert classify(cannot_tell=["prices"]) == "raw"


def test_why_a_loss_is_missing_is_a_sentence():
    def explain(loss, recall, at_stake):
        columns = {
            "needed_later_loss": loss,
            "summary_recall": recall,
            "at_stake_items_n": at_stake,
        }
        return cost_and_loss_scores._explain_missing_loss(columns)

    nothing, no_text = "Nothing that was said is named", "No text was put in"
    assert explain(None, None, 3).startswith(nothing)
    assert explain(0.0, None, 3).startswith(no_text)
    assert explain(0.0, None, 0) is explain(0.0, None, None) is explain(0.0, 0.5, 3) is None


def test_a_view_shows_no_counts_of_a_record_that_states_none():
    silent = session(*(m for i in range(3) for m in (user("x" * 400), assistant("ok"))))
    replayed = ck.replay(silent, ck.presets.none())
    read = cost_and_loss_scores.map_session_score_to_view_figures
    counted = {"prompt_tokens", "peak_tokens"}
    for each, names, more in (
        (silent, set(), False), (replayed, counted, True), (talk(3), counted, False),
    ):  # fmt: skip
        figures = read(score_session(each, loss=False), each)
        assert counted & set(figures) == names
        assert ("summary_tokens" in figures) is more
    row = score_session(talk(3), loss=False)
    figures = cost_and_loss_scores.map_score_row_to_view_figures(row)
    assert figures["written_tokens"] == row["cache_write_tokens"] == 14_000
    assert figures["cache_read_tokens"] == row["cache_read_tokens"] == 10_000 + 12_000
    assert figures["input_usd"] == row["input_usd"] != figures["output_usd"] == row["output_usd"]


def test_a_score_is_told_in_one_sentence():
    def describe(**figures):
        figures = {"cost_usd": None, "calls_n": None, "compactions_n": None, **figures}
        return score_columns._describe_score(pd.Series(figures, name="pi", dtype=object))

    lost = "; 25 % of what was used again was out of sight by then."
    unknown = "; what was lost is unknown."
    assert describe() == f"pi: cost unknown{unknown}"
    assert describe(cost_usd=1.5, calls_n=1) == f"pi: $1.50 for 1 call{unknown}"
    full = describe(cost_usd=1.5, calls_n=9, compactions_n=2, needed_later_loss=0.25)
    assert full == f"pi: $1.50 for 9 calls, 2 compactions{lost}"
    assert (
        describe(compactions_n=0, needed_later_loss=0.25)
        == f"pi: cost unknown, 0 compactions{lost}"
    )
    kinds = (("yes", True, "yes"), ("yes", False, "no"), ("usd", 1.5, "$1.50"),
             ("share", 0.25, "25 %"), ("count", 1234.4, "1,234"))  # fmt: skip
    assert [score_columns._format(v, kind) for kind, v, _ in kinds] == [text for *_, text in kinds]


def test_the_display_of_a_score_leaves_out_what_is_missing():
    shown = score_columns.display_score(ck.score(talk(3), loss=False))
    assert [row[0].text for row in shown.table.rows] == [
        "cost_usd", "calls_n", "prompt_tokens", "peak_tokens", "compactions_n", "not_paid_back_n",
        "is_thrashing",
    ]  # fmt: skip
    assert [row[1].text for row in shown.table.rows][1:4] == ["3", "36,000", "14,000"]
    assert shown.notes == (f".detail has all {len(SCORE_COLUMN_NAMES)} figures (docs/scores.md).",)


def test_settings_stand_behind_the_rules_in_their_order():
    rows = [{"session": "s", "rules": "a", "late": 3, "early": "x"}, {"rules": "b", "early": None}]
    frame = score_columns.build_score_frame(rows, ("early", "late"))
    assert list(frame)[:5] == ["session", "rules", "early", "late", "calls_n"]
    assert frame["late"].dtype == "Int64"
    assert [frame[c].isna().tolist() for c in ("session", "early", "late")] == [[False, True]] * 3
    assert list(score_columns.build_score_frame([])) == list(SCORE_COLUMN_NAMES)


def test_logs_of_the_developer_are_a_folder_or_sessions(tmp_path):
    assert cost_and_loss_scores.read_developer_logs(None) is None
    made = [talk(12, id=f"s{i}") for i in range(3)]
    for each in made:
        ck.write(each, tmp_path / f"{each.id}.jsonl")
    known = [ck.score(made[0], loss=False, logs=logs) for logs in (made, tmp_path, str(tmp_path))]
    errors = [row["prediction_error"] for row in known]
    assert errors[0] == pytest.approx(errors[1]) == pytest.approx(errors[2])
