"""A tuner: a slider for each numeric setting of rules; the replay is drawn again as they move."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from ctxkit.errors import CtxkitError
from ctxkit.markup import line
from ctxkit.widgets import dials
from ctxkit.widgets.copier import Copier
from ctxkit.widgets.panels import noted
from ctxkit.widgets.settings import written
from ctxkit.widgets.trials import average_summary

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.widgets.knobs import Knob, Knobs
    from ctxkit.widgets.settings import Written
    from ctxkit.widgets.trials import Trial, Trials

_SMOOTH = 0.15
"""Seconds that a step may take to be drawn while a slider moves; where it takes longer, when it comes to rest."""
_FEW = 6
"""With more knobs than this their box scrolls."""


class Tuner(w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.tune` returns; `settings` are the values of its sliders, and can be set.

    While a slider moves, each summary is taken to have the size that summaries had at the beginning, and to say
    nothing; with `exact` they are written, and what is lost is worked out for rules that prune each call too. Front
    ends without widgets get text and HTML.

    Args:
        trials: the session.
        knobs: the settings, and how rules are made of them.
    """

    def __init__(self, trials: Trials, knobs: Knobs) -> None:
        self.trials, self.knobs, self._error = trials, knobs, ""
        begun = trials.at(knobs.make({}))
        self._quick = trials.quick_loss(begun)
        self.begun = self._trial = begun.with_loss(self._quick)
        self._summary = average_summary(self.begun)
        self._losses: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.sliders = {k.name: _slider(k) for k in knobs.every}
        self.exact = w.ToggleButton(
            value=False, description="exact, with loss", tooltip="Write the summaries and work out what was lost"
        )
        self.back = w.Button(description="as begun", tooltip="Turn all settings back")
        self.copier = Copier()
        wide = w.Layout(width="auto")
        self.when = w.HTML(dials.when_to_compact(*trials.when), layout=wide)
        self.growth, self.figures, self.steps = w.HTML(layout=wide), w.HTML(layout=wide), w.HTML(layout=wide)
        super().__init__(self._arranged(), layout=w.Layout(width="100%"))
        self._time_a_step()
        for slider in self.sliders.values():
            slider.observe(self._moved, "value")
        self.exact.observe(self._moved, "value")
        self.back.on_click(lambda _: self._turned_back())
        self._moved()

    def _arranged(self) -> list[w.Widget]:
        many = len(self.sliders) > _FEW
        grid = w.Layout(grid_template_columns="repeat(auto-fill, minmax(380px, 1fr))", flex="0 0 auto")
        grid.max_height, grid.overflow = ("170px", "hidden auto") if many else (None, None)
        box = w.GridBox(list(self.sliders.values()), layout=grid)
        return [box, w.HBox([self.exact, self.back]), self.growth, self.figures, self.steps, self.copier, self.when]

    def _time_a_step(self) -> None:
        """Follow the sliders while they move only where a step is quick enough for it."""
        started = time.perf_counter()
        self.trials.quick_loss(self.trials.at(self.knobs.make({}), self._summary))
        quick = time.perf_counter() - started < _SMOOTH
        for slider in self.sliders.values():
            slider.continuous_update = quick

    @property
    def settings(self) -> dict[str, float]:
        """The values of the sliders, by the names of the settings."""
        return {name: slider.value for name, slider in self.sliders.items()}

    @settings.setter
    def settings(self, values: dict[str, float]) -> None:
        with self.hold_trait_notifications():
            for name, value in values.items():
                self.sliders[name].value = value

    @property
    def turned(self) -> dict[str, float]:
        """The settings that are not as they were."""
        return {k.name: self.settings[k.name] for k in self.knobs.every if self.settings[k.name] != k.value}

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
        self.settings = {k.name: k.value for k in self.knobs.every}

    def _moved(self, _: Any = None) -> None:
        """Try the settings and draw; settings that cannot work leave the picture and say why."""
        exact, turned = self.exact.value, self.turned
        try:
            if turned or exact:
                trial = self.trials.at(self.rules, None if exact else self._summary)
                trial = trial.with_loss(self.trials.loss(trial) if exact else self.trials.quick_loss(trial))
            else:
                trial = self.begun
            self._trial, self._error = trial, ""
        except CtxkitError as error:
            self._error = str(error)
        self._draw()
        if self._error:
            self.copier.note = "These settings cannot work: what is copied are the last ones that could."
        else:
            self.copier.label, self.copier.text, self.copier.note = self.written

    @property
    def written(self) -> Written:
        """The settings in the system's own config syntax, else in Python: what the button copies."""
        return written(self.rules, self.knobs.label, self.settings)

    def _draw(self) -> None:
        rough = bool(self.turned) and not self.exact.value and self._trial.wrote
        told = f"Each summary is taken to have {self._summary:,} tokens"
        worst = " and to say nothing, so what is lost is the most that it can be" if self._quick else ""
        note = f"{told}{worst}; `exact` writes them." if rough else ""
        self.growth.value = dials.growth(self.trials.prompts, self._trial, self._error)
        told = noted(self.trials.session.notes)
        self.figures.value = dials.figures(self._rows(), note) + told
        self.steps.value = dials.steps(self._trial)

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Return the figures of the record, of the beginning and of now; with `exact` all have their loss."""
        recorded, begun = self.trials.recorded, self.begun.row
        if self.exact.value or self._quick:
            self._losses = self._losses or (self.trials.loss_of_record, self._quick or self.trials.loss(self.begun))
            recorded, begun = recorded | self._losses[0], begun | self._losses[1]
        return {"recorded": recorded, "as begun": begun, "now": self._trial.row}

    def to_text(self) -> str:
        """Return what is shown as text: the settings, the figures, the compactions."""
        settings = ", ".join(f"{name}={value:,g}" for name, value in self.settings.items())
        head = [f"{self.knobs.label}: {settings}", *([f"These cannot work: {self._error}"] if self._error else [])]
        notes = [f"Note: {line(n, 400)}" for n in self.trials.session.notes]
        return "\n".join([*head, *dials.twin(self._rows()), dials.told(self._trial), *notes])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return f"{self.growth.value}{self.figures.value}{self.steps.value}{self.when.value}"

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return {**bundle, "text/plain": self.to_text(), "text/html": self.to_html()}


def _slider(knob: Knob) -> w.Widget:
    """Return a slider that the keyboard moves too."""
    common: dict[str, Any] = {
        "value": knob.value, "min": knob.low, "max": knob.high, "step": knob.step,
        "description": knob.name.replace("_", " "), "style": {"description_width": "190px"},
        "layout": w.Layout(width="auto"),
    }  # fmt: skip
    if knob.whole:  # a browser moves a value that is no whole number of steps from the lower end
        common["min"] = knob.low + (knob.value - knob.low) % knob.step
        return w.IntSlider(readout_format=",d", **common)
    return w.FloatSlider(readout_format=".2f", **common)
