"""Figures about sessions and replays: cost, compactions, loss, cache misses, prompt contents."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
