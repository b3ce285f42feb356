"""The figures that the magics display, read from their texts: those of the frames and the scores.

A text shows rounded figures, so each is an interval; a registered view (`metrics.figures_registered_by_view`)
shows the exact one under the same name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple
from unicodedata import east_asian_width

import pytest
from conftest import sample
from magics.ipython_shells import new_shell
from metrics.test_view_figures import all_sessions, is_missing, sources
from stand_in_models import COUNT, Says, said

import ctxkit as ck
from ctxkit.agent import Outcome
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import ToolCall, Usage

UNITS = {"k": 1e3, "M": 1e6, "m": 1e6}


class Shown(NamedTuple):
    """What a text shows: the exact figure lies between its ends."""

    low: float
    high: float

    def __add__(self, other):
        return Shown(self.low + other.low, self.high + other.high)


def parse(text: str) -> Shown | None:
    """Read a figure as it is displayed, `16k`, `$0.0054`, `1,234`, `63 %`; None: missing."""
    found = re.search(r"(\d[\d,]*(?:\.\d+)?)\s*([kMm]?)", text)
    if found is None:
        return None
    digits, unit = found[1].replace(",", ""), UNITS.get(found[2], 1)
    decimals = len(digits.partition(".")[2])
    exact = "." not in digits and unit == 1 and "%" not in text
    half = 1e-9 if exact else 0.5001 * 10**-decimals * unit
    return Shown(float(digits) * unit - half, float(digits) * unit + half)


def widen(row: str) -> str:
    """Put a second place behind each character that a terminal draws two places wide."""
    return "".join(c + " " * (east_asian_width(c) in "WF") for c in row)


def columns(text: str, *names: str) -> dict[str, list[str]]:
    """The cells of a table of text below the named heads; numbers end where their heads do."""
    rows = [widen(row) for row in text.splitlines()]
    top = next(i for i, row in enumerate(rows) if all(name in row for name in names))
    ends = {name: rows[top].index(name) + len(name) for name in names}
    body = [row for row in rows[top + 1 :] if row.strip()]
    return {
        name: [row[:end].rsplit("  ", 1)[-1].strip() if row[end - 1 : end].strip() else ""
               for row in body]
        for name, end in ends.items()
    }  # fmt: skip


def total(cells: list[str]) -> Shown | None:
    parsed = [parse(cell) for cell in cells if cell]
    return None if None in parsed else sum(parsed, Shown(0, 0))


def read_status(run, session) -> dict[str, Shown | None]:
    text = run("%context status")
    figures = {"compactions_n": parse(re.search(r"Compactions: (\S+)", text)[1])}
    size = re.search(r"Context: (\S+)/", text)
    if size and " at call " in text:  # after a compaction it is the next prompt
        figures["last_prompt_tokens"] = parse(size[1])
    return figures


def read_detail(run, session) -> dict[str, Shown | None]:
    text = run("%context detail")
    found = re.search(r"^([\d,]+) tokens \(", text, re.MULTILINE)
    return {"last_prompt_tokens": parse(found[1])} if found and " at call " in text else {}


def read_turns(run, session) -> dict[str, Shown | None]:
    text = run("%context turns")
    if "largest prompt" not in text or "The first" in text or " more" in text:
        return {}
    table = columns(text, "calls", "largest prompt", "cost", "compactions")
    peaks = [p for p in map(parse, table["largest prompt"]) if p is not None]
    figures = {"calls_n": total(table["calls"])}
    if peaks:
        figures["peak_tokens"] = max(peaks)
    costs = [cell for cell in table["cost"] if cell]
    if costs and all(map(parse, costs)):
        figures["calls_usd"] = total(costs)
    if table["compactions"] and session.calls and not any("–" in c for c in table["compactions"]):
        figures["turns_n"] = Shown(len(table["calls"]) - 1e-9, len(table["calls"]) + 1e-9)
    return figures


def read_compactions(run, session) -> dict[str, Shown | None]:
    text = run("%context compactions")
    if "before call" not in text or "The first" in text or " more" in text:
        return {}
    table = columns(text, "compaction", "cost")
    n = sum(cell.isdigit() for cell in table["compaction"])
    figures = {"compactions_n": Shown(n, n)}
    costs = [c for c, number in zip(table["cost"], table["compaction"], strict=True)
             if number.isdigit()]  # fmt: skip
    if costs and all(map(parse, costs)):
        figures["summaries_usd"] = total(costs)
    return figures


def read_spend(run, session) -> dict[str, Shown | None]:
    found = re.match(r"(\$[\d.,]+) for (?:[\d,]+ of )?([\d,]+) calls?", run("%context spend"))
    if found is None:
        return {}
    return {"with_subagents_usd": parse(found[1])} | (
        {} if session.children else {"calls_n": parse(found[2])}
    )


def read_sessions(run, session) -> dict[str, Shown | None]:
    table = columns(run("%context sessions"), "turns", "peak", "compactions", "cost")
    names = {"turns": "turns_n", "peak": "peak_tokens", "compactions": "compactions_n"}
    figures = {name: parse(table[head][0]) for head, name in names.items()}
    cost = table["cost"][0]
    return figures | ({"cost_usd": parse(cost)} if cost.startswith("$") else {})


def read_diff(run, session) -> dict[str, Shown | None]:
    if not session.edits:
        return {}
    text = run("%context diff")
    counts = {action: int(n) for n, action in re.findall(r"(\d+) (\w+)(?=[,;])", text)}
    changed = sum(counts.get(a, 0) for a in ("shortened", "replaced", "summarised", "dropped"))
    figures: dict[str, Shown | None] = {"last_affected_messages_n": Shown(changed, changed)}
    if session.prompt_source is not None:
        before, after = re.search(r"([\d,]+) → ([\d,]+) tokens in messages", text).groups()
        removed = parse(before).low - parse(after).low
        figures["last_removed_tokens"] = Shown(removed - 1e-9, removed + 1e-9)
    return figures


VIEWS = {
    "status": read_status,
    "detail": read_detail,
    "turns": read_turns,
    "compactions": read_compactions,
    "spend": read_spend,
    "sessions": read_sessions,
    "diff": read_diff,
}


@pytest.fixture(scope="module")
def shell():
    shell = new_shell()
    shell.run_line_magic("load_ext", "ctxkit")
    yield shell
    shell.run_line_magic("unload_ext", "ctxkit")


def agreed_figures(session) -> dict[str, object]:
    """The figures of the registered views; another test holds that these agree."""
    figures: dict[str, object] = {}
    for source in sources().values():
        figures.update(source(session))
    return figures


def find_differences(shell, session) -> tuple[int, list[str]]:
    shell.run_line_magic("reload_ext", "ctxkit")
    shell.user_ns["log"] = session
    shell.run_line_magic("context", "use log")

    def run(line: str) -> str:
        done = shell.run_cell(f"_shown = get_ipython().run_line_magic(*{line[1:].split(' ', 1)!r})")
        done.raise_error()
        return repr(shell.user_ns["_shown"])

    exact, pairs, found = agreed_figures(session), 0, []
    for view, read in VIEWS.items():
        for name, shown in read(run, session).items():
            if name not in exact:
                continue
            pairs, value = pairs + 1, exact[name]
            equal = is_missing(value) if shown is None else (
                not is_missing(value) and shown.low <= float(value) <= shown.high)  # fmt: skip
            if not equal:
                found.append(f"{session.format} {session.id[:24]} {view}: {name} {shown} {value}")
    return pairs, found


def check(shell, sessions, rules) -> int:
    pairs, found = 0, []
    for s in sessions:
        for one in (s, *(ck.replay(s, name) for name in rules if s.calls)):
            n, differences = find_differences(shell, one)
            pairs, found = pairs + n, found + differences
    assert found == []
    return pairs


def test_magics_show_the_figures_of_frames_and_scores(shell):
    sessions = [ck.read(ck.samples.path(name)) for name in ("billing", "research")]
    assert check(shell, sessions, ["claude_code", "fuseraft"]) > 60


def test_magics_show_them_of_real_sessions(shell, real):
    sessions = all_sessions(real)
    chosen = {s.format: s for s in sessions}
    assert check(shell, [*chosen.values(), *sample(sessions, 2)], []) > 100


@pytest.mark.long
def test_magics_show_them_of_every_session_and_a_replay(shell, real):
    assert check(shell, all_sessions(real), ["pi"]) > 2_000


def test_a_wrong_figure_on_the_screen_is_found(shell, monkeypatch):
    from ctxkit.magics import session_report_commands

    monkeypatch.setattr(session_report_commands, "count_compactions", lambda session, before: 7)
    _, found = find_differences(shell, ck.read(ck.samples.path("billing")))
    assert [line for line in found if "status: compactions_n" in line]


# -- a turn of `%%agent` ---------------------------------------------------------------------------

PROMPTS = (900, 2_100, 9_000, 3_300, 4_800, 1_700)


class Priced(Says):
    """A model whose provider states what each call cost; its prompts are of given sizes."""

    name, notice, context_window = "test/priced", "", 20_000

    def __init__(self):
        super().__init__()
        self.calls_n = 0

    async def __call__(self, request, emit):
        tokens = PROMPTS[self.calls_n % len(PROMPTS)]
        self.calls_n += 1
        usage = Usage(
            input_tokens=tokens // 3, cache_read_tokens=tokens - tokens // 3,
            output_tokens=7 + self.calls_n, cost_usd=0.01 * self.calls_n,
        )  # fmt: skip
        if self.calls_n % 2 and request.tools:
            return said(ToolCall(f"c{self.calls_n}", "list_files", {}), stop="tool", usage=usage)
        return said(f"Done {self.calls_n}.", usage=usage)


def read_end_line(text: str) -> dict[str, Shown | None]:
    """Read the last line of the account of a turn."""
    found = re.findall(
        r"(\S+) calls? · (\S+) fresh / (\S+) cached / (\S+) out · (\S+).*? · context "
        r"([\d,]+)/\S+ \(([^)]+)\) · (\d+) compactions?",
        text,
    )[-1]
    names = ("calls_n", "fresh", "cached", "out", "cost_usd", "context", "full", "compactions_n")
    return dict(zip(names, map(parse, found), strict=True))


def read_bar(text: str) -> dict[str, Shown | None]:
    """Read the last bar of the live view of a turn."""
    used, limit, full = re.findall(r"\] ([\d,]+)/([\d,]+) tokens \(([^)]+)\)", text)[-1]
    return {"context": parse(used), "limit": parse(limit), "full": parse(full)}


def turn_figures(session) -> dict[str, float | None]:
    """What the frames have of the last turn, with the calls that wrote summaries in it."""
    calls, compactions = ck.frame(session, per="call"), ck.frame(session, per="compaction")
    turn = int(calls["turn"].iloc[-1])
    calls = calls[calls["turn"] == turn]
    compactions = compactions[(compactions["turn"] == turn) & compactions["compaction"].notna()]
    summaries = [session.path[at].usage for at in compactions["position"]]
    cached = calls["cache_read_tokens"].sum() + sum(u.cache_read_tokens for u in summaries)
    prompts = calls["prompt_tokens"].sum() + sum(u.prompt_tokens for u in summaries)
    return {
        "calls_n": len(calls),
        "fresh": prompts - cached,
        "cached": cached,
        "out": calls["output_tokens"].sum() + sum(u.output_tokens for u in summaries),
        "cost_usd": calls["cost_usd"].sum() + compactions["cost_usd"].sum(),
        "context": agreed_figures(session)["last_prompt_tokens"],
        "compactions_n": len(compactions),
    }


def live_differences(shell, capsys, cell: str) -> tuple[dict[str, float | None], list[str]]:
    capsys.readouterr()
    done = shell.run_cell(cell, store_history=True)
    done.raise_error()
    exact = turn_figures(done.result.session)
    lines = {
        "end line": read_end_line(repr(done.result)), "live bar": read_bar(capsys.readouterr().out)
    }  # fmt: skip
    bar = lines["live bar"]
    full = 100 * bar["context"].low / bar["limit"].low
    return exact, [
        f"{line}: {name} {shown} {value}"
        for line, figures in lines.items()
        for name, shown in figures.items()
        if name != "limit" and (value := full if name == "full" else exact[name]) is not None
        and not (shown and shown.low - 1e-9 <= value <= shown.high + 1e-9)
    ]  # fmt: skip


@pytest.fixture
def priced(monkeypatch, tmp_path, shell):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ctxkit.agent.models.model_factory.make_model", lambda *_, **__: Priced())
    shell.run_line_magic("reload_ext", "ctxkit")
    shell.user_ns["rules"] = Rules(
        policy=Summary(keep_turns=1), trigger=Above(3_000), counter=COUNT, window=20_000
    )
    return shell


HEAD = "%%agent --session priced --model scripted/tour --rules rules --tools files --memory off\n"


def test_the_end_line_and_the_bar_show_the_figures_of_the_frames(priced, capsys):
    turns = [live_differences(priced, capsys, f"{HEAD}Turn {i}, go on.") for i in range(5)]
    assert [line for _, differences in turns for line in differences] == []
    assert sum(exact["compactions_n"] for exact, _ in turns) >= 1
    assert all(exact["cost_usd"] > 0 for exact, _ in turns)


@pytest.mark.parametrize("figure", ["context_tokens", "compactions"])
def test_a_wrong_figure_in_the_end_line_is_found(priced, capsys, monkeypatch, figure):
    account = Outcome.account
    monkeypatch.setattr(Outcome, "account", lambda o: account(replace(o, **{figure: 77})))
    _, differences = live_differences(priced, capsys, f"{HEAD}Go.")
    assert [line for line in differences if line.startswith("end line")]


def test_a_wrong_size_in_the_diff_is_found(shell, monkeypatch):
    from ctxkit.plots import compaction_diff_chart

    monkeypatch.setattr(compaction_diff_chart, "_sent_tokens", lambda session, call: {})
    session = ck.replay(ck.samples.path("billing"), "claude_code")
    exact = ck.frame(session, per="compaction").iloc[-1]
    shell.user_ns["log"] = session
    shell.run_line_magic("reload_ext", "ctxkit")
    shell.run_line_magic("context", "use log")
    found = read_diff(lambda line: repr(shell.run_line_magic(*line[1:].split(" ", 1))), session)
    assert found["last_removed_tokens"].low > exact["tokens_before"] - exact["tokens_after"] + 1
