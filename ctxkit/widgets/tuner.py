"""A tuner: a slider for each numeric setting of rules; the replay is drawn again as they move."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from ctxkit.display.markup import line, noted
from ctxkit.errors import CtxkitError
from ctxkit.presets.preset_names import names
from ctxkit.widgets import dials
from ctxkit.widgets.byhand.budgeted import BudgetChart
from ctxkit.widgets.byhand.feeds import Feed
from ctxkit.widgets.byhand.thrashed import ThrashChart
from ctxkit.widgets.copier import Copier
from ctxkit.widgets.effects import effects
from ctxkit.widgets.from_here import FromHere
from ctxkit.widgets.knobs import with_none
from ctxkit.widgets.setting_controls import arranged, slider, toggle
from ctxkit.widgets.settings import written
from ctxkit.widgets.trials import Trials, average_summary
from ctxkit.widgets.twins import Twins

if TYPE_CHECKING:
    from ctxkit.agent.events import LiveEvent
    from ctxkit.agent.live import LiveSession
    from ctxkit.policies.rules import Rules
    from ctxkit.widgets.knobs import Knobs
    from ctxkit.widgets.settings import SettingText
    from ctxkit.widgets.trials import Trial

_SMOOTH = 0.15
"""Seconds that a step may take to be drawn while a slider moves; where it takes longer, when it
comes to rest.
"""


class Tuner(Twins, w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.tune` returns; `settings` are the values of its sliders, and can be
    set.

    While a slider moves, each summary is taken to have the size that summaries had at the
    beginning, and to say nothing; with `exact` they are written, and what is lost is worked out for
    rules that prune each call too. Front ends without widgets get text and HTML.

    Args:
        trials: the session.
        knobs: the settings, and how rules are made of them.
        live: the live session that is tried; it is tried anew after each turn, and a button leads
            it by the settings from its next call on.
    """

    def __init__(self, trials: Trials, knobs: Knobs, live: LiveSession | None = None) -> None:
        self.trials, self.knobs, self._error, self.live = trials, knobs, "", live
        self._begin()
        self._trial = self.begun
        self._summary = average_summary(self.begun)
        self.effects = effects(trials, knobs, self._summary)
        turned = {k.name: slider(k) for k in knobs.every} | {
            c.name: toggle(c) for c in knobs.choices
        }
        self.sliders = {e.name: turned[e.name] for e in self.effects}
        """The controls, those that matter first."""
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
        self.from_here = None if live is None else FromHere(live, lambda: self.words)
        self.copier = Copier()
        wide = w.Layout(width="auto")
        self.when = w.HTML(dials.when_to_compact(*trials.when), layout=wide)
        self.growth, self.figures, self.steps = (w.HTML(layout=wide) for _ in range(3))
        self.panes = w.Accordion(
            [w.VBox(), w.VBox()], titles=("Budget", "Guard"), selected_index=None
        )
        super().__init__(self._arranged(), layout=w.Layout(width="100%"))
        self._time_a_step()
        for control in self.sliders.values():
            control.observe(self._moved, "value")
        self.exact.observe(self._moved, "value")
        self.panes.observe(lambda _: self._pane(), "selected_index")
        self.back.on_click(lambda _: self._turned_back())
        self.pin.on_click(lambda _: self.pin_now())
        self.swap.on_click(lambda _: self.swap_now())
        if live is not None:
            live.listen(self.hear)
        self._moved()

    def _begin(self) -> None:
        """Try the settings as they were given; nothing is pinned yet."""
        begun = self.trials.at(self.knobs.make({}))
        self._quick = self.trials.quick_loss(begun)
        self.begun = begun.with_loss(self._quick)
        self._losses: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._pinned: tuple[dict[str, Any], Trial] | None = None

    def _arranged(self) -> list[w.Widget]:
        parts = arranged(list(self.sliders.values()), self.effects)
        own = [] if self.from_here is None else [self.from_here]
        buttons = w.HBox([self.exact, self.back, self.pin, self.swap, *own])
        shown = [self.growth, self.figures, self.steps, self.panes, self.copier, self.when]
        return [*parts, buttons, *shown]

    @property
    def words(self) -> str:
        """The settings as `%%agent --rules` takes them; empty where no words name such rules."""
        if self.knobs.label not in names():
            return ""
        told = with_none(self.settings, {knob.name for knob in self.knobs.every if knob.none})
        return f"{self.knobs.label}:{', '.join(f'{n}={v}' for n, v in told.items())}"

    def hear(self, event: LiveEvent) -> None:
        """Try the settings on what a live session has become."""
        if event.kind not in ("turn_end", "cancelled") or self.live is None:
            return
        self.trials, self.swap.disabled = Trials(self.live.session), True
        self._begin()
        self._moved()

    def stop(self) -> None:
        """Follow the live session no more; what is shown stays."""
        if self.live is not None:
            self.live.unlisten(self.hear)

    def pin_now(self) -> None:
        """Keep the settings that stand, to be drawn beside those to come."""
        self._pinned, self.swap.disabled = (self.settings, self._trial), False
        self._draw()

    def swap_now(self) -> None:
        """Change to the pinned settings, and pin those that stood."""
        if self._pinned is not None:
            then, self._pinned = self._pinned[0], (self.settings, self._trial)
            self.settings = then
            self._draw()

    def _pane(self) -> None:
        """Draw the open pane: the budget or the guard of what is tried."""
        at = self.panes.selected_index
        if at is None:
            return
        replay = self.trials.replayed(self._trial)
        given, box = Feed(lambda: [replay]), self.panes.children[at]
        if box.children:
            box.children[0].feed = given
            box.children[0].refresh()
        else:
            box.children = [(BudgetChart, ThrashChart)[at](given)]

    def _time_a_step(self) -> None:
        """Follow the sliders while they move only where a step is quick enough for it."""
        started = time.perf_counter()
        self.trials.quick_loss(self.trials.at(self.knobs.make({}), self._summary))
        quick = time.perf_counter() - started < _SMOOTH
        for knob in self.knobs.every:
            self.sliders[knob.name].continuous_update = quick

    @property
    def settings(self) -> dict[str, Any]:
        """The values of the controls, by the names of the settings."""
        return {k.name: self.sliders[k.name].value for k in self.knobs.all}

    @settings.setter
    def settings(self, values: dict[str, Any]) -> None:
        with self.hold_trait_notifications():
            for name, value in values.items():
                self.sliders[name].value = value

    @property
    def turned(self) -> dict[str, Any]:
        """The settings that are not as they were."""
        now = self.settings
        return {k.name: now[k.name] for k in self.knobs.all if now[k.name] != k.value}

    @property
    def rules(self) -> Rules:
        """The rules as they are set.

        Raises:
            BadArguments: these settings cannot work together.
        """
        return self.knobs.make(self.turned)

    @property
    def trial(self) -> Trial:
        """What is drawn, as plain values."""
        return self._trial

    def _turned_back(self) -> None:
        self.settings = {k.name: k.value for k in self.knobs.all}

    def _moved(self, _: Any = None) -> None:
        """Try the settings and draw; settings that cannot work leave the picture and say why."""
        exact, turned = self.exact.value, self.turned
        try:
            if turned or exact:
                trial = self.trials.at(self.rules, None if exact else self._summary)
                trial = trial.with_loss(
                    self.trials.loss(trial) if exact else self.trials.quick_loss(trial)
                )
            else:
                trial = self.begun
            self._trial, self._error = trial, ""
        except CtxkitError as error:
            self._error = str(error)
        self._draw()
        if self._error:
            self.copier.note = (
                "These settings cannot work: what is copied are the last ones that could."
            )
        else:
            self.copier.label, self.copier.text, self.copier.note = self.written

    @property
    def written(self) -> SettingText:
        """The settings as the system's own config, else in Python: what the button copies."""
        return written(self.rules, self.knobs.label, self.settings)

    def _draw(self) -> None:
        rough = bool(self.turned) and not self.exact.value and self._trial.wrote
        told = f"Each summary is taken to have {self._summary:,} tokens"
        if self._quick:
            told += " and to say nothing, so what is lost is the most that it can be"
        note = f"{told}; `exact` writes them." if rough else ""
        self.growth.value = dials.growth(
            self.trials.prompts, self._trial, self._error, self._pinned[1] if self._pinned else None
        )
        notes = noted(self.trials.session.notes)
        self.figures.value = dials.figures(self._rows(), note) + notes
        self.steps.value = dials.steps(self._trial)
        self._pane()

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Return the figures of the record, of the beginning and of now; with `exact` all have
        their loss.
        """
        recorded, begun = self.trials.recorded, self.begun.row
        if self.exact.value or self._quick:
            self._losses = self._losses or (
                self.trials.loss_of_record,
                self._quick or self.trials.loss(self.begun),
            )
            recorded, begun = recorded | self._losses[0], begun | self._losses[1]
        pinned = {"pinned": self._pinned[1].row} if self._pinned else {}
        return {"recorded": recorded, "as begun": begun, **pinned, "now": self._trial.row}

    def to_text(self) -> str:
        """Return what is shown as text: the settings, the figures, the compactions."""
        settings = ", ".join(f"{n}={_said(v)}" for n, v in self.settings.items())
        head = [f"{self.knobs.label}: {settings}"]
        head += [f"These cannot work: {self._error}"] if self._error else []
        notes = [f"Note: {line(n, 400)}" for n in self.trials.session.notes]
        return "\n".join([*head, *dials.twin(self._rows()), dials.told(self._trial), *notes])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return f"{self.growth.value}{self.figures.value}{self.steps.value}{self.when.value}"


def _said(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:,g}" if number else str(value)
