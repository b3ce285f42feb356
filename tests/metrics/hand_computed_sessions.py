"""Sessions whose every figure is worked out by hand."""

from __future__ import annotations

from builders import assistant, result, session, summarised, system, tool_call, user

from ctxkit.session import Session, Usage

MODEL = "claude-sonnet-4-5"
"""Its prices in dollars a million tokens: input 3, output 15, cache read 0.3, cache write 3.75."""


def make_priced_session() -> Session:
    """Return four calls of three turns, a read that fails in the second, and a compaction before the third."""
    read = tool_call("read_file", id="c1", path="docs/notes.txt")
    missing = tool_call("read_file", id="c2", path="log.txt")
    head = [
        system("You are an agent.", id="s"),
        user("Count the words of docs/notes.txt and docs/data.csv.", id="u1", time=1000.0),
        _reply("Reading.", read, id="a1", time=1010.0, fresh=1000, read=0, written=400, out=50),
        result("one two three", read, id="r1", time=1011.0),
        _reply(
            "Now the log.", missing, id="a2", time=1020.0, fresh=100, read=1400, written=0, out=30
        ),
        result("No such file", missing, id="r2", time=1021.0, is_error=True),
    ]
    tail = [
        summarised(head[1:4], "docs/notes.txt has three words."),
        user("And now?", id="u2", time=1100.0),
        _reply(
            "Three words in docs/notes.txt.",
            id="a3",
            time=1110.0,
            fresh=600,
            read=0,
            written=0,
            out=20,
        ),
        user("Thanks.", id="u3", time=1200.0),
        _reply(
            "docs/data.csv is still open.",
            id="a4",
            time=1210.0,
            fresh=100,
            read=600,
            written=0,
            out=10,
        ),
    ]
    return session(*head, *tail, model=MODEL, title="By hand")


def _reply(text, *calls, id, time, fresh, read, written, out):
    usage = Usage(
        input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=written, output_tokens=out
    )
    return assistant(text, *calls, id=id, time=time, usage=usage, model=MODEL)
