"""Draw names and numbers of a made-up session from a seed.

The story is written once, with the names of the sample `billing`. For another seed each name that
a fact rests on is replaced wherever it is used: in requests, results, replies, summaries and in the
patterns that find the facts again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

_CURRENCIES = (
    ("CLP", "CL", "Chile"),
    ("KRW", "KR", "South Korea"),
    ("PYG", "PY", "Paraguay"),
    ("VND", "VN", "Vietnam"),
    ("XOF", "SN", "Senegal"),
    ("UGX", "UG", "Uganda"),
)
"""Currencies without a minor unit, which the sample's ISK of Iceland is, too."""
_PEOPLE = ("Jonas", "Amira", "Teresa", "Kofi", "Sunniva", "Mateo", "Ilse", "Ravi")
_PROJECTS = ("PAY", "FIN", "EXPO", "ACCT", "CASH")
_QUEUES = ("ledger-feed", "books-in", "csv-intake", "acct-sync", "sap-bridge")
_HEADERS = ("X-Pay-Span", "X-Request-Chain", "X-Ledger-Trail", "X-Flow-Mark", "X-Gate-Ref")
_ERRORS = ("CurrencyMissing", "NoMinorUnit", "UnlistedCurrency", "NoSuchCurrency")
_KEYS = ("number", "serial", "uid", "ref")
_DATE = re.compile(r"2026-03-(\d\d)")
_DAY_OF_MARCH = re.compile(r"\b(\d{1,2}) March")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LONGEST_PAUSE = 5_000.0
"""Seconds up to which a pause is stretched; longer ones lead to a fixed time of day."""


@dataclass(frozen=True)
class NameReplacer:
    """Replaces the names of the sample; without any it returns each text as it is."""

    new_names: dict[str, str] = field(default_factory=dict)
    """By the sample's name."""
    days_earlier: int = 0
    """Days by which the failing nights are before those of the sample."""
    random: Random | None = None
    """Draws how much longer or shorter each pause is; None: as in the sample."""

    @classmethod
    def draw(cls, seed: int | str) -> NameReplacer:
        """Return names drawn from a seed; the same seed draws the same."""
        rng = Random(f"names {seed}")  # noqa: S311  no secret
        currency, market, country = rng.choice(_CURRENCIES)
        rows, missing = rng.randrange(900, 1_900), rng.randrange(21, 79)
        key, error = rng.choice(_KEYS), rng.choice(_ERRORS)
        minor = rng.choice((8, 10, 11, 12))
        new_names = {
            "BILL-4127": f"{rng.choice(_PROJECTS)}-{rng.randrange(1_000, 9_999)}",
            "ISK": currency, '"IS"': f'"{market}"', "Iceland": country,
            "fin-import-7": f"{rng.choice(_QUEUES)}-{rng.randrange(10, 99)}",
            "INV-2026-118842": f"INV-2026-{rng.randrange(130_000, 999_999)}",
            "Petra": rng.choice(_PEOPLE), "X-Bill-Trace": rng.choice(_HEADERS),
            "UnknownCurrency": error,
            "Invoice.id": f"Invoice.{key}", r"Invoice\.id": rf"Invoice\.{key}",
            "1203": str(rows), "1171": str(rows - missing), "32 invoices": f"{missing} invoices",
            "3.9": f"3.{minor}", r"3\.9": rf"3\.{minor}",
        }  # fmt: skip
        return cls(new_names, rng.randrange(1, 6), rng)

    def replace_names(self, text: str) -> str:
        """Return a text with the new names."""
        if not self.new_names:
            return text
        words = map(re.escape, sorted(self.new_names, key=len, reverse=True))
        old = re.compile(rf"(?<![\w.])(?:{'|'.join(words)})(?!\d)")
        text = old.sub(lambda match: self.new_names[match[0]], text)
        text = _DATE.sub(lambda match: f"2026-03-{int(match[1]) - self.days_earlier:02d}", text)
        text = _DAY_OF_MARCH.sub(lambda m: f"{int(m[1]) - self.days_earlier} March", text)
        weekday = _WEEKDAYS[(1 - self.days_earlier) % 7]
        return text.replace("Tuesday", weekday)

    def replace_in_pattern(self, pattern: str) -> str:
        """Return the pattern that finds a fact under its new names."""
        if not self.new_names:
            return pattern
        # a class of digits holds no whole date that could be moved
        return self.replace_names(pattern.replace("2026-03-1[01]", "2026-03-10|2026-03-11"))

    def vary_pause(self, pause: float) -> float:
        """Return a pause of other length, from two thirds to one and a half, in seconds."""
        if self.random is None or pause > _LONGEST_PAUSE:
            return pause
        return pause * self.random.uniform(0.67, 1.5)
