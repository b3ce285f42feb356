"""Grids of preset settings (`ctxkit.grid`), and lists of rules with distinct labels."""

from __future__ import annotations

from collections import Counter
from inspect import Parameter, signature
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ctxkit.errors import BadArguments, CtxkitError, UnknownName, did_you_mean
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.presets.inert_settings import find_inert_setting, have_same_effect
from ctxkit.presets.registry_and_setting_checks import names, preset
from ctxkit.presets.registry_and_setting_checks import resolve_rules as registry_resolve_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.presets.registry_and_setting_checks import RulesLike

    RulesSpec: TypeAlias = "RulesLike | RejectedSetting"
    """One setting of a sweep: rules, a policy, words for either, or a preset itself."""
    RulesArgument: TypeAlias = "RulesSpec | Iterable[RulesSpec]"


class RejectedSetting(NamedTuple):
    """A combination of settings that a preset refused; a sweep shows it as a row with its error."""

    label: str
    parameters: dict[str, Any]
    error: str


class Grid(list[Any]):
    """A list of rules, one per combination; refused ones are `RejectedSetting` entries."""

    @property
    def refused(self) -> list[RejectedSetting]:
        """The combinations that the preset refused, each with the reason in `error`."""
        return [r for r in self if isinstance(r, RejectedSetting)]

    @property
    def inert(self) -> dict[str, str]:
        """The listed settings without effect: in how many entries each has none, and why."""
        cells = [r for r in self if isinstance(r, Rules)]
        varying, out = find_varying_settings(cells), {}
        for name in varying:
            groups: dict[str, list[Rules]] = {}
            for r in cells:
                rest = repr([r.parameters.get(n) for n in varying if n != name])
                groups.setdefault(rest, []).append(r)
            same = [
                (r, other)
                for group in groups.values()
                for r in group
                for other in group
                if other is not r and have_same_effect(r, other)
            ]
            reasons = (
                find_inert_setting(r.name, r.parameters, name, [other.parameters[name]])
                for r, other in same
            )
            reason = next((error for error in reasons if error is not None), None)
            if reason is not None:
                n = len({id(r) for r, _ in same})
                out[name] = f"no effect in {n} of {len(self)} ({reason.describe()})"
        return out

    def __repr__(self) -> str:
        n = len(self.refused)
        notes = [f"{n} refused: {self.refused[0].error}"] if n else []
        notes += [f"{name} has {why}" for name, why in self.inert.items()]
        return f"<Grid: {', '.join([f'{len(self)} settings', *notes])}>"


def grid(preset: Callable[..., Rules] | str, **lists: Any) -> Grid:
    """Build the rules of a preset for every combination of settings.

    Args:
        preset: a preset, its name, or any function that returns rules.
        lists: for each setting a list or range of values; a single value holds for all
            combinations.

    Returns:
        A list of rules in the order of the Cartesian product; refused combinations are
        `RejectedSetting` entries (see `Grid.refused`).

    Raises:
        UnknownName: there is no such preset or setting; the sentence names the nearest one.
        BadArguments: a list is empty.

    Example:
        >>> import ctxkit as ck
        >>> ck.grid("pi", reserve_tokens=[8_000, 16_000], keep_recent_tokens=[5_000, 10_000])
        <Grid: 4 settings>
    """
    make, name, setting_names = _resolve_factory(preset)
    for key in lists:
        if setting_names is not None and key not in setting_names:
            raise UnknownName(
                f"Preset {name!r} has no setting {key!r}; it has"
                f" {', '.join(setting_names)}.{did_you_mean(key, setting_names)}"
            )
    values = {k: _value_list(k, v) for k, v in lists.items()}
    defaults = {
        n: p.default
        for n, p in signature(make).parameters.items()
        if p.default is not Parameter.empty
    }
    out = Grid()
    for combination in product(*values.values()):
        settings = dict(zip(values, combination, strict=True))
        try:
            out.append(make(**settings))
        except CtxkitError as error:
            out.append(RejectedSetting(name, {**defaults, **settings}, str(error)))
    return out


def resolve_rules_list(rules: RulesArgument) -> list[Rules | RejectedSetting]:
    """Return a list of rules from what names them.

    Args:
        rules: one or several of: rules, policies, preset names, policy chains, preset functions, or
            ``"all"`` for every preset.

    Returns:
        The rules in the order given; a preset that refuses the defaults is a `RejectedSetting`.

    Raises:
        BadArguments: an item is none of these, or the list is empty.
        UnknownName: a name is unknown.

    Example:
        >>> from ctxkit.experiments.setting_grids_and_labels import resolve_rules_list
        >>> [rules.label for rules in resolve_rules_list(["pi", "none"])]
        ['pi', 'none']
    """
    items = (
        [rules] if isinstance(rules, (str, Rules, RejectedSetting)) or callable(rules) else rules
    )
    try:
        items = list(items)
    except TypeError:
        raise BadArguments(f"Give rules, or a list of them, not {type(rules).__name__}.") from None
    out: list[Rules | RejectedSetting] = []
    for each in items:
        out += [_make_preset(n) for n in names()] if each == "all" else [_resolve_one(each)]
    if not out:
        raise BadArguments('Give at least one setting: rules, the name of a preset, or "all".')
    return out


def _resolve_one(rules: Any) -> Rules | RejectedSetting:
    if isinstance(rules, RejectedSetting):
        return rules
    if isinstance(rules, str) and rules.strip().lower().replace("-", "_") in names():
        return _make_preset(rules)
    if callable(rules) and str(getattr(rules, "__module__", "")).startswith("ctxkit.presets."):
        return _make_or_reject(rules.__name__, rules)
    return registry_resolve_rules(rules)


def _make_preset(name: str) -> Rules | RejectedSetting:
    return _make_or_reject(name, lambda: preset(name))


def _make_or_reject(name: str, make: Callable[[], Rules]) -> Rules | RejectedSetting:
    try:
        return make()
    except (CtxkitError, ImportError) as error:
        return RejectedSetting(name, {}, str(error))


def label_rules(rules: Sequence[Rules | RejectedSetting]) -> list[str]:
    """Return a distinct label for each: its name, and the settings in which rules of that name
    differ.

    Args:
        rules: as `resolve_rules` returns them.

    Returns:
        Labels in the order of the rules; equal ones get a running number.

    Example:
        >>> from ctxkit.experiments.setting_grids_and_labels import grid, label_rules
        >>> label_rules(grid("pi", keep_recent_tokens=[8_000, 9_000]))
        ['pi(keep_recent_tokens=8_000)', 'pi(keep_recent_tokens=9_000)']
    """
    values: dict[str, dict[str, list[Any]]] = {}
    for r in rules:
        by_setting = values.setdefault(r.label, {})
        for key, value in r.parameters.items():
            by_setting.setdefault(key, []).append(value)
    counts = Counter(r.label for r in rules)
    # a setting distinguishes namesakes if its values differ or some rules lack it
    differ = {
        label: {
            k for k, v in by_setting.items() if len(v) < counts[label] or any(x != v[0] for x in v)
        }
        for label, by_setting in values.items()
    }
    labels: list[str] = []
    for r in rules:
        settings = ", ".join(
            f"{k}={_format_setting(v)}"
            for k, v in r.parameters.items()
            if v is not None and k in differ[r.label]
        )
        labels.append(f"{r.label}({settings})" if settings else r.label)
    # labels that are still equal get a running number
    seen: dict[str, int] = {}
    for i, label in enumerate(labels):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] > 1:
            labels[i] = f"{label} ({seen[label]})"
    return labels


def find_varying_settings(rules: Iterable[Rules | RejectedSetting]) -> tuple[str, ...]:
    """Return the names of the settings that vary among rules; a sweep makes them columns."""
    parameters = [dict(r.parameters) for r in rules]
    keys = dict.fromkeys(k for p in parameters for k in p)
    return tuple(k for k in keys if len({repr(p.get(k)) for p in parameters}) > 1)


def convert_setting_to_plain_value(value: Any) -> Any:
    """Return a setting as a plain value for a column or a JSON line; other types become text.

    Args:
        value: value of a setting, such as a trigger, a counter or a number.

    Returns:
        Numbers, texts, yes, no and None as they are; the text of anything else.
    """
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _format_setting(value: Any) -> str:
    return (
        f"{value:_}"
        if isinstance(value, int) and not isinstance(value, bool)
        else str(convert_setting_to_plain_value(value))[:40]
    )


def _value_list(name: str, value: Any) -> list[Any]:
    values = (
        list(value)
        if isinstance(value, (list, tuple, range)) or hasattr(value, "tolist")
        else [value]
    )
    if not values:
        raise BadArguments(
            f"The list of {name} is empty: give at least one value, or leave it out."
        )
    # NumPy scalars become Python numbers
    return [v.item() if hasattr(v, "item") else v for v in values]


def _resolve_factory(
    factory: Callable[..., Rules] | str,
) -> tuple[Callable[..., Rules], str, list[str] | None]:
    if isinstance(factory, str):
        preset(factory)  # an unknown name is refused here
        from ctxkit import presets

        factory = getattr(presets, factory.strip().lower().replace("-", "_"))
    if not callable(factory):
        raise BadArguments(
            f"A grid is made of a preset or its name, not of {type(factory).__name__}."
        )
    parameters = signature(factory).parameters.values()
    free = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    return (
        factory,
        getattr(factory, "__name__", "rules"),
        None if free else [p.name for p in parameters],
    )
