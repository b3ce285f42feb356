"""The settings of rules as controls: ranges, controls, and which of them matter."""

from __future__ import annotations

import re
import time
from ast import literal_eval
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from math import floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as w
import numpy as np

from ctxkit import presets
from ctxkit._internal.formatting_and_sanitizing import escape_html
from ctxkit.engine.replay import find_context_window
from ctxkit.errors import BadArguments, CtxkitError, UnknownName, did_you_mean
from ctxkit.policies.compaction_and_pruning_rules import Rules, unwrap_function
from ctxkit.presets.inert_settings import INERT_SETTINGS, find_inert_setting
from ctxkit.presets.registry_and_setting_checks import names, preset, resolve_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.session import Session
    from ctxkit.widgets.trial_replays_and_tables import Trial, TrialRunner


_SMALL = 50
"""Up to here a whole number is turned by ones."""

_FIXED_SETTINGS = ("auto", "config", "counter", "cache_life", "flush", "on_compacted")
"""What a config file or a user sets beside a preset's parameters: it stays as it is while they are
turned.
"""


class SettingControl(NamedTuple):
    """One numeric setting and its range."""

    name: str
    value: float
    low: float
    high: float
    step: float
    none: bool = False
    """True where 0 stands for None: off, or left to the system."""

    @property
    def whole(self) -> bool:
        """True for counts and tokens, False for shares and seconds."""
        return isinstance(self.value, int) and isinstance(self.step, int)


class ChoiceControl(NamedTuple):
    """A switch, or a setting with a few words for values."""

    name: str
    value: str | bool
    options: tuple[str | bool, ...]


class SettingControls(NamedTuple):
    """The settings of rules as controls, and the rules for any values of them."""

    label: str
    every: tuple[SettingControl, ...]
    make: Callable[[Mapping[str, Any]], Rules]
    """Takes the settings that were turned; raises BadArguments where they cannot work."""
    choices: tuple[ChoiceControl, ...] = ()

    @property
    def all(self) -> tuple[SettingControl | ChoiceControl, ...]:
        """The numbers, then the switches and choices."""
        return self.every + self.choices


def make_setting_controls(
    rules: RulesLike, session: Session, ranges: Mapping[str, tuple[float, ...]]
) -> SettingControls:
    """Return the settings of a preset, of rules, or of a function that makes rules, as controls.

    Args:
        rules: name of a preset, rules, or a function that makes rules from numbers.
        session: the session on which they are tried; it gives the ranges of sizes in tokens.
        ranges: by setting, its smallest and largest value, and optionally the step.

    Raises:
        BadArguments: there is no numeric setting, or a range is none.
        UnknownName: a name means nothing, or a range is for a setting that does not exist.
    """
    rules = resolve_rules(rules) if isinstance(rules, str) else rules
    fixed = _fixed_settings(rules) if isinstance(rules, Rules) else None
    label, values, make = _numeric_settings(rules, session, fixed)
    choices, absent = _find_choices(rules, of_preset=fixed is not None)
    for name in ranges:
        if name not in values and name not in absent:
            raise UnknownName(
                f"{label} has no numeric setting {name!r}; it has {', '.join(values)}."
                f"{did_you_mean(name, values)}"
            )
    if not values:
        raise BadArguments(
            f"{label} has no numeric setting to turn; write a function that makes rules from"
            " numbers."
        )
    window = find_context_window(session) or 200_000
    none = [n for n in absent if n not in values]

    def control(name: str, value: float) -> SettingControl:
        has_range = name in ranges
        slider = (
            _custom_range(name, value, ranges[name])
            if has_range
            else _default_range(name, value, window)
        )
        return slider._replace(none=name in none)

    every = tuple(control(n, v) for n, v in (values | dict.fromkeys(none, 0)).items())
    return SettingControls(
        label, every, lambda turned: make(replace_zeros_with_none(turned, none)), choices
    )


def replace_zeros_with_none(
    values: Mapping[str, Any], nullable_names: Collection[str]
) -> dict[str, Any]:
    """Return settings in which a 0 that turns a setting off is None.

    Args:
        values: settings by name.
        nullable_names: settings that a 0 turns off.
    """
    return {n: None if n in nullable_names and not v else v for n, v in values.items()}


def _is_rules_function(rules: Any) -> bool:
    return not isinstance(rules, Rules) and callable(rules) and not is_dataclass(rules)


def _default_settings(rules: Callable[..., Any]) -> dict[str, Any]:
    return {n: p.default for n, p in signature(rules).parameters.items()}


def _find_choices(rules: Any, *, of_preset: bool) -> tuple[tuple[ChoiceControl, ...], list[str]]:
    """Return the switches and choices of a preset or a function, and the whole numbers that are
    None.
    """
    if of_preset:
        values, factory = dict(rules.parameters), getattr(presets, rules.name)
    elif _is_rules_function(rules):
        values, factory = _default_settings(rules), rules
    else:
        return (), []
    annotations = {n: str(p.annotation) for n, p in signature(factory).parameters.items()}
    choices = []
    for name, value in values.items():
        words = re.search(r"Literal\[(.*?)\]", annotations.get(name, ""))
        if isinstance(value, bool) and name != "quirks":  # how a program errs is no setting of it
            choices.append(ChoiceControl(name, value, (False, True)))
        elif isinstance(value, str) and words:
            choices.append(ChoiceControl(name, value, literal_eval(f"({words[1]},)")))
    # None with an annotation of whole numbers means off; the slider has 0 for it.
    absent = [
        n
        for n, v in values.items()
        if v is None and re.search(r"(^|\| )(int|Natural|Positive)\b", annotations.get(n, ""))
    ]
    return tuple(choices), absent


# Three kinds of rules give three kinds of controls. Rules of a preset: the preset's numeric
# parameters; `make` calls the preset again and puts the fixed settings back. A function that
# returns rules: its numeric defaults; `make` calls it. All other rules: the numeric fields of
# policy, trigger and guards; `make` replaces these fields and leaves the rest as it is.
def _numeric_settings(
    rules: Any, session: Session, fixed: dict[str, Any] | None
) -> tuple[str, dict[str, float], Callable[[Mapping[str, float]], Rules]]:
    if fixed is not None:
        parameters = dict(rules.parameters)
        numbers = {n: v for n, v in parameters.items() if _is_number(v)}
        if "context_window" in parameters:
            numbers["context_window"] = (
                parameters["context_window"] or find_context_window(session) or 200_000
            )
        return (
            rules.name,
            numbers,
            lambda turned: preset(rules.name, **{**parameters, **turned}).but(**fixed),
        )
    if _is_rules_function(rules):
        defaults = _default_settings(rules)
        numbers = {n: v for n, v in defaults.items() if _is_number(v)}
        if numbers or not defaults:
            label = getattr(rules, "__name__", "rules")
            return label, numbers, lambda turned: resolve_rules(rules(**{**numbers, **turned}))
    resolved = resolve_rules(rules)
    places = _part_settings(resolved)
    return (
        resolved.label,
        {n: value for n, (_, value) in places.items()},
        lambda turned: _with_settings(resolved, places, turned),
    )


def _fixed_settings(rules: Rules) -> dict[str, Any] | None:
    """Return what rules have besides their preset's parameters; None where they are of none, or a
    parameter would no longer reach them.
    """
    if rules.name not in names() or not rules.parameters:
        return None
    # If the preset's rules with the fixed settings still differ, a part was changed otherwise.
    factory_rules = preset(rules.name, **rules.parameters)
    beside = {
        n: getattr(rules, n)
        for n in _FIXED_SETTINGS
        if getattr(rules, n) != getattr(factory_rules, n)
    }
    return (
        beside
        if replace(factory_rules, **beside) == replace(rules, parameters=factory_rules.parameters)
        else None
    )


def _part_settings(rules: Rules) -> dict[str, tuple[tuple[str, int, str], float]]:
    """Return the numeric settings of the policy, the trigger and the guards: name -> (part, number,
    field), value.
    """
    parts: list[tuple[str, int, Any]] = [
        ("policy", 0, unwrap_function(rules.policy)),
        ("trigger", 0, unwrap_function(rules.trigger)),
        *(("guards", i, guard) for i, guard in enumerate(rules.guards)),
    ]
    out: dict[str, tuple[tuple[str, int, str], float]] = {}
    for part, i, value in parts:
        for f in fields(value) if is_dataclass(value) else ():
            if _is_number(getattr(value, f.name)):
                # Where two parts have a field of one name, the second gets its part as prefix.
                name = f.name if f.name not in out else f"{part}_{f.name}"
                out[name] = ((part, i, f.name), getattr(value, f.name))
    return out


def _with_settings(
    rules: Rules,
    places: Mapping[str, tuple[tuple[str, int, str], float]],
    turned: Mapping[str, float],
) -> Rules:
    parts: dict[str, Any] = {
        "policy": unwrap_function(rules.policy),
        "trigger": unwrap_function(rules.trigger),
    }
    parts["guards"] = list(rules.guards)
    for name, value in turned.items():
        part, i, field = places[name][0]
        if part == "guards":
            parts[part][i] = replace(parts[part][i], **{field: value})
        else:
            parts[part] = replace(parts[part], **{field: value})
    return rules.but(**parts)


def _default_range(name: str, value: float, window: int) -> SettingControl:
    """Return a span around a value: a share within 0 and 1, small counts by ones, the rest up to
    four times as much.

    A size that is off (0) goes up to the window, a budget of many calls up to fifty windows.
    """
    whole = isinstance(value, int)
    if value == 0 and whole and re.search(r"tokens|chars|_limit|_at$", name):
        # A limit `_at` adds up many calls; a token has about four characters.
        high = window * (50 if name.endswith("_at") else 4 if "chars" in name else 1)
        return SettingControl(name, value, 0, high, max(int(_round_step(high / 100)), 1))
    if not whole and 0 <= value <= 1:
        return SettingControl(name, value, 0.0, 1.0, 0.01)
    if not whole:
        return SettingControl(name, value, 0.0, 4 * value, _round_step(value / 20))
    if value <= _SMALL:
        return SettingControl(name, value, 0, max(4 * value, 20), 1)
    step = int(_round_step(value / 20))
    # The lower end is one step instead of 0 where the value is above one step.
    return SettingControl(name, value, step if value > step else 0, 4 * value, max(step, 1))


def _custom_range(name: str, value: float, span: tuple[float, ...]) -> SettingControl:
    ends: Any = span
    sound = isinstance(ends, (tuple, list)) and len(ends) in (2, 3)
    if not sound or not all(map(_is_number, ends)):
        raise BadArguments(
            f"A range is two ends and maybe a step, such as {name}=(1_000, 20_000, 500); not"
            f" {span!r}."
        )
    low, high = span[0], span[1]
    whole = isinstance(value, int) and isinstance(low, int) and isinstance(high, int)
    step = (high - low) / 100
    if whole:
        step = max(int(_round_step(step)), 1)
    if len(span) > 2:
        step = span[2]
    if not low < high or not step > 0:
        raise BadArguments(f"The range {span!r} of {name} has nothing between its ends.")
    return SettingControl(name, min(max(value, low), high), low, high, step)


def _round_step(value: float) -> float:
    """Return the power of ten times 1, 2 or 5 that is at or below a value."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(value))
    # The tolerance accepts a value that floating point puts just below the step.
    return next(s * unit for s in (5, 2, 1) if s * unit <= value * (1 + 1e-9))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_FEW = 6
"""With more settings than this the others are folded away."""


def fold_controls_with_least_effect(
    controls: Sequence[w.Widget], effects: Sequence[SettingEffectOnPrompt]
) -> list[w.Widget]:
    """Return controls in a grid; of many, those that change least are folded away, with the reason.

    Args:
        controls: the controls, those with the largest effect first.
        effects: the effect of each setting, in the same order.
    """
    grid = w.Layout(grid_template_columns="repeat(auto-fill, minmax(380px, 1fr))", flex="0 0 auto")
    first = len(controls)
    if first > _FEW:
        # None (unknown) counts as an effect: only settings known to change nothing are folded away.
        first = min(_FEW, sum(e.tokens != 0 for e in effects)) or _FEW
    parts: list[w.Widget] = [w.GridBox(controls[:first], layout=grid)]
    inert = ", ".join(e.name for e in effects[:first] if e.tokens == 0)
    if inert:
        parts.append(w.HTML(f"<small>These change nothing in this replay: {inert}.</small>"))
    if len(controls) > first:
        names = ", ".join(e.name for e in effects[first:] if e.tokens == 0)
        why = (
            f"Neither end of their ranges changes this replay, as the others stand: {names}."
            if names
            else "They change this replay less than those above."
        )
        rest = w.VBox([w.HTML(why), w.GridBox(controls[first:], layout=grid)])
        titles = (f"{len(controls) - first} more settings",)
        parts.append(w.Accordion([rest], titles=titles, selected_index=None))
    return parts


def make_toggle(choice: ChoiceControl) -> w.Widget:
    """Return a switch, or a row of buttons for a few words; a list where they are many."""
    label = choice.name.replace("_", " ")
    if isinstance(choice.value, bool):
        return w.Checkbox(value=choice.value, description=label, indent=False)
    kind = w.ToggleButtons if len(choice.options) <= _FEW else w.Dropdown
    toggle = kind(options=choice.options, value=choice.value, description=label)
    toggle.style.description_width = "190px"
    if kind is w.ToggleButtons:
        toggle.style.button_width = "auto"
    return toggle


def make_slider(control: SettingControl) -> w.Widget:
    """Return a slider that the keyboard moves too."""
    common: dict[str, Any] = {
        "value": control.value,
        "min": control.low,
        "max": control.high,
        "step": control.step,
        "description": control.name.replace("_", " ") + " (0: none)" * control.none,
        "style": {"description_width": "190px"},
        "layout": w.Layout(width="auto"),
    }
    if control.whole:  # a browser moves a value that is no whole number of steps from the lower end
        common["min"] = control.low + (control.value - control.low) % control.step
        return w.IntSlider(readout_format=",d", **common)
    return w.FloatSlider(readout_format=".2f", **common)


class InertSettingNotes:
    """The notes beside controls whose settings change nothing as the others stand.

    Args:
        label: name of the preset; any other rules have no notes.
        setting_controls: the numbers and choices.
    """

    def __init__(
        self, label: str, setting_controls: Sequence[SettingControl | ChoiceControl]
    ) -> None:
        declared = {n for r in INERT_SETTINGS.get(label, ()) for n in r.settings}
        self._label, self._setting_controls = (
            label,
            [k for k in setting_controls if k.name in declared],
        )
        self.notes = {
            k.name: w.HTML(layout=w.Layout(margin="0 0 0 200px")) for k in self._setting_controls
        }
        """By setting; empty where it has an effect."""

    def wrap(self, name: str, control: w.Widget) -> w.Widget:
        """Return a control with its note below, where it can have one.

        Args:
            name: name of the setting.
            control: its control.
        """
        note = self.notes.get(name)
        return control if note is None else w.VBox([control, note])

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Say which settings have no effect under all parameters of the preset.

        A number has none where a step to neither side makes other rules.
        """
        for control in self._setting_controls:
            value = parameters.get(control.name)
            others = (
                control.options
                if isinstance(control, ChoiceControl)
                else _step_values(control, value)
            )
            reason = find_inert_setting(self._label, parameters, control.name, others)
            text = "" if reason is None else f"no effect, {reason.describe()}"
            note = f"<small>{escape_html(text, 200)}</small>" if text else ""
            self.notes[control.name].value = note

    def list_names(self) -> list[str]:
        """Return the settings that have no effect now."""
        return [name for name, note in self.notes.items() if note.value]


def _step_values(control: SettingControl, value: Any) -> list[float]:
    at = control.low if value is None else value
    return [n for n in (at - control.step, at + control.step) if control.low <= n <= control.high]


EFFECT_SECONDS = 1.2
"""Time limit of all trials in CPU seconds; the effect of settings beyond it is unknown."""


class SettingEffectOnPrompt(NamedTuple):
    """The largest effect of one setting."""

    name: str
    tokens: float | None
    """Largest mean change of a prompt's tokens at its ends; None: none was seen, and not all were
    tried.
    """


# One-at-a-time sensitivity analysis. Each setting goes to each end of its range (a choice: to each
# other option) while the others keep their values; its effect is the largest mean absolute change
# of a prompt. Each try is a replay, so the sum of processor time is bounded: choices first, then
# one end of each number, then the other end. `left` counts the tries that were not made; a setting
# without effect and with tries left is unknown (None), not 0. Interactions are not seen.
def measure_setting_effects_on_prompts(
    trials: TrialRunner, setting_controls: SettingControls, summary_tokens: int
) -> list[SettingEffectOnPrompt]:
    """Return the effect of each setting, the largest first, then unknown ones, then none.

    Each setting is tried at both ends of its range, for at most `EFFECT_SECONDS` of processor time.

    Args:
        trials: runs the session under settings.
        setting_controls: the settings and their ranges.
        summary_tokens: size of a summary, in tokens.
    """
    was = _prompt_array(trials.at(setting_controls.make({}), summary_tokens))
    end = time.process_time() + EFFECT_SECONDS
    effects = dict[str, float].fromkeys((one.name for one in setting_controls.all), 0.0)
    left = {one.name: len(_end_values(one)) for one in setting_controls.all}
    tries = [
        (isinstance(one, SettingControl), i, one.name, value)
        for one in setting_controls.all
        for i, value in enumerate(_end_values(one))
    ]
    for _, _, name, value in sorted(
        tries, key=lambda t: t[:2]
    ):  # words, then one end of each number
        if time.process_time() > end:
            break
        left[name] -= 1
        try:
            now = _prompt_array(trials.at(setting_controls.make({name: value}), summary_tokens))
        except CtxkitError:  # an end that cannot work says nothing
            continue
        effects[name] = max(effects[name], float(np.abs(now - was).mean()) if len(was) else 0.0)
    every = [
        SettingEffectOnPrompt(name, tokens or (None if left[name] else 0.0))
        for name, tokens in effects.items()
    ]
    return sorted(every, key=lambda e: (e.tokens == 0, e.tokens is None, -(e.tokens or 0)))


def _end_values(one: SettingControl | ChoiceControl) -> list[object]:
    every = (one.low, one.high) if isinstance(one, SettingControl) else one.options
    return [value for value in every if value != one.value]


def _prompt_array(trial: Trial) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([n or 0 for n in trial.prompts], np.float64)
