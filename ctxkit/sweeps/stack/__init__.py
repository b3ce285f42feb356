"""Many runs at once: the engine's own results for rules that opt in, as arrays over settings and sessions."""

from ctxkit.sweeps.stack.orders import Order, order_of
from ctxkit.sweeps.stack.tables import Table

__all__ = ["Order", "Table", "order_of"]
