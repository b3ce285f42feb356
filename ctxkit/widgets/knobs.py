"""The settings of rules, each with the span in which it may be turned, and how rules are made of
them again.
"""

from __future__ import annotations

import re
from ast import literal_eval
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from math import floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit import presets
from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean
from ctxkit.policies.hinges import written
from ctxkit.policies.rules import Rules
from ctxkit.presets.naming import as_rules
from ctxkit.presets.preset_names import names, preset
from ctxkit.replays import window

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ctxkit.presets.naming import AnyRules
    from ctxkit.session import Session

_SMALL = 50
"""Up to here a whole number is turned by ones."""

_BESIDE = ("auto", "config", "counter", "cache_life", "flush", "on_compacted")
"""What a config file or a user sets beside a preset's parameters: it stays as it is while they are
turned.
"""


class Knob(NamedTuple):
    """One setting and its span."""

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


class Choice(NamedTuple):
    """A switch, or a setting with a few words for values."""

    name: str
    value: str | bool
    options: tuple[str | bool, ...]


class Knobs(NamedTuple):
    """The knobs of rules, and the rules that any setting of them gives."""

    label: str
    every: tuple[Knob, ...]
    make: Callable[[Mapping[str, Any]], Rules]
    """Takes the settings that were turned; raises BadArguments where they cannot work."""
    choices: tuple[Choice, ...] = ()

    @property
    def all(self) -> tuple[Knob | Choice, ...]:
        """The numbers, then the switches and choices."""
        return self.every + self.choices


def knobs(rules: AnyRules, session: Session, ranges: Mapping[str, tuple[float, ...]]) -> Knobs:
    """Return the knobs of a preset, of rules, or of a function that makes rules.

    Raises:
        BadArguments: there is no numeric setting, or a range is none.
        UnknownPreset: a name means nothing, or a range is for a setting that does not exist.
    """
    rules = as_rules(rules) if isinstance(rules, str) else rules
    kept = _kept(rules) if isinstance(rules, Rules) else None
    label, values, make = _settings(rules, session, kept)
    choices, absent = _others(rules, of_preset=kept is not None)
    for name in ranges:
        if name not in values and name not in absent:
            raise UnknownPreset(
                f"{label} has no numeric setting {name!r}; it has {', '.join(values)}."
                f"{did_you_mean(name, values)}"
            )
    if not values:
        raise BadArguments(
            f"{label} has no numeric setting to turn; write a function that makes rules from"
            " numbers."
        )
    room = window(session) or 200_000
    none = [n for n in absent if n not in values]

    def knob(name: str, value: float) -> Knob:
        given = name in ranges
        made = _ranged(name, value, ranges[name]) if given else _spanned(name, value, room)
        return made._replace(none=name in none)

    every = tuple(knob(n, v) for n, v in (values | dict.fromkeys(none, 0)).items())
    return Knobs(label, every, lambda turned: make(with_none(turned, none)), choices)


def with_none(turned: Mapping[str, Any], none: Collection[str]) -> dict[str, Any]:
    """Return settings with None for those that are turned off by a 0."""
    return {n: None if n in none and not v else v for n, v in turned.items()}


def _function(rules: Any) -> bool:
    return not isinstance(rules, Rules) and callable(rules) and not is_dataclass(rules)


def _defaults(rules: Callable[..., Any]) -> dict[str, Any]:
    return {n: p.default for n, p in signature(rules).parameters.items()}


def _others(rules: Any, *, of_preset: bool) -> tuple[tuple[Choice, ...], list[str]]:
    """Return the switches and choices of a preset or a function, and the whole numbers that are
    None.
    """
    if of_preset:
        given, made = dict(rules.parameters), getattr(presets, rules.name)
    elif _function(rules):
        given, made = _defaults(rules), rules
    else:
        return (), []
    says = {n: str(p.annotation) for n, p in signature(made).parameters.items()}
    choices = []
    for name, value in given.items():
        words = re.search(r"Literal\[(.*?)\]", says.get(name, ""))
        if isinstance(value, bool) and name != "quirks":  # how a program errs is no setting of it
            choices.append(Choice(name, value, (False, True)))
        elif isinstance(value, str) and words:
            choices.append(Choice(name, value, literal_eval(f"({words[1]},)")))
    absent = [
        n
        for n, v in given.items()
        if v is None and re.search(r"(^|\| )(int|Natural|Positive)\b", says.get(n, ""))
    ]
    return tuple(choices), absent


def _settings(
    rules: Any, session: Session, kept: dict[str, Any] | None
) -> tuple[str, dict[str, float], Callable[[Mapping[str, float]], Rules]]:
    if kept is not None:
        given = dict(rules.parameters)
        known = {n: v for n, v in given.items() if _number(v)}
        if "context_window" in given:
            known["context_window"] = given["context_window"] or window(session) or 200_000
        return (
            rules.name,
            known,
            lambda turned: preset(rules.name, **{**given, **turned}).but(**kept),
        )
    if _function(rules):
        defaults = _defaults(rules)
        known = {n: v for n, v in defaults.items() if _number(v)}
        if known or not defaults:
            label = getattr(rules, "__name__", "rules")
            return label, known, lambda turned: as_rules(rules(**{**known, **turned}))
    made = as_rules(rules)
    places = _places(made)
    return (
        made.label,
        {n: value for n, (_, value) in places.items()},
        lambda turned: _with(made, places, turned),
    )


def _kept(rules: Rules) -> dict[str, Any] | None:
    """Return what rules have besides their preset's parameters; None where they are of none, or a
    parameter would no longer reach them.
    """
    if rules.name not in names() or not rules.parameters:
        return None
    made = preset(rules.name, **rules.parameters)
    beside = {n: getattr(rules, n) for n in _BESIDE if getattr(rules, n) != getattr(made, n)}
    return beside if replace(made, **beside) == replace(rules, parameters=made.parameters) else None


def _places(rules: Rules) -> dict[str, tuple[tuple[str, int, str], float]]:
    """Return the numeric settings of the policy, the trigger and the guards: name -> (part, number,
    field), value.
    """
    parts: list[tuple[str, int, Any]] = [
        ("policy", 0, written(rules.policy)),
        ("trigger", 0, written(rules.trigger)),
        *(("guards", i, guard) for i, guard in enumerate(rules.guards)),
    ]
    out: dict[str, tuple[tuple[str, int, str], float]] = {}
    for part, i, value in parts:
        for f in fields(value) if is_dataclass(value) else ():
            if _number(getattr(value, f.name)):
                name = f.name if f.name not in out else f"{part}_{f.name}"
                out[name] = ((part, i, f.name), getattr(value, f.name))
    return out


def _with(
    rules: Rules,
    places: Mapping[str, tuple[tuple[str, int, str], float]],
    turned: Mapping[str, float],
) -> Rules:
    parts: dict[str, Any] = {"policy": written(rules.policy), "trigger": written(rules.trigger)}
    parts["guards"] = list(rules.guards)
    for name, value in turned.items():
        part, i, field = places[name][0]
        if part == "guards":
            parts[part][i] = replace(parts[part][i], **{field: value})
        else:
            parts[part] = replace(parts[part], **{field: value})
    return rules.but(**parts)


def _spanned(name: str, value: float, room: int) -> Knob:
    """Return a span around a value: a share within 0 and 1, small counts by ones, the rest up to
    four times as much.

    What is off is measured by the window: sizes up to it, budgets of many calls up to fifty of it.
    """
    whole = isinstance(value, int)
    if value == 0 and whole and re.search(r"tokens|chars|_limit|_at$", name):
        high = room * (50 if name.endswith("_at") else 4 if "chars" in name else 1)
        return Knob(name, value, 0, high, max(int(_round(high / 100)), 1))
    if not whole and 0 <= value <= 1:
        return Knob(name, value, 0.0, 1.0, 0.01)
    if not whole:
        return Knob(name, value, 0.0, 4 * value, _round(value / 20))
    if value <= _SMALL:
        return Knob(name, value, 0, max(4 * value, 20), 1)
    step = int(_round(value / 20))
    return Knob(name, value, step if value > step else 0, 4 * value, max(step, 1))


def _ranged(name: str, value: float, span: tuple[float, ...]) -> Knob:
    ends: Any = span
    sound = isinstance(ends, (tuple, list)) and len(ends) in (2, 3)
    if not sound or not all(map(_number, ends)):
        raise BadArguments(
            f"A range is two ends and maybe a step, such as {name}=(1_000, 20_000, 500); not"
            f" {span!r}."
        )
    low, high = span[0], span[1]
    whole = isinstance(value, int) and isinstance(low, int) and isinstance(high, int)
    step = (high - low) / 100
    if whole:
        step = max(int(_round(step)), 1)
    if len(span) > 2:
        step = span[2]
    if not low < high or not step > 0:
        raise BadArguments(f"The range {span!r} of {name} has nothing between its ends.")
    return Knob(name, min(max(value, low), high), low, high, step)


def _round(value: float) -> float:
    """Return the power of ten times 1, 2 or 5 that lies at or below a value."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(value))
    return next(s * unit for s in (5, 2, 1) if s * unit <= value * (1 + 1e-9))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
