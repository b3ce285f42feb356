"""Numbers as a report writes them; what the log cannot say is a dash, never a zero."""

from __future__ import annotations

from typing import Any

MISSING = "–"


def known(value: Any) -> bool:
    """True where a cell of a frame holds something."""
    import pandas as pd

    return value is not None and not pd.isna(value)


def number(value: Any) -> str:
    """A count: `12,345`."""
    return f"{int(value):,}" if known(value) else MISSING


def tokens(value: Any) -> str:
    """A size in tokens, short: `840`, `39.3k`, `4.1M`."""
    if not known(value):
        return MISSING
    n = int(value)
    return f"{n / 1e6:.1f}M" if n >= 1_000_000 else f"{n / 1e3:.1f}k" if n >= 10_000 else f"{n:,}"


def dollars(value: Any) -> str:
    """An amount: `$3.24`, with four places below a cent."""
    if not known(value):
        return MISSING
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def percent(value: Any) -> str:
    """A share: `71 %`."""
    return f"{100 * value:.0f} %" if known(value) else MISSING


def share(part: Any, whole: Any) -> str:
    """A part of a whole as a share."""
    return percent(part / whole) if known(part) and known(whole) and whole else MISSING


def text(value: Any) -> str:
    """A text of a frame, empty where it is missing."""
    return str(value) if known(value) else ""
