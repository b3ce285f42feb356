"""Order stays."""

from builders import user
from talks_by_chance import unchecked

from ctxkit.policies.history.invariants import OrderStays

LOG = tuple(user(str(n), id=f"m{n}") for n in range(4))


def test_gaps_are_in_order():
    assert OrderStays().broken(unchecked(LOG, 0, 3)) is None


def test_turned_round_or_twice_is_not():
    assert (
        OrderStays().broken(unchecked(LOG, 0, 2, 1)) == "Message m1 stands out of order, or twice."
    )
    assert "m2" in OrderStays().broken(unchecked(LOG, 2, 2))
