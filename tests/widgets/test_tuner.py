"""The tuner: a slider a setting, drawn by the same engine as a replay; settings that cannot work; twins."""

from __future__ import annotations

import json
import re

import pytest
from builders import assistant, session, step, usage, user
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit.errors import BadArguments, UnknownName
from ctxkit.policies import Above, AntiThrash, Rules, Summary
from ctxkit.presets import resolve_rules
from ctxkit.widgets import make_setting_controls
from ctxkit.widgets import trial_replays_and_tables as trials
from ctxkit.widgets.trial_replays_and_tables import describe_trial_verdict


@pytest.fixture(scope="module")
def sample():
    return ck.read(ck.samples.path())


@pytest.fixture(autouse=True)
def try_no_settings(monkeypatch):
    """Begin at once: the trials of every setting take a second of each tuner."""
    monkeypatch.setattr("ctxkit.widgets.tuner_controls.EFFECT_SECONDS", -1.0)


@pytest.fixture
def try_all_settings(try_no_settings, monkeypatch):
    """Try every setting, however slow the machine."""
    monkeypatch.setattr("ctxkit.widgets.tuner_controls.EFFECT_SECONDS", 60.0)


def rules(trigger: int = 20_000, keep: int = 6_000, guard: int = 3) -> Rules:
    return Rules(
        policy=Summary(keep_tokens=keep), trigger=Above(trigger), guards=(AntiThrash(window=guard),)
    )


def sizes(tuner) -> list[int]:
    return list(tuner.trial.prompts)


def replayed(log, made) -> list[int]:
    return [c.message.usage.prompt_tokens for c in ck.replay(log, made).calls]


def test_it_begins_with_the_replay_of_these_rules(sample):
    tuner = ck.tune(sample, rules)
    assert sizes(tuner) == replayed(sample, rules())
    assert tuner.settings == {"trigger": 20_000, "keep": 6_000, "guard": 3}
    assert len(tuner.trial.steps) == len(ck.replay(sample, rules()).edits) > 3


def test_a_moved_slider_draws_what_an_exact_replay_gives(sample):
    tuner = ck.tune(sample, rules)
    tuner.exact.value = True
    before = tuner.growth.value
    tuner.sliders["trigger"].value = 31_000
    assert sizes(tuner) == replayed(sample, rules(trigger=31_000))
    assert tuner.growth.value != before
    assert (
        tuner.trial.row["needed_later_loss"]
        == ck.score(ck.replay(sample, rules(trigger=31_000)))["needed_later_loss"]
    )


def test_while_it_moves_a_summary_has_the_size_it_had_and_says_so(sample):
    tuner = ck.tune(sample, rules)
    tuner.settings = {"keep": 7_000}
    exact = replayed(sample, rules(keep=7_000))
    assert max(sizes(tuner)) == pytest.approx(max(exact), rel=0.05)
    assert "Each summary is taken to have" in tuner.figures.value
    at_most = tuner.trial.row["needed_later_loss"]
    tuner.exact.value = True
    assert "Each summary is taken to have" not in tuner.figures.value
    assert 0 < tuner.trial.row["needed_later_loss"] <= at_most
    assert "needed, lost" in tuner.figures.value


def test_with_exact_every_row_has_its_loss(sample):
    tuner = ck.tune(sample, rules)
    tuner.exact.value = True
    shown = [row.get("needed_later_loss") for row in tuner._figure_rows().values()]
    again = ck.replay(sample, rules())
    assert shown == [ck.score(s)["needed_later_loss"] for s in (sample, again)]


def test_what_a_pruning_hides_is_worked_out_on_demand(sample):
    tuner = ck.tune(sample, "swe_agent_mask")
    assert "needed, lost" not in tuner.figures.value
    tuner.exact.value = True
    assert "needed, lost" in tuner.figures.value


def test_its_words_say_none_for_what_is_off(sample):
    words = ck.tune(sample, "openhands").words
    assert "max_tokens=None" in words
    assert resolve_rules(words).label == "openhands"


def test_settings_that_cannot_work_leave_the_picture_and_say_why(sample):
    tuner = ck.tune(sample, rules, keep=(1_000, 40_000, 1_000))
    shown = sizes(tuner)
    tuner.sliders["keep"].value = 30_000
    assert "frees nothing" in tuner.growth.value
    assert sizes(tuner) == shown
    assert "frees nothing" in tuner.to_text()
    tuner.sliders["keep"].value = 7_000
    assert "cannot work" not in tuner.growth.value


def test_as_begun_turns_everything_back(sample):
    tuner = ck.tune(sample, rules)
    tuner.settings = {"trigger": 30_000, "keep": 5_000}
    tuner.back.click()
    assert tuner.turned == {}
    assert tuner.trial is tuner.begun


@pytest.mark.parametrize("name", ["fuseraft", "fased", "pi", "codex"])
def test_the_numbers_of_a_preset_are_its_sliders(sample, name: str):
    tuner = ck.tune(sample, name)
    numbers = {k for k, v in ck.presets.preset(name).parameters.items() if type(v) in (int, float)}
    assert numbers <= set(tuner.sliders)
    assert tuner.settings["context_window"] == 48_000
    assert sizes(tuner) == replayed(sample, getattr(ck.presets, name)())


def test_a_slider_stands_whole_steps_above_its_lower_end_so_that_no_browser_moves_it(sample):
    reserve = ck.tune(sample, "pi").sliders["reserve_tokens"]
    assert (reserve.value, (reserve.value - reserve.min) % reserve.step) == (16_384, 0)


def test_a_presets_setting_reaches_the_preset(sample):
    tuner = ck.tune(sample, ck.presets.fuseraft(trigger_turn_count=90, keep_recent_turns=3))
    tuner.sliders["trigger_turn_count"].value = 99
    assert tuner.rules.parameters["trigger_turn_count"] == 99
    assert tuner.rules.parameters["keep_recent_turns"] == 3


def test_rules_built_by_hand_have_the_sliders_of_their_parts(sample):
    found = make_setting_controls(rules(), sample, {})
    assert {"keep_tokens", "limit", "min_savings", "window"} <= {k.name for k in found.every}
    made = found.make({"keep_tokens": 5_000, "window": 7})
    assert (made.policy.keep_tokens, made.trigger.limit, made.guards[0].window) == (
        5_000,
        20_000,
        7,
    )


def test_a_held_back_compaction_is_a_row_with_its_reason(sample):
    tight = Rules(
        policy=Summary(keep_tokens=15_000),
        trigger=Above(15_500),
        guards=(AntiThrash(window=1, min_savings=0.5),),
    )
    tuner = ck.tune(sample, tight)
    held = [s for s in tuner.trial.steps if s.after is None]
    assert held
    assert held[0].why == "suppressed: anti-thrash: 1 of 1 below 50%"
    assert f"{len(held):,} suppressed" in tuner.steps.value


def test_sliders_of_rules_that_take_long_wait_for_rest(sample, monkeypatch):
    monkeypatch.setattr("ctxkit.widgets.tuner._SMOOTH", 0.0)
    assert not ck.tune(sample, rules).sliders["keep"].continuous_update
    monkeypatch.setattr("ctxkit.widgets.tuner._SMOOTH", 60.0)
    assert ck.tune(sample, rules).sliders["keep"].continuous_update


def test_spans_hold_the_value_and_step_in_round_numbers(sample):
    by_name = {k.name: k for k in make_setting_controls("fuseraft", sample, {}).every}
    assert by_name["anti_thrash_min_savings_ratio"][1:5] == (0.1, 0.0, 1.0, 0.01)
    assert by_name["trigger_turn_count"][1:5] == (50, 0, 200, 1)
    assert by_name["token_budget"][1:5] == (80_000, 2_000, 320_000, 2_000)
    assert all(k.low <= k.value <= k.high for k in by_name.values())


@pytest.mark.parametrize(
    ("what", "ranges", "kind", "said"),
    [
        ("fasd", {}, BadArguments, "fasd"),
        ("fased", {"reserve": (0, 1)}, UnknownName, "Did you mean 'reserve_tokens_floor'"),
        (rules, {"keep": (5, 5)}, BadArguments, "nothing between"),
        (rules, {"keep": 5}, BadArguments, "two ends"),
        (lambda history, budget: history, {}, BadArguments, "no numeric setting"),
    ],
)
def test_a_mistake_is_named(sample, what, ranges, kind, said):
    with pytest.raises(kind, match=said):
        ck.tune(sample, what, **ranges)


def test_it_has_a_text_twin_and_an_html_twin(sample):
    bundle = ck.tune(sample, rules)._repr_mimebundle_()
    assert all("trigger=20,000" in bundle[kind] for kind in ("text/plain", "text/html"))
    assert "as begun" not in bundle["text/plain"]  # nothing was turned
    assert re.match(
        r"rules costs \$[\d.]+, \$[\d.]+ (more|less) than recorded; \d+ % of", bundle["text/plain"]
    )
    assert "<svg" in bundle["text/html"]


def test_the_verdict_stands_first_and_nothing_is_said_twice(sample):
    tuner = ck.tune(sample, "pi")
    first = tuner.to_text().splitlines()[0]
    was, cost = (row["cost_usd"] for row in tuner._figure_rows().values())
    assert cost > was
    more = f"pi costs ${cost:.2f}, ${cost - was:.2f} more than recorded; "
    assert first.startswith(more)
    assert first.endswith(" of what is used again is out of sight by then; it thrashes.")
    html = tuner.to_html()
    assert html.index(more) < html.index("<svg") < html.index("reserve_tokens=")
    assert list(tuner._figure_rows()) == ["recorded", "now"]
    heads = re.findall(r"<th ", tuner.figures.value)
    assert len(heads) <= 8
    tuner.sliders["keep_recent_tokens"].value += 2_000
    assert list(tuner._figure_rows()) == ["recorded", "as begun", "now"]
    tuner.back.click()
    assert list(tuner._figure_rows()) == ["recorded", "now"]


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ({}, {}, "has no known cost"),
        ({}, {"cost_usd": 2.0}, "costs $2.00"),
        ({"cost_usd": 2.0}, {"cost_usd": 2.001}, "costs $2.00, as recorded"),
        ({"cost_usd": 2.0}, {"cost_usd": 1.5}, "costs $1.50, $0.50 less than recorded"),
        ({"cost_usd": 2.0}, {"cost_usd": 2.004}, "costs $2.00, as recorded"),
        ({"cost_usd": 2.0}, {"cost_usd": 2.007}, "costs $2.01, $0.0070 more than recorded"),
        (
            {"cost_usd": 2.0},
            {"cost_usd": 2.0, "needed_later_loss": 0.25, "is_thrashing": True},
            (
                "costs $2.00, as recorded; 25 % of what is used again is out of sight by then;"
                " it thrashes"
            ),
        ),
    ],
)
def test_a_verdict_says_what_is_known(was, now, words):
    assert describe_trial_verdict("pi", was, now) == f"pi {words}."


@pytest.mark.usefixtures("try_all_settings")
def test_settings_that_change_nothing_are_named_where_few_are_shown(sample):
    tuner = ck.tune(sample, "pi")
    names = [e.name for e in tuner.effects if e.tokens == 0]
    assert names
    shown = [c.value for c in tuner.children if type(c).__name__ == "HTML"]
    assert any(f"These change nothing in this replay: {', '.join(names)}." in s for s in shown)


def test_text_of_a_log_stays_text():
    assert intruders(ck.tune(hostile(), rules).to_html()) == []


def test_a_session_without_usage_or_calls_can_be_tried():
    bare = session(user("a"), step(text="x" * 400), assistant("b"))
    assert "0 compactions" in ck.tune(bare, rules).to_text()
    assert ck.tune(session(user("only")), rules).trial.prompts == []
    priced = session(user("a"), assistant("b", usage=usage(50)))
    assert (
        "prompt tokens"
        in trials.format_trial_figures({"recorded": ck.tune(priced, rules).trials.recorded})[0]
    )


def test_the_setting_is_copied_out_in_the_systems_own_syntax(sample):
    tuner = ck.tune(sample, "pi")
    tuner.settings = {"keep_recent_tokens": 12_000, "context_window": 60_000}
    assert json.loads(tuner.copier.text)["compaction"]["keepRecentTokens"] == 12_000
    assert "context_window" not in tuner.copier.text
    assert (tuner.copier.label, "context_window" in tuner.copier.note) == (
        "Copy as pi's config",
        True,
    )


def test_a_setting_without_a_config_file_is_copied_as_the_call_that_makes_it(sample):
    tuner = ck.tune(sample, "tyrum")
    tuner.settings = {"reserved_input_tokens": 9_000}
    assert eval(tuner.copier.text, {"ctxkit": ck}) == tuner.rules
    assert "no config file" in tuner.copier.note
    own = ck.tune(sample, rules)
    own.settings = {"keep": 7_000}
    assert own.copier.text == "rules(trigger=20000, keep=7000, guard=3)\n"
    assert ck.tune(sample, rules()).copier.text.startswith("dict(keep_tokens=6000")


def test_a_setting_that_cannot_work_is_not_copied(sample):
    tuner = ck.tune(sample, rules, keep=(1_000, 40_000, 1_000))
    tuner.sliders["keep"].value = 30_000
    assert "keep=6000" in tuner.copier.text
    assert "the last ones that could" in tuner.copier.note


def test_the_log_itself_says_when_to_compact_or_why_it_cannot(sample):
    assert "Trigger: compact at" in ck.tune(sample, rules).when.value
    assert "has no" in ck.tune(session(user("a"), assistant("b")), rules).when.value


# -- switches, choices, what is off; what matters first; two settings side by side; panes ------------------------------


def test_switches_and_choices_are_toggles_that_reach_the_preset(sample):
    tuner = ck.tune(sample, "fuseraft")
    assert tuner.sliders["mode"].options == ("llm", "intent", "lossless", "hybrid", "window")
    tuner.settings = {"mode": "window", "text_only": True}
    assert tuner.rules.parameters["mode"] == "window"
    assert tuner.rules.parameters["text_only"] is True
    assert sizes(tuner) == replayed(sample, ck.presets.fuseraft(mode="window", text_only=True))
    assert "mode=window" in tuner.to_text()


def test_what_is_none_can_be_turned_on_and_off_again(sample):
    tuner = ck.tune(sample, "codex")
    limit = tuner.sliders["model_auto_compact_token_limit"]
    assert (limit.value, limit.min, limit.max) == (0, 0, 48_000)
    limit.value = 20_000
    tuner.exact.value = True
    assert sizes(tuner) == replayed(sample, ck.presets.codex(model_auto_compact_token_limit=20_000))
    limit.value = 0
    assert tuner.rules.parameters["model_auto_compact_token_limit"] is None


def test_sizes_that_are_off_have_the_window_for_a_range(sample):
    found = {k.name: k for k in make_setting_controls("fuseraft", sample, {}).every}
    assert (found["max_in_turn_context_tokens"].high, found["max_turn_age"].high) == (48_000, 20)
    assert found["warn_at"].high > 1_000_000


@pytest.mark.usefixtures("try_all_settings")
def test_the_six_that_matter_stand_first_and_the_others_are_folded_with_a_reason(sample):
    tuner = ck.tune(sample, "pi")
    assert "keep_recent_tokens" in list(tuner.sliders)[:3]
    fased = ck.tune(sample, "fased")
    folded = fased.children[1]
    assert folded.selected_index is None
    idle = [e.name for e in fased.effects if e.tokens == 0]
    assert folded.titles[0] == f"{len(idle)} more settings"
    assert {"timeout_seconds", "quality_retries"} <= set(idle)
    assert "timeout_seconds" in folded.children[0].children[0].value
    fased.exact.value = True
    for name in idle[:3]:  # they change nothing indeed
        fased.sliders[name].value = getattr(fased.sliders[name], "max", True)
        assert sizes(fased) == list(fased.begun.prompts)
        fased.back.click()


def test_a_pinned_setting_stands_beside_the_present_one_and_they_swap(sample):
    tuner = ck.tune(sample, rules)
    tuner.settings = {"trigger": 30_000}
    tuner.pin.click()
    a = sizes(tuner)
    tuner.settings = {"trigger": 24_000, "keep": 5_000}
    b = sizes(tuner)
    assert "pinned" in tuner.to_text()
    assert "pinned" in tuner.growth.value
    tuner.swap.click()
    assert (tuner.settings["trigger"], sizes(tuner)) == (30_000, a)
    tuner.swap.click()
    assert (tuner.settings["keep"], sizes(tuner)) == (5_000, b)


def test_the_panes_draw_the_budget_and_the_guard_of_what_is_tried(sample):
    tuner = ck.tune(sample, rules)
    tuner.panes.selected_index = 1
    guard = tuner.panes.children[1].children[0]
    assert len(guard.shares()) == tuner.trial.row["compactions_n"]
    assert guard.usd["0/none"] == pytest.approx(tuner.trial.row["cost_usd"])
    tuner.settings = {"trigger": 32_000}
    assert len(guard.shares()) == tuner.trial.row["compactions_n"]
    tuner.panes.selected_index = 0
    assert tuner.panes.children[0].children[0].verdict


def test_a_name_is_tried_with_the_rules_of_its_session(shell):
    shell.run_cell("%%agent --session billing --rules pi\nWrite it").raise_error()
    shown = ck.tune("billing")
    assert shown.rules.name == "pi"
    with pytest.raises(BadArguments, match="takes the rules to be tried"):
        ck.tune(session(user(), assistant()))


@pytest.mark.parametrize(
    ("before", "after", "saved"), [(100, 25, 0.75), (100, None, None), (0, 5, None)]
)
def test_a_trial_saved_a_share_where_both_sizes_are_known(before, after, saved):
    assert trials.TrialCompaction(0, before, after, None, "").saved == saved


def test_a_live_session_is_tried_as_it_grows_and_led_from_here_on(tmp_path):
    import asyncio

    from ctxkit import tokens
    from ctxkit.agent import LiveSession, ScriptedModel, Workspace, get_script
    from ctxkit.presets import resolve_rules

    model = ScriptedModel(
        get_script("audit").turns,
        name="audit",
        counter=tokens.get_counter("chars/4"),
        clock=lambda: 0.0,
        context_window=32_000,
    )
    place = Workspace(tmp_path)
    with LiveSession(
        "one", model=model, rules=resolve_rules("pi"), clock=lambda: 1e9, workspace=place
    ) as live:
        asyncio.run(live.turn("go"))
        shown = ck.tune(live)
        calls = len(shown.trial.prompts)
        assert calls == len(live.session.calls)
        shown.settings = {"keep_recent_tokens": 2000, "reserve_tokens": 26_000}
        shown.from_here.button.click()
        assert "From call" in shown.from_here.message.value
        assert live.agent.rules.parameters["keep_recent_tokens"] == 2000
        assert resolve_rules(live.settings["rules"]).parameters["reserve_tokens"] == 26_000
        asyncio.run(live.turn("go on"))
        assert len(shown.trial.prompts) == len(live.session.calls) > calls
        assert live.session.edits  # the new reserve is due at 6,000 tokens
        shown.stop()
    with pytest.raises(ck.BadArguments, match="takes the rules"):
        ck.tune(ck.samples.path("billing"))


def test_a_bound_of_the_loss_is_never_shown_as_a_value(sample):
    """While summaries are taken to say nothing, `now` has the most that can be lost, and reads so."""

    def row(tuner, name):
        return next(line for line in tuner.to_text().splitlines() if line.lstrip().startswith(name))

    tuner = ck.tune(sample, ck.presets.pi(context_window=48_000, reserve_tokens=8_000,
                                          keep_recent_tokens=9_000))  # fmt: skip
    tuner.sliders["context_window"].value += 2_000
    assert "at most" in row(tuner, "now")
    assert "at most" in tuner.to_html()
    assert "at most" not in row(tuner, "as begun")
    tuner.exact.value = True
    assert "at most" not in tuner.to_text()
    assert tuner.trial.row["needed_later_loss"] < 1
