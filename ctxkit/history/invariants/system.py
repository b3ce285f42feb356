"""What the system says stays."""

from ctxkit.history.invariants.stays import Stays

SYSTEM_STAYS = Stays("system messages stay", "system")
