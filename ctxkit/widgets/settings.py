"""Settings as text to go on with: the config of the system itself, else what makes these rules in
Python.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import CtxkitError
from ctxkit.presets.configs.config_texts import settings_of
from ctxkit.presets.preset_names import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.policies.rules import Rules


class SettingText(NamedTuple):
    """A setting as text."""

    label: str
    """What a button that copies it says."""
    text: str
    note: str
    """What the text cannot say, or why it is not the system's own config; else empty."""


def written(rules: Rules, label: str, values: Mapping[str, Any]) -> SettingText:
    """Return rules in their own system's config syntax, or as the Python call that makes them.

    Args:
        rules: the rules.
        label: the name of the preset, of the function that made them, or their own.
        values: the settings that can be turned.
    """
    if rules.config is None:
        return _python(rules, label, values, "ctxkit knows no config file for these rules")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            text = rules.to_config()
    except CtxkitError as error:
        return _python(rules, label, values, str(error).rstrip("."))
    return SettingText(f"Copy as {label}'s config", text, " ".join(str(w.message) for w in told))


def _python(rules: Rules, label: str, values: Mapping[str, Any], why: str) -> SettingText:
    name, what = label, "this is the call that makes these rules"
    if rules.name in names():
        usual = settings_of(rules.name)
        name = f"ctxkit.presets.{rules.name}"
        values = {k: v for k, v in rules.parameters.items() if v != usual.get(k)}
    elif label == rules.label:
        name, what = "dict", "these are the settings of their parts"
    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in values.items())})\n"
    return SettingText("Copy as Python", text, f"{why}: {what}.")
