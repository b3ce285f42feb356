"""OpenClaw's own planner and pruner on real sessions: sizes, halves, chunks, what is set apart, the
reserve, and what a call after a pause is sent.
"""

from __future__ import annotations

import json
import sys

import pytest
from engines.external_programs import Tally, as_pi, ask, sessions, version
from msgspec.structs import replace

import ctxkit as ck
from ctxkit import presets
from ctxkit.engine import make_log_from_session
from ctxkit.policies import Rules
from ctxkit.policies import openclaw_safeguard as safeguard
from ctxkit.policies.history import growing_columns_and_sums
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.session import Attachment, Message, SizeOnly, ToolCall, get_plain_text
from ctxkit.tokens import encode_arguments, get_counter
from ctxkit.tokens.token_counters import OPENCLAW

pytestmark = pytest.mark.engines
WINDOWS = (32_000, 64_000, 200_000)
SMALL = (8_000, 16_000, 64_000)
COUNT = get_counter("openclaw").message


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
    return len(message.parts) > 1 or any(isinstance(p, Attachment) for p in message.parts)


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
            chunk = safeguard.compute_chunk_tokens(n, sum(ours[:n]), window)
            others = (n * 7919) % window
            about = {"window": window, "chunk": chunk, "others": others}
            jobs.append({"file": file, "upto": n, **about})
            plans_of = (planned(said[:n], sizes[:n], **about) for sizes in (ours, theirs))
            wanted.append(tuple(plans_of))
        for real_, both, (n, window) in zip(asked(engines, jobs), wanted, looked, strict=True):
            mine, resized = both
            for what, value in mine.items():
                theirs_ = pytest.approx(real_[what]) if what == "ratio" else real_[what]
                why = "size of a message" if resized[what] == theirs_ else ""
                tally.add(value == theirs_, why, (name, n, window, what, str(value)[:80]))
    tally.done(300)


def planned(messages, sizes, window, chunk, others):
    """What the preset's rules plan."""
    rules = presets.openclaw(context_window=window, keep_recent_tokens=1000)
    kept, _, _ = safeguard.drop_older_halves(messages, sizes, int(window * 0.5))
    return {
        "halves": [[*rows] for rows in safeguard.chunk_by_share(messages, sizes)],
        "chunks": [[*rows] for rows in safeguard.chunk_by_size(messages, sizes, chunk)],
        "ratio": safeguard.compute_chunk_share(len(messages), sum(sizes), window),
        "kept": sorted(kept),
        "apart": others > int(window * 0.5 * safeguard.SAFETY_MARGIN),
        "reserve": rules.reserve,
    }


def program_chars(message):
    """Characters as the program's pruner counts them: no names of tools, images and scripts wider."""
    return 0 if message.role == "system" else sum(map(part_chars, message.parts))


def part_chars(p):
    if isinstance(p, Attachment):
        return 8000
    if isinstance(p, ToolCall):
        return len(encode_arguments(p))
    if isinstance(p, SizeOnly):
        return 4 * p.tokens if p.tokens is not None else p.chars or 0
    return OPENCLAW.units(p.text)


def test_what_a_call_after_a_pause_is_sent(engines, found, tmp_path, monkeypatch):
    """Every call comes after a pause here, and what one was sent the next is sent, too.

    A difference is one of sizes where the preset decides alike once it counts as the program does,
    and one of short results where both decide alike once no result is so short.
    """
    tally = Tally("openclaw", version("openclaw"), "what a call after a pause is sent")
    talks = [each[:4] for each in found if len(each[1].calls) <= 100 and plain(each[1])]
    longer = [lengthened(each, tmp_path / f"{i}.json") for i, each in enumerate(talks)]
    runs, answers = both_sides(engines, talks)
    counting = growing_columns_and_sums.count_chars
    users = [m for m in [*sys.modules.values()] if vars(m).get("count_chars") is counting]
    assert len(users) > 3
    for module in users:
        monkeypatch.setattr(module, "count_chars", program_chars)
    alike, _ = both_sides(engines, talks, ask_too=False)
    other, others = both_sides(engines, longer)
    for one, real, same, long, reals in zip(runs, answers, alike, other, others, strict=True):
        name, window, mine = one
        for call in range(1, len(mine)):
            why = "size of a message" if same[-1][call] == real[call] else ""
            why = why or ("short results" if long[-1][call] == reals[call] else "")
            tally.add(real[call] == mine[call], why, (name, window, call))
    tally.done(500)


def both_sides(engines, talks, *, ask_too=True):
    """What each call is sent by the preset's pruning under small windows, and by the program's."""
    pruning = presets.openclaw(pruning="cache-ttl", ttl_seconds=0).pruning
    runs, jobs = [], []
    for name, session, said, file in talks:
        number = {m.id: n for n, m in enumerate(said)}
        for window in SMALL:
            rules = Rules(pruning=pruning, window=window, assumed=True, estimator="openclaw")
            log, run = make_log_from_session(session, rules), ck.replay(session, rules)
            upto = log.upto[: log.calls]
            known = [sum(m.id in number for m in log.messages[:n]) for n in upto]
            jobs.append({"file": file, "cold": known, "window": window})
            runs.append((name, window, [sent(run, log, number, c) for c in range(log.calls)]))
    answers = asked(engines, jobs) if ask_too else []
    return runs, [[dict(call) for call in each] for each in answers]


def lengthened(talk, file):
    """The same talk without results that a placeholder or a trimmed form would make larger."""
    name, session, *_ = talk
    log = tuple(
        relength(e) if isinstance(e, Message) and e.role == "tool" else e for e in session.log
    )
    session = replace(session, log=log)
    said = [m for m in session.messages if m.role in ("user", "assistant", "tool") and m.visible]
    file.write_text(json.dumps([{**as_pi(m), "n": n} for n, m in enumerate(said)]), "utf-8")
    return name, session, said, str(file)


def relength(message):
    text = get_plain_text(message)
    if len(text) < 200:
        return message_content_and_truncation.replace_text(
            message, f"{text} {' '.join(map(str, range(100)))}"
        )
    return (
        message_content_and_truncation.replace_text(message, text[:4000])
        if 4000 < len(text) < 5000
        else message
    )


def plain(session):
    """Whether all that is sent was said, and none of it is known by its size only."""
    return not any(m.role == "summary" for m in session.messages)


def sent(run, log, number, call):
    """The results that a call of a run is not sent as they came, with their text."""
    changed = ((i.row, i.message) for i in run.sent(call) if i.changed_by and i.row >= 0)
    return {number[log.messages[row].id]: get_plain_text(m) for row, m in changed}
