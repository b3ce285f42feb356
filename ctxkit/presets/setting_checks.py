"""Decorator and checks for the settings of presets, and their differences from documents."""

from __future__ import annotations

from copy import copy
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple, ParamSpec

from ctxkit.errors import BadArguments
from ctxkit.policies.base import coerce_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.rules import Rules


P = ParamSpec("P")


def check_window(window: int | None, reserve: int, kept_tokens: int = 0) -> None:
    """Check that a compaction frees tokens in a window.

    Args:
        window: context window in tokens; None: unknown, not checked.
        reserve: tokens reserved for the reply.
        kept_tokens: tokens that a compaction keeps.

    Raises:
        BadArguments: the reserve fills the window, or the kept tokens fill the rest.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call"
            " would be over it. Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= kept_tokens:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {kept_tokens:,} frees "
            "nothing: the trigger must lie above what is kept."
        )


def check_between(low: float, high: float, **settings: float) -> None:
    """Check that settings lie between two limits, inclusive.

    Raises:
        BadArguments: a setting lies outside; the sentence names it.
    """
    for name, value in settings.items():
        if not low <= value <= high:
            raise BadArguments(f"{name} lies between {low:,} and {high:,}, not at {value:,}.")


# The wrapper runs at each call of a preset: it coerces every keyword setting by the annotation in
# the signature, so that wrong types fail with a sentence in the preset's words, and it records the
# full set of parameters, defaults included, which labels, sweeps and config files read.
def typed(make: Callable[P, Rules]) -> Callable[P, Rules]:
    """Decorate a preset: check settings against its signature and record them in its rules.

    The rules get the preset's name and, as `parameters`, all settings with their defaults.
    """
    parameters = signature(make).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}

    @wraps(make)
    def wrapper(*args: P.args, **settings: P.kwargs) -> Rules:
        for name in [name for name in parameters if name in settings]:
            requirement = f"{name} of preset {make.__name__!r} must be {{words}}"
            settings[name] = coerce_setting(
                settings[name], str(parameters[name].annotation), requirement
            )
        # a copy, since a preset may return shared rules; they are frozen, hence object.__setattr__
        rules = copy(make(*args, **settings))
        passed = dict(zip(parameters, args, strict=False)) | settings
        object.__setattr__(rules, "name", rules.name or make.__name__)
        object.__setattr__(rules, "parameters", defaults | passed)
        return rules

    return wrapper


class Difference(NamedTuple):
    """A point at which document, program and preset of a system differ."""

    topic: str
    document: str
    program: str
    default: str
    """What the preset does."""
    quirks: str = "as the default"
    """What it does with `quirks=True`."""


LAST_CALL_DIFFERENCE = Difference(
    "size that triggers",
    "tokens of the context",
    "prompt and reply of the last call together",
    "the prompt of the coming call",
)
"""Of systems that go by the usage that the last reply brought."""
LARGER_SUMMARY_DIFFERENCE = Difference(
    "a summary larger than what it replaces", "not said", "is taken", "is refused"
)
"""Of systems that do not look at the size of what was written."""
MEMORY_TOOL_DIFFERENCE = Difference(
    "memory tool",
    "the model is warned to save what matters before",
    "a message at nine tenths of the threshold",
    "none",
)
"""Of Inspect's three ways."""
