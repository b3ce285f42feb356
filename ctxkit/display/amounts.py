"""Numbers as people write them; what the log cannot say is a dash, never a zero."""

from __future__ import annotations

from typing import Any

MISSING = "–"


def known(value: Any) -> bool:
    """True where a cell of a frame holds something."""
    if value is None:
        return False
    if isinstance(value, (int, float, str)):
        return bool(value == value)  # noqa: PLR0124  NaN is what is not itself
    import pandas as pd

    return not pd.isna(value)


def number(value: Any) -> str:
    """A count: `12,345`."""
    return f"{int(value):,}" if known(value) else MISSING


def tokens(value: Any) -> str:
    """A size in tokens, short: `840`, `39.3k`, `4.1M`."""
    if not known(value):
        return MISSING
    n = int(value)
    size = abs(n)
    return (
        f"{n / 1e6:.1f}M" if size >= 999_950 else f"{n / 1e3:.1f}k" if size >= 10_000 else f"{n:,}"
    )


def dollars(value: Any) -> str:
    """An amount: `$3.24`, `-$0.05`; below a cent with two digits that count: `$0.0034`."""
    if not known(value):
        return MISSING
    sign, size = "-" if value < 0 else "", abs(float(value))
    if size == 0 or size >= 0.00995:
        return f"{sign}${size:,.2f}"
    return f"{sign}${size:.{4 if size >= 0.00095 else 6}f}"


def percent(value: Any) -> str:
    """A share: `71 %`."""
    return f"{100 * value:.0f} %" if known(value) else MISSING


def change(value: Any) -> str:
    """A share more or less: `+12 %`, `-3 %`, `±0 %`."""
    if not known(value):
        return MISSING
    whole = round(100 * float(value))
    return f"{whole:+,d} %" if whole else "±0 %"


def share(part: Any, whole: Any) -> str:
    """A part of a whole as a share."""
    return percent(part / whole) if known(part) and known(whole) and whole else MISSING


def span(seconds: Any) -> str:
    """A time that passed: `40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    if not known(seconds):
        return MISSING
    s = float(seconds)
    for limit, unit, name in ((90.0, 1.0, "s"), (5400.0, 60.0, "min")):
        if s < limit:
            return f"{s / unit:.0f} {name}"
    return f"{s / 3600:.1f} h" if s < 172_800 else f"{s / 86_400:.1f} days"


def counted(n: int, word: str, words: str = "") -> str:
    """A number of things: `1 call`, `2 calls`; `words`: the plural, if not the word with an s."""
    return f"{n:,} {word if n == 1 else words or f'{word}s'}"


def text(value: Any) -> str:
    """A text of a frame, empty where it is missing."""
    return str(value) if known(value) else ""
