"""aider: requests, answers and what the program said; usage from its lines; several starts in a file."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.formats import Source, read_source
from ctxkit.formats.aider import parse_usage_line

CHAT = """
# aider chat started at 2024-08-05 13:33:02

> Aider v0.48.0
> Model: gpt-4o with diff edit format

#### mend a.py
#### and b.py

Here:

```diff
> not output
#
```

> Tokens: 5,244 sent, 604 received. Cost: $0.02 request, $0.02 session.
> Applied edit to a.py

#### /run make

> failed

I see.

# aider chat started at 2024-08-06 13:33:02

#### again

Yes.
"""


def test_each_start_is_a_session():
    a, b = read_source(Source("h.md", CHAT.encode()))
    assert (a.model, b.started - a.started) == ("gpt-4o", 86_400)
    assert [m.role for m in a.messages if m.visible] == ["user", "assistant", "user", "assistant"]
    assert a.messages[1].text == "mend a.py\nand b.py"
    assert "> not output" in a.call(0).message.text


def test_usage_stands_at_the_answer_it_was_for():
    a, _ = read_source(Source("h.md", CHAT.encode()))
    u = a.call(0).message.usage
    assert (u.input_tokens, u.output_tokens, u.cost_usd) == (5_244, 604, 0.02)


def test_output_that_is_answered_was_sent():
    a, _ = read_source(Source("h.md", CHAT.encode()))
    assert a.view(-1)[-1].text == "failed"


@pytest.mark.parametrize(
    ("line", "fresh", "read", "write"),
    [
        (
            "Tokens: 13k sent, 1.6k cache write, 10k cached, 604 received. Cost: $0.02 message.",
            1_400,
            10_000,
            1_600,
        ),
        ("Tokens: 1.6k sent, 40 received.", 1_600, None, None),
    ],
)
def test_rounded_thousands(line: str, fresh: int, read: int | None, write: int | None):
    u = parse_usage_line(line)
    assert (u.input_tokens, u.cache_read_tokens, u.cache_write_tokens) == (fresh, read, write)


def test_a_published_page_is_one_session(real):
    s = ck.read(real / "aider/add-test.md")
    assert [m.kind for m in s.messages if m.role == "user" and m.kind] == [
        "command",
        "output",
        "command",
    ]
    assert len(s.calls) == 2
    assert not any("<div" in m.text for m in s.messages)
