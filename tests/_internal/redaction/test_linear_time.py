"""Any text is gone over in linear time: four times the text takes about four times as long."""

from __future__ import annotations

import time

import pytest
from _internal.redaction.secret_corpus import B64, block, drawn

from ctxkit._internal import StreamRedactor, redact

HOSTILE = [
    "-----BEGIN RSA PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----", block(1)[:200] + "\n",
    drawn(1, B64, 997), "a", "-", "eyJ-", "eyJabcdefgh.", "sk-", "password=", 'password="',
    "api_key:", "http://a:", "://", "cookie: a=", "login a password ", "a:12:", ".aaaaaa",
    "curl -u a:", "123456789:AA", "\\", "\\n", " ", "\n", "authorization: ", "secret=a1b2c3",
    "AKIA", "$2b$", "<password>", "password is ", "?code=", "Q~", "\u0130", "\ud800",
    "Private-Lines: 2\n", "seed phrase: ", "token%22%3a", "ENV API_TOKEN ", "smbclient -U a:",
    "\x1b", "\x1b[", "\x1b[31m", "a\x1b[m", "sk-\x1b[m", "\x1b]8;;", "\x1b]0;a\x07", "\x9b", "\u200b", "7ghp_",
    "hf_\x1b[ma", "\\u001b[", "\\u001b[m", "^[[", drawn(2, B64, 64) + "\n", drawn(3, B64, 64) + "\\n", '\\n"',
    "hooks.slack.com/services/a/", "x/hooks/a", "chat.googleapis.com/v1/a?", "-----END PRIVATE KEY-----\n", "1:a\n",
    drawn(4, B64, 64) + "\n-----END PRIVATE KEY-----\n", "password\x1b[m=", "%0a:AA", "maker.ifttt.com/trigger/",
]  # fmt: skip


def seconds(text):
    begun = time.thread_time()
    redact(text)
    return time.thread_time() - begun


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
def test_time_grows_with_the_text_and_no_faster(unit):
    holds("", unit)


def test_backslashes_beside_a_json_web_key_take_no_longer():
    holds('"kty"', "\\")


def test_a_stream_holds_an_open_putty_key_without_trying_every_way_to_break_its_lines():
    begun, stream = time.thread_time(), StreamRedactor([])
    shown = stream.feed("Private-Lines: 2" + "\n" * 24 + "!") + stream.flush()
    assert shown.endswith("!")
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize(
    "unit", ["\x1b[31ma", "\x1b]0;a b\x07", drawn(5, B64, 64) + "\n", "\u200b \u200b"]
)
def test_a_stream_takes_linear_time_for_escapes_and_lines_of_keys(unit):
    def stream_seconds(size):
        stream, begun = StreamRedactor([]), time.thread_time()
        for i in range(0, size, 400):
            stream.feed((unit * 400)[i % len(unit) :][:400])
        return time.thread_time() - begun

    stream_seconds(1000)
    few = min(stream_seconds(50_000) for _ in range(2))
    assert any(stream_seconds(200_000) < 8 * max(few, 0.01) for _ in range(2))


def holds(start, unit):
    small, large = (start + unit * (size // len(unit)) for size in (20_000, 80_000))
    assert len(redact(small[:100])) > 0
    few = min(seconds(small) for _ in range(3))
    assert any(seconds(large) < 8 * max(few, 0.002) for _ in range(2))
