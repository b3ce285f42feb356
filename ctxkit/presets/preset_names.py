"""Presets by name, and the ways in which they differ from their documents."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, UnknownPreset, did_you_mean

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.differences import Difference


def names() -> list[str]:
    """Return the names of the presets: the five of the design documents first, `none` last."""
    from ctxkit import presets

    return list(presets._PRESETS)  # noqa: SLF001  one table for both


def preset(name: str, **settings: Any) -> Rules:
    """Return the rules of a preset by its name.

    Raises:
        UnknownPreset: there is no preset, or no setting, of that name; the sentence names the
            nearest.
        BadArguments: the settings cannot work together.
    """
    word = name.strip().lower().replace("-", "_")
    if word not in names():
        raise UnknownPreset(
            f"There is no preset {name!r}; there are"
            f" {', '.join(names())}.{did_you_mean(word, names())}"
        )
    make = getattr(import_module(f"ctxkit.presets._{word}"), word)
    known = list(signature(make).parameters)
    for key in settings:
        if key not in known:
            raise UnknownPreset(
                f"Preset {word!r} has no setting {key!r}; it has"
                f" {', '.join(known)}.{did_you_mean(key, known)}"
            )
    try:
        return make(**settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise BadArguments(f"Preset {word!r} cannot be made of these settings: {error}.") from None


def differences(name: str) -> tuple[Difference, ...]:
    """Return where the document and the program of a preset differ, and what the preset does."""
    return tuple(getattr(import_module(f"ctxkit.presets._{name}"), "DIFFERENCES", ()))
