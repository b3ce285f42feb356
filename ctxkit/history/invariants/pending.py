"""What an approval or an unfinished tool waits on stays."""

from ctxkit.history.invariants.stays import Stays

PENDING_STAYS = Stays("pending approvals stay", "pending")
