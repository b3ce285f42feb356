"""A night on call: large logs, a hurry, another provider's prices, and the same question again in the morning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.session_recorder import ModelProfile, SessionRecorder
from sample.prose import log

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

MINI = ModelProfile(
    model="gpt-5-mini",
    context_window=100_000,
    compaction_threshold=82_000,
    keep_recent=16_000,
    input_usd=0.25e-6,
    cache_read_usd=0.025e-6,
    cache_write_usd=None,
    output_usd=2e-6,
)
TITLE = "Checkout fails at night"
STARTED = 1774058400.0  # Saturday 21 March 2026, 02:00 UTC
SYSTEM = (
    "You help the engineer on call. Look at logs and metrics, say what you know and what you suspect, and keep them "
    "apart. Never restart a database. Write down each change with its time."
)
SERVICES = ("checkout", "cart", "payments", "ledger", "stock", "gateway", "mailer", "search-index")


def play(rng: Random, count: Callable[[str], int]) -> SessionRecorder:
    """Return the recorder of a night and a morning."""
    traces: dict[str, str] = {}
    recorder = SessionRecorder(
        SYSTEM,
        rng=rng,
        count_tokens=count,
        write_summary=lambda n: _notes(n, traces),
        schema_tokens=1_500,
        start=STARTED,
        profile=MINI,
    )
    recorder.add_user_message(
        "Checkout fails for a third of all orders since 02:17. The release was rel-2026.12.3. Do not roll back before we "
        "know why, and never touch ledger-db-2.", 3.0,
    )  # fmt: skip
    for round_ in range(3):
        for service in SERVICES:
            trace = traces.setdefault(service, f"trace-{rng.getrandbits(32):08x}")
            fact = f"order failed {trace} code=E{rng.randrange(100, 999)} host={service}-{rng.randrange(1, 9)}"
            asked = {"service": service, "since": f"0{2 + round_}:00"}
            recorder.add_tool_calls(
                ("logs", asked, log(rng, service, rng.randrange(60, 200), (fact,)), False)
            )
            if rng.random() < 0.6:
                figures = "\n".join(f"p{q} {rng.randrange(20, 4_000)}ms" for q in (50, 90, 99))
                recorder.add_tool_calls(
                    ("metrics", {"service": service, "of": "latency"}, figures, False)
                )
            if rng.random() < 0.4:
                recorder.add_answer(
                    f"{service}: {fact}. That fits, but it is a guess until we see it in another service."
                )
                recorder.add_user_message("Go on with the next one.", rng.uniform(15, 200))
        recorder.add_answer(
            f"Round {round_ + 1} is done: {', '.join(traces.values())} all end in payments."
        )
        recorder.add_user_message(
            "Look again, a bit later in the night.", (500.0, 1_500.0, 60.0)[round_]
        )
    first = traces["checkout"]
    recorder.add_tool_calls(
        (
            "trace",
            {"id": first},
            log(rng, "payments", 60, (f"{first} waits for ledger-db-2",)),
            False,
        )
    )
    recorder.add_answer(
        f"{first} waits for a lock on ledger-db-2 that rel-2026.12.3 takes twice. That is the cause."
    )
    recorder.add_user_message(
        "It is morning. Write the report: cause, traces by service, what we did not touch.",
        15_000.0,
    )
    listed = "; ".join(f"{s}: {t}" for s, t in traces.items())
    recorder.add_answer(
        f"Cause: rel-2026.12.3 takes a lock on ledger-db-2 twice. Traces: {listed}. ledger-db-2 was not touched."
    )
    return recorder


def _notes(number: int, traces: dict[str, str]) -> str:
    kept = list(traces.items())[: 5 - number]
    return (
        "## Goal\nCheckout fails for a third of all orders since 02:17, release rel-2026.12.3.\n\n## Constraints\n"
        "* Do not roll back before we know why.\n* Never touch ledger-db-2.\n\n## Seen\n"
        + "\n".join(f"* {s}: {t}" for s, t in kept)
    )
