"""Hooks: functions of upper layers, registered by name, that lower layers call.

A session has methods for the prompt that was sent and for its display, but its layer must not
import the engine or the widgets. So these methods call a hook; `ctxkit/__init__.py`, above all
layers, registers the functions. The module of a function is imported at the first call.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would double what a bare interpreter takes to import ctxkit
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_targets: dict[str, str] = {}


def register_hooks(targets: Mapping[str, str]) -> None:
    """Register the function of each hook.

    Args:
        targets: hook names, each with `module:function`. The module is imported at the first call.
    """
    _targets.update(targets)


def call_hook(hook: str, *args: Any) -> Any:
    """Call the function registered for a hook and return its result.

    Raises:
        LookupError: no function is registered for it.
    """
    from importlib import import_module

    if hook not in _targets:
        raise LookupError(f"No function is registered for the hook {hook!r}.")
    module, function = _targets[hook].split(":")
    return getattr(import_module(module), function)(*args)
