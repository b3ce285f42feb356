"""Recorders of model calls in this kernel, of any agent framework."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.agent.recorders.api_call_recorder import Recording, record, recorder

__all__ = ["Recording", "record", "recorder"]
__dir__ = make_dunder_dir(__all__)
