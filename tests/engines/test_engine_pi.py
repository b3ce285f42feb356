"""Pi's own code on real sessions: estimates, cuts, chains of cuts, and when it first compacts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engines.external_programs import Tally, as_pi, ask, sessions, version

from ctxkit import presets
from ctxkit.engine import make_log_from_session
from ctxkit.policies import History, is_new_request
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.engines
PACKAGES = {"0.58.3": "pi58", "0.73.1": "pi73", "1.5.2": "pi1"}
KEEPS = (1000, 5000, 20_000, 50_000)
WINDOWS = (40_000, 60_000, 80_000, 100_000, 128_000, 150_000, 180_000, 200_000)


class Both:
    """A session as Pi's entries in a file, and as the log that the preset works on."""

    def __init__(self, path, session, folder, rules):
        self.name, self.session = path.name, session
        entries = raw(path) if path.parent.name == "pi" else written(session)
        said = [e for e in entries if e["type"] == "message"]
        held = [
            m
            for m in session.messages
            if m.role != "system" and (path.parent.name == "pi" or is_said(m))
        ]
        assert len(said) == len(held), path
        self.number = {m.id: e["message"]["n"] for m, e in zip(held, said, strict=True)}
        self.messages = {e["message"]["n"]: m for m, e in zip(held, said, strict=True)}
        self.file = str(folder / f"{abs(hash(path))}.json")
        Path(self.file).write_text(json.dumps(entries), encoding="utf-8")
        self.log = make_log_from_session(session, rules)

    def moments(self):
        """Each call before which the program looks, and the entries that it has then."""
        for call in range(1, self.log.calls):
            row = self.log.upto[call] - 1
            if is_new_request(self.log, row, call):
                yield call, self.number[self.log.messages[row].id]

    def is_sent(self, n):
        """Whether a message is shown to the model."""
        return n in self.messages and self.messages[n].visible


def is_said(message):
    return message.visible or (message.role == "assistant" and message.is_error)


def raw(path):
    """The entries of a Pi file without its header and its compactions."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["type"] not in ("session", "compaction"):
            if entry["type"] == "message":
                entry["message"]["n"] = len(out)
            out.append({**entry, "id": f"e{len(out)}"})
    return out


def written(session):
    out = []
    for m in session.messages:
        if m.role != "system" and is_said(m):
            entry = {
                "type": "message",
                "id": f"e{len(out)}",
                "timestamp": "2026-01-01T00:00:00.000Z",
            }
            out.append({**entry, "message": {**as_pi(m), "n": len(out)}})
    return out


@pytest.fixture(scope="module")
def found(real):
    small = [*sessions(real, 6, 1000, size=300_000)]
    return [*small, *sessions(real / "pi", 300, 1000)]


@pytest.fixture(scope="module")
def both(found, tmp_path_factory):
    """The sessions under a version of Pi, made once each."""
    made = {}

    def of(name):
        rules = presets.pi(version=name)
        key = rules.estimator.name  # two versions count alike
        if key not in made:
            folder = tmp_path_factory.mktemp("pi")
            made[key] = [Both(path, session, folder, rules) for path, session in found]
        return made[key]

    return of


def compacted(each, rules, calls):
    """What the preset makes at some calls, one after the other: passages, and what it shows."""
    out, asked = [], []
    policy = rules.bare.using(
        lambda p: [asked.append([each.number.get(m.id, -1) for m in p.messages]), "S"][1]
    )
    history = History.start(each.log, calls[0])
    for call in calls:
        asked.clear()
        history = history.at(call)
        new = policy(history, ContextBudget(10**9, 16_384, get_counter("pi")))
        shown = [each.number.get(m.id, -1) for m in new.messages if m.role != "system"]
        told = [[n for n in a if n >= 0] for a in asked]
        out.append(None if new is history else (told, [n for n in shown if n >= 0]))
        history = new
    return out


def compare(tally, each, real, ours, upto, example, known=""):
    """Count one compaction; what is never sent is left out on both sides."""

    def sent(numbers):
        return [n for n in numbers if each.is_sent(n)]

    told, head = (sent(real["told"]), sent(real["head"])) if real else ([], [])
    theirs = ([x for x in (told, head) if x], sent(real["shown"])) if real and told + head else None
    if theirs is None and ours is None:
        tally.add(not real, "nothing to summarise")
        return
    mine = None if ours is None else ([x for x in ours[0] if x], [n for n in ours[1] if n < upto])
    tally.add(
        theirs == mine,
        known or cause(each, real, ours, upto),
        (each.name, *example, short(theirs), short(mine)),
    )


def short(x):
    return x and ([(a[0], a[-1], len(a)) for a in x[0]], x[1][:2])


def cause(each, real, ours, upto):
    """Name why the two differ, where it can be read off the entries."""
    cut = min((n for n in (real or {}).get("shown", ()) if n >= 0), default=-1)
    first = real["shown"][0] if real and real["shown"] else -1
    if first >= 0 and not each.is_sent(first):
        return "failed and aborted replies"
    if upto - 1 in each.messages and not each.is_sent(upto - 1):
        return "failed and aborted replies"
    around = range(max(min(cut, (ours or ((), [cut]))[1][0] if ours else cut), 0), upto)
    if any(n in each.messages and each.messages[n].kind == "bash" for n in around):
        return "commands of the user"
    return ""


@pytest.mark.parametrize("name", PACKAGES)
def test_estimates_of_messages(name, engines, both):
    tally = Tally("pi", version(PACKAGES[name]), "size of a message")
    counter = get_counter("pi/1" if name == "1.5.2" else "pi")
    for each in both(name):
        theirs = ask(
            "pi.mjs", str(engines / PACKAGES[name]), jobs=[{"file": each.file, "sizes": True}]
        )[0]
        for m, size in zip(each.messages.values(), theirs, strict=True):
            own = counter.message(m)
            tally.add(
                own == size,
                "commands of the user" if m.kind == "bash" else "",
                (each.name, m.id, size, own),
            )
    tally.done(1000)


@pytest.mark.parametrize(
    ("name", "quirks"), [*((name, True) for name in PACKAGES), ("1.5.2", False)]
)
def test_cuts_at_the_moments_of_the_program(name, quirks, engines, both):
    mode = "quirks" if quirks else "default"
    tally = Tally("pi", version(PACKAGES[name]), f"cut and passages before a request ({mode})")
    for each in both(name):
        looked = [(keep, call, n) for keep in KEEPS for call, n in each.moments()]
        jobs = [{"file": each.file, "at": [n], "settings": settings(keep)} for keep, _, n in looked]
        answers = ask("pi.mjs", str(engines / PACKAGES[name]), jobs=jobs) if jobs else []
        for (keep, call, n), (real,) in zip(looked, answers, strict=True):
            rules = presets.pi(version=name, quirks=quirks, keep_recent_tokens=keep)
            compare(tally, each, real, compacted(each, rules, [call])[0], n, (keep, call))
    tally.done(300)


@pytest.mark.parametrize("name", PACKAGES)
def test_three_compactions_in_a_row(name, engines, both):
    tally = Tally("pi", version(PACKAGES[name]), "three compactions in a row (quirks)")
    for each in both(name):
        turns = [*each.moments()]
        chains = (
            [
                (keep, [turns[len(turns) * k // 4 + shift] for k in (1, 2, 3)])
                for keep in KEEPS
                for shift in range(min(6, len(turns) // 4))
            ]
            if len(turns) >= 6
            else []
        )
        jobs = [
            {"file": each.file, "at": [n for _, n in chain], "settings": settings(keep)}
            for keep, chain in chains
        ]
        answers = ask("pi.mjs", str(engines / PACKAGES[name]), jobs=jobs) if jobs else []
        for (keep, chain), real in zip(chains, answers, strict=True):
            rules = presets.pi(version=name, quirks=True, keep_recent_tokens=keep)
            ours = compacted(each, rules, [call for call, _ in chain])
            parted = False
            for k, (call, n) in enumerate(chain):
                before = "nothing to summarise" if parted else ""
                compare(tally, each, real[k], ours[k], n, (keep, call, k + 1), before)
                parted |= bool(real[k]) and ours[k] is None
    tally.done(50)


@pytest.mark.parametrize("name", PACKAGES)
def test_when_it_compacts_by_itself(name, engines, both):
    """Each moment at which Pi looks, up to the first compaction that it recorded there."""
    tally = Tally("pi", version(PACKAGES[name]), "due before a request, or not (quirks)")
    for each in both(name):
        if each.session.format != "pi":  # only there is the size what Pi itself was told
            continue
        before = min((call for call, _ in each.log.recorded), default=10**9)
        looks = [(call, n) for call, n in each.moments() if call < before]
        about = {"file": each.file, "looks": [n for _, n in looks], "settings": settings(20_000)}
        jobs = [{**about, "window": window} for window in WINDOWS]
        answers = ask("pi.mjs", str(engines / PACKAGES[name]), jobs=jobs)
        for window, theirs in zip(WINDOWS, answers, strict=True):
            trigger = presets.pi(version=name, quirks=True, context_window=window).trigger
            for (call, _), real in zip(looks, theirs, strict=True):
                mine = trigger(
                    History.start(each.log, call), ContextBudget(window, 16_384, get_counter("pi"))
                )
                tally.add((real is not None) == mine, "", (each.name, window, call, real, mine))
    tally.done(100)


def settings(keep):
    return {"enabled": True, "reserveTokens": 16_384, "keepRecentTokens": keep}
