"""Token counters, estimates of real systems, and the context budget of a policy."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
