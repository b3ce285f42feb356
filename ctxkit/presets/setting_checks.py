"""What every preset uses: the `typed` decorator, checks of settings, and differences between
document and program.
"""

from __future__ import annotations

from copy import copy
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple, ParamSpec

from ctxkit._internal.value_kinds import coerce_setting
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.rules import Rules


P = ParamSpec("P")


def check_window(window: int | None, reserve: int, keep: int = 0) -> None:
    """Refuse a window in which a compaction frees nothing.

    Raises:
        BadArguments: the reserve leaves no room, or what is kept fills what is left.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call"
            " would be over it. Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= keep:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {keep:,} frees nothing: "
            "the trigger must lie above what is kept."
        )


def check_between(low: float, high: float, **settings: float) -> None:
    """Refuse settings outside two limits, which they may be themselves.

    Raises:
        BadArguments: one is; the sentence names it.
    """
    for name, value in settings.items():
        if not low <= value <= high:
            raise BadArguments(f"{name} lies between {low:,} and {high:,}, not at {value:,}.")


def typed(make: Callable[P, Rules]) -> Callable[P, Rules]:
    """Return a preset that first refuses settings of another kind than its signature says, and
    whose rules bear its name and, as `parameters`, all its settings.
    """
    known = signature(make).parameters
    defaults = {name: parameter.default for name, parameter in known.items()}

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> Rules:
        for name in [name for name in known if name in settings]:
            need = f"{name} of preset {make.__name__!r} must be {{words}}"
            settings[name] = coerce_setting(settings[name], str(known[name].annotation), need)
        rules = copy(make(*args, **settings))
        given = dict(zip(known, args, strict=False)) | settings
        object.__setattr__(rules, "name", rules.name or make.__name__)
        object.__setattr__(rules, "parameters", defaults | given)
        return rules

    return made


class Difference(NamedTuple):
    """One point at which a document and a program differ, or at which a preset cannot follow."""

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
