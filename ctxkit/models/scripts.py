"""Two scripts of our own for the scripted model: a short tour of the tools, and an audit long
enough to compact twice.

They are written as code: every file they read they have written before, in a scratch folder, so
their tools really run.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.messages import Message, Part, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.models.scripted import Turn


@dataclass(frozen=True, slots=True)
class Script:
    """A script: what the user asks in each turn, and the replies to it."""

    name: str
    prompts: tuple[str, ...]
    turns: tuple[Turn, ...]


class _Writer:
    """Writes replies with ids of its own, so that two runs of a script are equal."""

    def __init__(self, name: str) -> None:
        self._name, self._calls = name, 0

    def ask(self, thought: str, tool: str, /, **arguments: Any) -> Message:
        self._calls += 1
        call = ToolCall(f"{self._name}_{self._calls}", tool, arguments)
        return _reply((Thinking(thought),) if thought else (), call)


def _reply(parts: tuple[Part, ...], *more: Part) -> Message:
    every = (*parts, *more)
    return Message(
        role="assistant",
        parts=every,
        stop="tool" if any(isinstance(p, ToolCall) for p in every) else "stop",
    )


def say(text: str) -> Message:
    """Return a reply that ends a turn."""
    return _reply((Text(text),))


_MODULE = '''"""Convert temperatures."""


def to_fahrenheit(celsius: float) -> float:
    return celsius * 9 / 5 + 30
'''


def tour() -> Script:
    """Return the short script: three turns that write, read, search and mend a small module."""
    w = _Writer("tour")
    turns: list[Turn] = [
        (
            w.ask("First see what is there.", "list_files"),
            w.ask("Nothing yet; write the module.", "write_file", path="heat.py", content=_MODULE),
            w.ask("", "read_file", path="heat.py"),
            say("`heat.py` converts Celsius to Fahrenheit. I have not checked the constant yet."),
        ),
        (
            w.ask("Where is the constant?", "search", pattern=r"9 / 5", path="."),
            w.ask(
                "Water freezes at 32 °F, not 30.",
                "patch_file",
                path="heat.py",
                old="+ 30",
                new="+ 32",
            ),
            w.ask("", "read_file", path="heat.py", start=4),
            say("The constant was 30 and is 32 now: 0 °C is 32 °F."),
        ),
        (
            w.ask(
                "",
                "write_file",
                path="NOTES.md",
                content="# Notes\n\n- heat.py: constant mended (30 -> 32)\n",
            ),
            say("I wrote down in `NOTES.md` what was mended."),
        ),
    ]
    prompts = (
        "Write a small module heat.py that converts Celsius to Fahrenheit.",
        "Check the constant in it and mend it if it is wrong.",
        "Write down what you did.",
    )
    return Script("tour", prompts, tuple(turns))


_REGIONS = ("north", "east", "south", "west", "harbour", "valley", "upland", "island")
_ROWS = 90


def _ledger(region: str, random: Random) -> tuple[str, str]:
    """Return a region's ledger, and the id of the one row that is negative by mistake."""
    rows = ["id,day,account,amount_cents,currency,note"]
    wrong = random.randrange(20, _ROWS - 10)
    found = ""
    for i in range(_ROWS):
        ident = f"INV-{region[:2].upper()}-{random.randrange(10**6):06d}"
        amount = random.randrange(1_000, 900_000)
        if i == wrong:
            found, amount = ident, -amount
        day = f"2026-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}"
        account = f"acct/{random.randrange(100, 999)}"
        note = random.choice(["paid", "paid late", "partly paid", "disputed", "open"])
        rows.append(f"{ident},{day},{account},{amount},EUR,{note}")
    return "\n".join(rows) + "\n", found


def audit() -> Script:
    """Return the long script: a ledger a turn is written and mended; the last needs the first."""
    random = Random(20)  # noqa: S311  a script, not a secret
    w = _Writer("audit")
    prompts = [
        (
            "Audit the regional ledgers one by one. Never change the column order, and note every"
            " id that you mend."
        )
    ]
    turns: list[Turn] = []
    mended: list[str] = []
    for region in _REGIONS:
        text, wrong = _ledger(region, random)
        line = next(row for row in text.splitlines() if row.startswith(wrong))
        right = line.replace(",-", ",")
        mended.append(wrong)
        path = f"ledgers/{region}.csv"
        turns.append(
            (
                w.ask(
                    f"The ledger of {region} came as text; keep it.",
                    "write_file",
                    path=path,
                    content=text,
                ),
                w.ask("Read it as it stands on disk.", "read_file", path=path),
                w.ask(
                    "Amounts are cents and never negative.",
                    "search",
                    pattern=r",-\d+,",
                    path="ledgers",
                ),
                w.ask(f"{wrong} has the wrong sign.", "patch_file", path=path, old=line, new=right),
                w.ask("Check the row.", "search", pattern=wrong, path="ledgers"),
                say(
                    f"{region}: one row had the wrong sign, {wrong}; mended. The column order is"
                    " unchanged."
                ),
            )
        )
        prompts.append("Go on with the next ledger.")
    note = "# Mended\n\n" + "".join(f"- {i}\n" for i in mended)
    turns.append(
        (
            w.ask(
                "The user wanted every mended id noted.",
                "write_file",
                path="MENDED.md",
                content=note,
            ),
            w.ask("", "search", pattern=r",-\d+,", path="ledgers"),
            say(
                f"All {len(mended)} ledgers are mended; `MENDED.md` names them, {mended[0]} to"
                f" {mended[-1]}."
            ),
        )
    )
    prompts[-1] = "Now write the list of all ids that you mended."
    return Script("audit", tuple(prompts), tuple(turns))


SCRIPTS: dict[str, Callable[[], Script]] = {"tour": tour, "audit": audit}


def script(name: str) -> Script:
    """Return a script by name.

    Raises:
        BadArguments: there is no such script.
    """
    if name not in SCRIPTS:
        raise BadArguments(
            f"There is no script {name!r}; there are"
            f" {', '.join(SCRIPTS)}.{did_you_mean(name, SCRIPTS)}"
        )
    return SCRIPTS[name]()
