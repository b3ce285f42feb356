"""Real systems as rules, under their own names and settings:
`presets.fased(reserve_tokens=40_000)`.
"""

from ctxkit._internal.lazy_exports_and_late_bound_calls import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
