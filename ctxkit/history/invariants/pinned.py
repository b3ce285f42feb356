"""What is pinned stays."""

from ctxkit.history.invariants.stays import Stays

PINNED_STAYS = Stays("pinned messages stay", "pinned")
