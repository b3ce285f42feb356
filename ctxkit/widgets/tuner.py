"""`ctxkit.tune`: a slider for each numeric setting, the replay drawn as they move."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import anywidget
import ipywidgets as w
import traitlets as t

from ctxkit._internal.formatting_and_sanitizing import escape_html, render_notes_html, sanitize_line
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.presets.config_key_mapping import get_preset_defaults
from ctxkit.presets.registry_and_setting_checks import names, resolve_rules
from ctxkit.widgets import trial_replays_and_tables
from ctxkit.widgets.anti_thrash_guard_widget import ThrashWidget
from ctxkit.widgets.base_widget import TEXT_COLOUR, StaticOutputsMixin
from ctxkit.widgets.budget_threshold_hits_widget import BudgetWidget
from ctxkit.widgets.data_source import WidgetDataSource
from ctxkit.widgets.trial_replays_and_tables import TrialRunner, compute_mean_summary_tokens
from ctxkit.widgets.tuner_controls import (
    InertSettingNotes,
    fold_controls_with_least_effect,
    make_slider,
    make_toggle,
    measure_setting_effects_on_prompts,
    replace_zeros_with_none,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.turn_state_and_events import LiveEvent
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.widgets.trial_replays_and_tables import Trial
    from ctxkit.widgets.tuner_controls import SettingControls


_SMOOTH = 0.15
"""Seconds that a step may take to be drawn while a slider moves; where it takes longer, when it
comes to rest.
"""


# A trial is a replay, and most of its time goes into writing summaries. While a slider moves,
# `_summary` (the mean size of the first trial's summaries) stands for each of them, and the loss is
# worked out only where `quick_loss` needs no second replay. Only `_on_setting` runs the trial of
# new settings. Where they raise, the last trial that worked stays and `_error` is set.
# `_draw_trial` reads `_trial`, `_error` and `_pinned` and tries no new settings.
class Tuner(StaticOutputsMixin, w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.tune` returns; `settings` are the values of its sliders, and can be
    set.

    While a slider moves, each summary is taken to have the size that summaries had at the
    beginning, and to say nothing; with `exact` they are written, and what is lost is worked out for
    rules that prune each call too. Front ends without widgets get text and HTML.

    Args:
        trials: the session.
        setting_controls: the settings, and how rules are made of them.
        live: the live session that is tried; it is tried again after each turn, and a button leads
            it by the settings from its next call on.
    """

    def __init__(
        self,
        trials: TrialRunner,
        setting_controls: SettingControls,
        live: LiveSession | None = None,
    ) -> None:
        self.trials, self.setting_controls, self._error, self.live = (
            trials,
            setting_controls,
            "",
            live,
        )
        self._start_trial()
        self._trial = self.begun
        self._summary = compute_mean_summary_tokens(self.begun)
        self.effects = measure_setting_effects_on_prompts(trials, setting_controls, self._summary)
        turned = {k.name: make_slider(k) for k in setting_controls.every} | {
            c.name: make_toggle(c) for c in setting_controls.choices
        }
        self.sliders = {e.name: turned[e.name] for e in self.effects}
        """The controls, those that matter first."""
        self.inert_notes = InertSettingNotes(setting_controls.label, setting_controls.all)
        self.exact = w.ToggleButton(
            value=False,
            description="exact, with loss",
            tooltip="Write the summaries and work out what was lost",
        )
        self.back = w.Button(description="as begun", tooltip="Turn all settings back")
        self.pin = w.Button(description="pin", tooltip="Keep these settings beside those to come")
        self.swap = w.Button(
            description="A ⇄ B",
            tooltip="Change to the pinned settings, and pin these",
            disabled=True,
        )
        self.from_here = None if live is None else ApplyToLiveButton(live, lambda: self.words)
        self.copier = CopyTextButton()
        wide = w.Layout(width="auto")
        self.when = w.HTML(
            trial_replays_and_tables.render_trigger_advice(*trials.when), layout=wide
        )
        self.growth, self.figures, self.steps = (w.HTML(layout=wide) for _ in range(3))
        self.panes = w.Accordion(
            [w.VBox(), w.VBox()], titles=("Budget", "Guard"), selected_index=None
        )
        super().__init__(self._arrange_parts(), layout=w.Layout(width="100%"))
        self._time_a_step()
        for control in self.sliders.values():
            control.observe(self._on_setting, "value")
        self.exact.observe(self._on_setting, "value")
        self.panes.observe(lambda _: self._fill_pane(), "selected_index")
        self.back.on_click(lambda _: self._turned_back())
        self.pin.on_click(lambda _: self.pin_now())
        self.swap.on_click(lambda _: self.swap_now())
        if live is not None:
            live.listen(self.hear)
        self._on_setting()

    def _start_trial(self) -> None:
        """Try the settings as they were given; nothing is pinned yet."""
        begun = self.trials.at(self.setting_controls.make({}))
        self._quick = self.trials.quick_loss(begun)
        self.begun = begun.with_loss(self._quick)
        self._losses: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._pinned: tuple[dict[str, Any], Trial] | None = None

    def _arrange_parts(self) -> list[w.Widget]:
        controls = [self.inert_notes.wrap(name, control) for name, control in self.sliders.items()]
        parts = fold_controls_with_least_effect(controls, self.effects)
        live_parts = [] if self.from_here is None else [self.from_here]
        buttons = w.HBox([self.exact, self.back, self.pin, self.swap, *live_parts])
        outputs = [self.growth, self.figures, self.steps, self.panes, self.copier, self.when]
        return [*parts, buttons, *outputs]

    @property
    def words(self) -> str:
        """The settings as `%%agent --rules` takes them; empty where no words name such rules."""
        if self.setting_controls.label not in names():
            return ""
        settings = replace_zeros_with_none(
            self.settings, {control.name for control in self.setting_controls.every if control.none}
        )
        return f"{self.setting_controls.label}:{', '.join(f'{n}={v}' for n, v in settings.items())}"

    def hear(self, event: LiveEvent) -> None:
        """Try the settings again when a turn of the live session has ended."""
        if event.kind not in ("turn_end", "cancelled") or self.live is None:
            return
        # The record has grown: the log, sizes and prices that the old runner holds are out of date.
        self.trials, self.swap.disabled = TrialRunner(self.live.session), True
        self._start_trial()
        self._on_setting()

    def stop(self) -> None:
        """Follow the live session no more; what is shown stays."""
        if self.live is not None:
            self.live.unlisten(self.hear)

    def pin_now(self) -> None:
        """Keep the settings that stand, to be drawn beside those to come."""
        self._pinned, self.swap.disabled = (self.settings, self._trial), False
        self._draw_trial()

    def swap_now(self) -> None:
        """Change to the pinned settings, and pin those that stood."""
        if self._pinned is not None:
            then, self._pinned = self._pinned[0], (self.settings, self._trial)
            self.settings = then
            self._draw_trial()

    def _fill_pane(self) -> None:
        """Draw the open pane: the budget or the guard of what is tried."""
        at = self.panes.selected_index
        if at is None:
            return
        replay = self.trials.replayed(self._trial)
        source, box = WidgetDataSource(lambda: [replay]), self.panes.children[at]
        if box.children:
            box.children[0].feed = source
            box.children[0].refresh()
        else:
            box.children = [(BudgetWidget, ThrashWidget)[at](source)]

    def _time_a_step(self) -> None:
        """Follow the sliders while they move only where a step is quick enough for it."""
        # An earlier trial has filled the caches, so this measures the cost of one step.
        started = time.perf_counter()
        self.trials.quick_loss(self.trials.at(self.setting_controls.make({}), self._summary))
        quick = time.perf_counter() - started < _SMOOTH
        for control in self.setting_controls.every:
            self.sliders[control.name].continuous_update = quick

    @property
    def settings(self) -> dict[str, Any]:
        """The values of the controls, by the names of the settings."""
        return {k.name: self.sliders[k.name].value for k in self.setting_controls.all}

    @settings.setter
    def settings(self, values: dict[str, Any]) -> None:
        with self.hold_trait_notifications():
            for name, value in values.items():
                self.sliders[name].value = value

    @property
    def turned(self) -> dict[str, Any]:
        """The settings that are not as they were."""
        now = self.settings
        return {k.name: now[k.name] for k in self.setting_controls.all if now[k.name] != k.value}

    @property
    def rules(self) -> Rules:
        """The rules as they are set.

        Raises:
            BadArguments: these settings cannot work together.
        """
        return self.setting_controls.make(self.turned)

    @property
    def trial(self) -> Trial:
        """The drawn trial."""
        return self._trial

    def _turned_back(self) -> None:
        self.settings = {k.name: k.value for k in self.setting_controls.all}

    def _on_setting(self, _: Any = None) -> None:
        """Try the settings and draw; settings that cannot work leave the picture and say why."""
        exact, turned = self.exact.value, self.turned
        try:
            if turned or exact:
                trial = self.trials.at(self.rules, None if exact else self._summary)
                loss = self.trials.loss(trial) if exact else self.trials.quick_loss(trial)
                is_bound = bool(loss) and not exact and trial.wrote
                trial = trial.with_loss({**loss, trial_replays_and_tables.LOSS_IS_BOUND: is_bound})
            else:
                trial = self.begun
            self._trial, self._error = trial, ""
        except CtxkitError as error:
            self._error = str(error)
        self._draw_trial()
        if self._error:
            self.copier.note = (
                "These settings cannot work: what is copied are the last ones that could."
            )
        else:
            self.copier.label, self.copier.text, self.copier.note = self.written

    @property
    def written(self) -> RulesConfigText:
        """The settings as the system's own config, else in Python: the text that the button copies."""
        return format_rules_as_config(self.rules, self.setting_controls.label, self.settings)

    def _draw_trial(self) -> None:
        # Figures are rough where a setting was turned and summaries have an assumed size.
        rough = bool(self.turned) and not self.exact.value and self._trial.wrote
        sentence = f"Each summary is taken to have {self._summary:,} tokens"
        if self._quick:
            sentence += " and to say nothing, so what is lost is the most that it can be"
        note = f"{sentence}; `exact` writes them." if rough else ""
        if not self._error:
            self.inert_notes.update(self.rules.parameters)
        rows = self._figure_rows()
        chart = trial_replays_and_tables.render_trial_growth_chart(
            self.trials.prompts, self._trial, self._error, self._pinned[1] if self._pinned else None
        )
        self.growth.value = (
            trial_replays_and_tables.render_trial_verdict(self._describe_verdict(rows)) + chart
        )
        notes = render_notes_html(self.trials.session.notes)
        self.figures.value = trial_replays_and_tables.render_trial_figures(rows, note) + notes
        self.steps.value = trial_replays_and_tables.render_trial_compaction_savings(self._trial)
        self._fill_pane()

    def _figure_rows(self) -> dict[str, dict[str, Any]]:
        """Return the figures of the record, of now and, where a setting was turned, of the
        beginning; with `exact` all have their loss.
        """
        recorded, begun = self.trials.recorded, self.begun.row
        if self.exact.value or self._quick:
            self._losses = self._losses or (
                self.trials.loss_of_record,
                self._quick or self.trials.loss(self.begun),
            )
            recorded, begun = recorded | self._losses[0], begun | self._losses[1]
        pinned = {"pinned": self._pinned[1].row} if self._pinned else {}
        start = {"as begun": begun} if self.turned or self._pinned else {}
        now = self._trial.row if start else self._trial.row | begun
        return {"recorded": recorded, **start, **pinned, "now": now}

    def _describe_verdict(self, rows: dict[str, dict[str, Any]]) -> str:
        label = self.setting_controls.label
        return trial_replays_and_tables.describe_trial_verdict(label, rows["recorded"], rows["now"])

    def to_text(self) -> str:
        """Return what is shown as text: the verdict, the settings, the figures, the compactions."""
        rows = self._figure_rows()
        notes = [f"Note: {sanitize_line(n, 400)}" for n in self.trials.session.notes]
        return "\n".join(
            [
                self._describe_verdict(rows),
                *self._describe_settings(),
                *trial_replays_and_tables.format_trial_figures(rows),
                trial_replays_and_tables.describe_trial_compaction_savings(self._trial),
                *notes,
            ]
        )

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        settings = "".join(
            f'<div style="color:{TEXT_COLOUR}">{escape_html(line, 1_000)}</div>'
            for line in self._describe_settings()
        )
        views = (self.figures, self.steps, self.when)
        return f"{self.growth.value}{settings}{''.join(view.value for view in views)}"

    def _describe_settings(self) -> list[str]:
        """Return the settings that are shown, and what is wrong or without effect in them."""
        settings = ", ".join(f"{n}={_setting_text(v)}" for n, v in self.settings.items())
        lines = [f"{self.setting_controls.label}: {settings}"]
        lines += [f"These cannot work: {self._error}"] if self._error else []
        idle = self.inert_notes.list_names()
        return lines + ([f"No effect, as the others stand: {', '.join(idle)}."] if idle else [])


def _setting_text(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:,g}" if number else str(value)


class ApplyToLiveButton(w.HBox):  # type: ignore[misc]
    """A button "from here on", and what it did.

    Args:
        live: the session that is led.
        words: returns the settings as `%%agent --rules` takes them; empty: no words name them.
    """

    def __init__(self, live: LiveSession, words: Callable[[], str]) -> None:
        self._live, self._words = live, words
        self.button = w.Button(
            description="from here on",
            tooltip="Lead the live session by these settings from its next call on",
        )
        self.message = w.HTML(layout=w.Layout(width="auto"))
        super().__init__([self.button, self.message])
        self.button.on_click(lambda _: self.lead())

    def lead(self) -> None:
        """Lead the session by the settings from its next call on."""
        try:
            words = self._words()
            if not words:
                raise BadArguments("No words name these rules: open the session with them instead.")
            self._live.use_rules(resolve_rules(words), words)
            message = f"From call {len(self._live.session.calls):,} on: {words}"
        except CtxkitError as error:
            message = str(error)
        self.message.value = f"<small>{escape_html(message, 400)}</small>"


class RulesConfigText(NamedTuple):
    """A setting as text."""

    label: str
    """Label of the button that copies the text."""
    text: str
    note: str
    """Settings that the text cannot express, or why it is not the system's own config; else empty.
    """


def format_rules_as_config(rules: Rules, label: str, values: Mapping[str, Any]) -> RulesConfigText:
    """Return rules in their own system's config syntax, or as the Python call that makes them.

    Args:
        rules: the rules.
        label: the name of the preset, of the function that made them, or their own.
        values: the settings that can be turned.
    """
    if rules.config is None:
        return _python_settings(rules, label, values, "ctxkit knows no config file for these rules")
    try:
        # Warnings name what the config cannot express; they become the note.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            text = rules.to_config()
    except CtxkitError as error:
        return _python_settings(rules, label, values, str(error).rstrip("."))
    return RulesConfigText(
        f"Copy as {label}'s config", text, " ".join(str(w.message) for w in caught)
    )


def _python_settings(
    rules: Rules, label: str, values: Mapping[str, Any], why: str
) -> RulesConfigText:
    name, what = label, "this is the call that makes these rules"
    if rules.name in names():
        usual = get_preset_defaults(rules.name)
        name = f"ctxkit.presets.{rules.name}"
        values = {k: v for k, v in rules.parameters.items() if v != usual.get(k)}
    elif label == rules.label:
        name, what = "dict", "these are the settings of their parts"
    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in values.items())})\n"
    return RulesConfigText("Copy as Python", text, f"{why}: {what}.")


_ESM = """
async function copied(area) {
  try { await navigator.clipboard.writeText(area.value); return true; } catch { /* no permission, or plain http */ }
  area.focus(); area.select();
  try { return document.execCommand("copy"); } catch { return false; }
}
export default { render({ model, el }) {
  const row = document.createElement("div"), button = document.createElement("button");
  const said = document.createElement("span"), note = document.createElement("div");
  const area = document.createElement("textarea");
  button.type = "button"; button.className = "jupyter-button widget-button lm-Widget"; button.style.width = "auto";
  said.setAttribute("role", "status"); said.style.marginLeft = "8px";
  note.style.cssText = "color:var(--jp-ui-font-color2, #666);font-size:12px;line-height:1.4";
  area.readOnly = true; area.hidden = true; area.spellcheck = false;
  area.style.cssText = "width:100%;box-sizing:border-box;font-family:var(--jp-code-font-family,monospace);" +
    "font-size:12px;color:inherit;background:var(--jp-layout-color2,transparent)";
  const draw = () => {
    button.textContent = model.get("label"); button.title = "Show it, and copy it to the clipboard";
    area.value = model.get("text"); area.rows = Math.min(area.value.split("\\n").length, 16);
    area.setAttribute("aria-label", model.get("label")); note.textContent = model.get("note"); said.textContent = "";
  };
  button.addEventListener("click", async () => {
    area.hidden = false;
    said.textContent = await copied(area) ? "copied" : "select it and copy it by hand";
  });
  for (const name of ["text", "label", "note"]) model.on("change:" + name, draw);
  row.append(button, said); el.append(row, note, area); draw();
} };
"""


class CopyTextButton(anywidget.AnyWidget):  # type: ignore[misc]
    """A button and the text that it copies; the text is shown when the button is first pressed."""

    _esm = _ESM
    text = t.Unicode("").tag(sync=True)
    label = t.Unicode("").tag(sync=True)
    """Label of the button."""
    note = t.Unicode("").tag(sync=True)
    """Note on the text."""
