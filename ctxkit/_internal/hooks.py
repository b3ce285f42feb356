"""Functions of upper layers behind methods of lower ones: registered by name, imported when called.

A session can say what a replay sent and how it is displayed, but the log layer must not import the
engine or the widgets. It calls a hook; `ctxkit/__init__.py`, which stands above all layers, says
which function answers it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would double what a bare interpreter takes to import ctxkit
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_targets: dict[str, str] = {}


def register_hooks(targets: Mapping[str, str]) -> None:
    """Set which function answers each hook.

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
