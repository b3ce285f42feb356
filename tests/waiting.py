"""Waits of tests that hold on a machine that does other work, and still end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0
"""Seconds that a test waits for what must come; a sound run needs a small part of them."""

HANG = 300.0
"""Seconds that a stand-in hangs for: so much longer that a run which waits for it passes `PATIENCE`."""


def wait_until(is_so: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Wait until a condition holds; the test fails where it never does."""
    end = time.monotonic() + seconds
    while not (held := bool(is_so())) and time.monotonic() < end:
        time.sleep(0.02)
    assert held, f"it was not so after {seconds:g} seconds"
    return held
