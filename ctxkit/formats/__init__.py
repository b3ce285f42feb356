"""Formats of agent logs: readers, writers, discovery, archive."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
