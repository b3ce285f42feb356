"""Recorders of model calls in this kernel, of any agent framework."""

from ctxkit._internal.lazy import public_dir
from ctxkit.agent.recorders.api_call_recorder import Recording, record, recorder

__all__ = ["Recording", "record", "recorder"]
__dir__ = public_dir(__all__)
