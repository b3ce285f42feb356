"""Mostly talk: a baker plans a move; offers named early are asked for again weeks later. No tool is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.session_recorder import ModelProfile, SessionRecorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

HAIKU = ModelProfile(
    model="claude-haiku-4-5", context_window=200_000, compaction_threshold=160_000, keep_recent=20_000,
    input_usd=1e-6, cache_read_usd=0.1e-6, cache_write_usd=1.25e-6, output_usd=5e-6,
)  # fmt: skip
TITLE = "Moving a bakery"
STARTED = 1772442000.0  # Monday 2 March 2026, 09:00 UTC
SYSTEM = (
    "You help the owner of a small bakery to plan its move to another street. Answer in plain words, in at most "
    "three paragraphs. Name offers by their number. You are no lawyer: say where one is needed."
)
TOPICS = (
    ("the oven", "Ofenbau Kern"), ("the electrician", "Elektro Wied"), ("the shop sign", "Atelier Blau"),
    ("the flooring", "Boden Rast"), ("the cold room", "Kaelte Nord"), ("the insurance", "Allwetter"),
    ("the van", "Autohaus Lenz"), ("the mill", "Muehle am Bach"), ("the till", "Kassen Plus"),
    ("the ventilation", "Luft und Leitung"), ("the painters", "Maler Ott"), ("the movers", "Umzug Sieben"),
)  # fmt: skip
_WHY = (
    "It costs more at first, and less in the third year.", "The date matters more than the price here.",
    "Ask for it in writing before you say yes.", "That leaves a week between the two, which is little but enough.",
    "The landlord has to agree, so write to him first.", "If it comes late, you can still bake in the old place.",
    "Two of your staff will be away then, so plan with four hands.", "They can only come on Mondays.",
    "I would not sign before the permit is there.", "Keep the old one until the new one has run for a month.",
    "Half on the day and half after four weeks is usual; more in advance is not.",
    "If two firms share a room, one of them waits, and you pay for the waiting.",
    "What is not in the offer comes as an extra, so have the cable and the waste named.",
    "A neighbour may complain about noise before seven, so put the loud work on a weekday.",
    "You told me that the shop may not be closed for long, so this has to be done in a night.",
    "It is the one thing that you can borrow, should it be late.",
    "Their own people do it, which is slower, but then one firm answers for all of it.",
    "The chamber of crafts has a list of three others; a second offer costs nothing.",
    "Measure the door first: what does not go through it has to be taken apart.",
    "Write the date into the contract, with a sum for each day that it is late.",
)  # fmt: skip


def play(rng: Random, count: Callable[[str], int]) -> SessionRecorder:
    """Return the recorder of five weeks of talk."""
    recorder = SessionRecorder(
        SYSTEM,
        rng=rng,
        count_tokens=count,
        write_summary=lambda _: "",
        schema_tokens=40,
        start=STARTED,
        profile=HAIKU,
    )
    recorder.add_user_message(
        "I move my bakery to Linden Street 14 on 2026-05-04. Two things: the shop must never be closed for more than "
        "3 days in a row, and all of it together must not cost more than 64,000 euros. Help me to plan.", 5.0,
    )  # fmt: skip
    recorder.add_answer(
        "Gladly. " + _advice(rng, 7) + " Shall we begin with the oven? It has the longest wait."
    )
    offers = {}
    for about, firm in TOPICS:
        number, price = f"OFF-{rng.randrange(1000, 9999)}", f"{rng.randrange(900, 9900):,} euros"
        offers[about] = (number, firm, price)
        recorder.add_user_message(
            f"Now {about}. {firm} offers {price}, the offer is {number}. What do you think?",
            _pause(rng),
        )
        recorder.add_answer(
            f"{number} of {firm}: {price} is within what I would expect. {_advice(rng, 14)}"
        )
        recorder.add_user_message(
            f"And what should I ask {firm} before I sign?", rng.uniform(20, 240)
        )
        recorder.add_answer(
            f"Three things. {_advice(rng, 14)} And who pays if {about} is not ready on 2026-05-04."
        )
    for about, firm in rng.sample(TOPICS, 9):
        number, _, price = offers[about]
        recorder.add_user_message(
            f"Back to {about}: what was the number of the offer, and what did it cost?", _pause(rng)
        )
        recorder.add_answer(f"It was {number} of {firm}, {price}. {_advice(rng, 12)}")
        recorder.add_user_message(
            "They want to come a week later. Does that break anything?", rng.uniform(20, 400)
        )
        recorder.add_answer(
            f"{_advice(rng, 13)} The shop would still be closed for no more than 3 days in a row."
        )
    recorder.add_user_message(
        "Please write it all up for my wife: every offer with its number and price, and the sum.",
        _pause(rng),
    )
    listed = " ".join(f"{n} ({firm}): {price}." for n, firm, price in offers.values())
    recorder.add_answer(
        f"{listed} All of it stays under 64,000 euros, and the move is on 2026-05-04. {_advice(rng, 3)}"
    )
    return recorder


def _advice(rng: Random, n: int) -> str:
    return " ".join(rng.sample(_WHY, min(n, len(_WHY))))


def _pause(rng: Random) -> float:
    return rng.choice((60.0, 200.0, 4_000.0, 80_000.0))
