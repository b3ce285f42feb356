"""OpenClaw's own planner and pruner on real sessions: sizes, halves, chunks, what is set apart, the
reserve, and what a call after a pause is sent.
"""

from __future__ import annotations

import json

import pytest
from engines.running import Tally, as_pi, ask, sessions, version

import ctxkit as ck
from ctxkit import presets
from ctxkit.engine import log_of
from ctxkit.messages import Image
from ctxkit.policies import contents, plans
from ctxkit.policies.idle import PLACEHOLDER
from ctxkit.policies.rules import Rules
from ctxkit.tokens import named

pytestmark = pytest.mark.engines
WINDOWS = (32_000, 64_000, 200_000)
SMALL = (8_000, 16_000, 64_000)
COUNT = named("openclaw").message


@pytest.fixture(scope="module")
def found(real, engines, tmp_path_factory):
    """Sessions, what is said in each, the same in a file, and how the program sizes it."""
    folder, out = tmp_path_factory.mktemp("openclaw"), []
    for i, (path, session) in enumerate(sessions(real, 3, 600, size=1_600_000)):
        said = [m for m in session.messages if m.role in ("user", "assistant", "tool")]
        said = [m for m in said if m.visible]
        file = folder / f"{i}.json"
        held = [{**as_pi(m), "n": n} for n, m in enumerate(said)]
        file.write_text(json.dumps(held), encoding="utf-8")
        out.append((path.name, session, said, str(file)))
    sizes = asked(engines, [{"file": file, "sizes": True} for *_, file in out])
    return [(*each, theirs) for each, theirs in zip(out, sizes, strict=True)]


def asked(engines, jobs):
    return ask("openclaw.mjs", str(engines / "openclaw/dist"), jobs=jobs)


def of_several(message):
    """Whether a message is sized as the preset's difference tells."""
    return len(message.parts) > 1 or any(isinstance(p, Image) for p in message.parts)


def test_sizes_of_messages(engines, found):
    tally = Tally("openclaw", version("openclaw"), "size of a message")
    for name, _, said, _, theirs in found:
        for n, (m, size) in enumerate(zip(said, theirs, strict=True)):
            why = "size of a message" if of_several(m) else ""
            tally.add(size == COUNT(m), why, (name, n, size, COUNT(m)))
    tally.done(1000)


def test_plans_of_a_summary(engines, found):
    what = "halves, chunks, share, what is set apart, reserve"
    tally = Tally("openclaw", version("openclaw"), what)
    for name, _, said, file, theirs in found:
        ours = [*map(COUNT, said)]
        cuts = [n for n, m in enumerate(said) if m.role == "assistant"][1:]
        looked = [(n, w) for n in cuts[:: max(1, len(cuts) // 6)] for w in WINDOWS]
        wanted, jobs = [], []
        for n, window in looked:
            chunk = plans.chunk_tokens(n, sum(ours[:n]), window)
            others = (n * 7919) % window
            about = {"window": window, "chunk": chunk, "others": others}
            jobs.append({"file": file, "upto": n, **about})
            wanted.append(planned(said[:n], ours[:n], **about))
        for real_, mine, (n, window) in zip(asked(engines, jobs), wanted, looked, strict=True):
            why = "size of a message" if theirs[:n] != ours[:n] else ""
            for what, value in mine.items():
                same = real_[what] == value
                if what == "ratio":
                    same = real_[what] == pytest.approx(value)
                tally.add(same, why, (name, n, window, what, str(real_[what])[:80], str(value)[:80]))
    tally.done(300)


def planned(messages, sizes, window, chunk, others):
    """What the preset's rules plan."""
    rules = presets.openclaw(context_window=window, keep_recent_tokens=1000)
    kept, _, _ = plans.within_share(messages, sizes, int(window * 0.5))
    return {
        "halves": [[*rows] for rows in plans.by_share(messages, sizes)],
        "chunks": [[*rows] for rows in plans.by_size(messages, sizes, chunk)],
        "ratio": plans.ratio(len(messages), sum(sizes), window),
        "kept": sorted(kept),
        "apart": others > int(window * 0.5 * plans.MARGIN),
        "reserve": rules.reserve,
    }


def test_what_a_call_after_a_pause_is_sent(engines, found):
    """Every call comes after a pause here, and what one was sent the next is sent, too."""
    tally = Tally("openclaw", version("openclaw"), "what a call after a pause is sent")
    pruning = presets.openclaw(pruning="cache-ttl", ttl_seconds=0).pruning
    for name, session, said, file, _ in found:
        if len(session.calls) > 120:
            continue
        number = {m.id: n for n, m in enumerate(said)}
        for window in SMALL:
            rules = Rules(pruning=pruning, window=window, estimator="openclaw")
            log = log_of(session, rules)
            if window <= log.fixed:
                continue
            run = ck.replay(session, rules)
            known = [sum(m.id in number for m in log.messages[:n]) for n in log.upto[: log.calls]]
            answers = asked(engines, [{"file": file, "cold": known, "window": window}])[0]
            for call in range(1, log.calls):
                mine = sent(run, log, number, call)
                theirs = {n: text for n, text in answers[call] if n in number.values()}
                why = cause(said[: known[call]], theirs, mine)
                tally.add(theirs == mine, why, (name, window, call, *first(theirs, mine)))
    tally.done(1000)


def sent(run, log, number, call):
    """The results that a call of a run is not sent as they came, with their text."""
    changed = ((i.row, i.message) for i in run.sent(call) if i.changed_by and i.row >= 0)
    return {number[log.messages[row].id]: contents.texts(m) for row, m in changed}


def cause(said, theirs, mine):
    """Name why the two differ, where it can be read off the results."""
    odd = {n for n in {*theirs, *mine} if theirs.get(n) != mine.get(n)}
    if odd and all(len(contents.texts(said[n])) <= len(PLACEHOLDER) for n in odd):
        return "short results"
    return ""


def first(theirs, mine):
    odd = [n for n in sorted({*theirs, *mine}) if theirs.get(n) != mine.get(n)][:3]
    return [(n, len(theirs.get(n, "")), len(mine.get(n, ""))) for n in odd]
