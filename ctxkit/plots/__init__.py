"""Charts of sessions, comparisons and sweeps: plain data first, the figure second."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
