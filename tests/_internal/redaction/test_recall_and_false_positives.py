"""How much is found and how much is left alone, over made secrets and innocent texts."""

from __future__ import annotations

import pytest
from _internal.redaction.secret_corpus import (
    B64,
    HEX,
    INNOCENT,
    PREFIXED,
    basic,
    beside,
    block,
    drawn,
    prefixed,
)

from ctxkit._internal import REDACTION_MARK, StreamRedactor, redact, redact_json

SEEDS = range(8)


def left(secret, text):
    """True where six characters in a row of a secret are left."""
    return any(secret[i : i + 6] in text for i in range(len(secret) - 5))


def missed(cases):
    return [
        (kind, text, redact(text)) for kind, text, secret in cases if left(secret, redact(text))
    ]


def test_nearly_every_vendors_key_goes():
    cases = [case for seed in SEEDS for case in prefixed(seed)]
    lost = missed(cases)
    assert len(cases) >= 600
    assert len(lost) <= 0.005 * len(cases), lost


def test_nearly_every_secret_beside_a_name_goes():
    cases = [case for seed in SEEDS for case in beside(seed)]
    lost = missed(cases)
    assert len(cases) >= 600
    assert len(lost) <= 0.005 * len(cases), lost


def test_innocent_texts_stay():
    assert [(t, redact(t)) for t in INNOCENT if redact(t) != t] == []


def test_innocent_texts_stay_together_and_in_json():
    text = "\n".join(INNOCENT)
    assert redact(text) == text


@pytest.mark.parametrize(
    "kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
@pytest.mark.parametrize("gap", ["\n", "\r\n", "\\n", "\\\\n", "\n    "])
def test_a_block_goes_whole_whatever_breaks_its_lines(kind, gap):
    assert redact(f"a {block(1, kind, gap)} b") == "a [redacted] b"


def test_a_block_that_is_cut_off_goes_as_far_as_it_reaches():
    cut = block(1).rsplit("\n", 1)[0]
    assert redact(f"{cut}\nprose follows") == "[redacted]\nprose follows"


def test_basic_credentials_go():
    assert redact(f"Authorization: Basic {basic(3)}") == "Authorization: Basic [redacted]"


def test_what_is_redacted_stays_as_it_is():
    for _, text, _ in [*prefixed(1), *beside(1)]:
        assert redact(redact(text)) == redact(text)


def test_a_key_of_an_object_tells_what_its_value_is():
    given = {
        "password": "Sup3rSecret9",
        "password_field": "name",
        "api_key": "OPENAI_API_KEY",
        "signature": "Eq" * 40,
    }
    assert redact_json(given) == {**given, "password": "[redacted]"}


def test_a_key_of_an_object_can_be_a_secret_itself():
    _, _, body = prefixed(1)[15]
    assert redact_json({f"sk-{body}": {"n": 1}}) == {"[redacted]": {"n": 1}}


PHRASE = "abandon ability able about above absent absorb abstract absurd abuse access accident"


@pytest.mark.parametrize(
    "form", ['MNEMONIC="{}"', "seed phrase: {}", '{{"recovery_phrase": "{}"}}']
)
def test_the_words_of_a_wallet_go(form):
    assert redact(form.format(PHRASE)) == form.format(REDACTION_MARK)
    assert redact(form.format("is what opens it")) == form.format("is what opens it")


def test_the_lines_of_a_putty_key_go():
    lines = "\n".join(drawn(i, B64, 64) for i in range(14))
    assert redact(f"Private-Lines: 14\n{lines}\nPrivate-MAC: 0") == (
        f"Private-Lines: 14\n{REDACTION_MARK}Private-MAC: 0"
    )
    shown = StreamRedactor([])
    pieces = [shown.feed(p) for p in f"Private-Lines: 14\n{lines}\nPrivate-MAC: 0".splitlines(True)]
    assert not left(lines, "".join([*pieces, shown.flush()]))


@pytest.mark.parametrize(("prefix", "alphabet", "length"), PREFIXED)
def test_a_vendors_key_is_missed_less_than_once_in_fifty(prefix, alphabet, length):
    keys = [prefix + drawn(seed, alphabet, length) for seed in range(300)]
    assert sum(redact(key) == key for key in keys) <= 6


def test_a_phrase_is_held_back_until_it_is_known_to_be_none():
    stream = StreamRedactor([])
    text = f"seed phrase: {PHRASE}. And then"
    assert (
        "".join([*map(stream.feed, text), stream.flush()])
        == f"seed phrase: {REDACTION_MARK}. And then"
    )


def armoured(kind: str, seed: int, lines: int = 9, size: int = 64, head: str = "") -> str:
    """Return a block of base64 that is no private key."""
    body = "\n".join(
        [*(drawn(seed + i, B64, size) for i in range(lines)), drawn(seed, B64, 20) + "=="]
    )
    return f"-----BEGIN {kind}-----\n{head}{body}\n-----END {kind}-----"


PUBLIC = [
    armoured("CERTIFICATE", 1), armoured("PUBLIC KEY", 2), armoured("CERTIFICATE REQUEST", 3, 100),
    armoured("PGP SIGNATURE", 4, head="Version: GnuPG v2\n\n"), armoured("PGP PUBLIC KEY BLOCK", 5, 40, head="\n"),
    "\n".join([armoured("CERTIFICATE", 6), armoured("CERTIFICATE", 7)]),
    armoured("CERTIFICATE", 8).partition("\n")[2], armoured("CERTIFICATE", 9).rpartition("\n")[0],
    armoured("SSH2 PUBLIC KEY", 10, 5, 70, 'Comment: "x"\n').replace("-----", "---- ").replace(" \n", " ----\n"),
    "iVBORw0KGgo" + drawn(11, B64, 53) + "\n" + "\n".join(drawn(i, B64, 64) for i in range(12, 20)),
    "\n".join(drawn(i, B64, 76) for i in range(9)) + "\n" + drawn(9, B64, 64),
    "\n".join(drawn(i, B64, 64) for i in range(150)),
    "\n".join(drawn(i, HEX, 64) for i in range(9)), drawn(1, HEX, 128), "a" * 64, drawn(2, B64, 68),
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC, ids=range(len(PUBLIC)))
def test_certificates_public_keys_pictures_and_checksums_stay(text):
    assert redact(f"see\n{text}\nthere") == f"see\n{text}\nthere"
    stream = StreamRedactor([])
    pieces = [stream.feed(f"see\n{text}\nthere"[i : i + 7]) for i in range(0, len(text) + 10, 7)]
    assert "".join([*pieces, stream.flush()]) == f"see\n{text}\nthere"


@pytest.mark.parametrize("mark", ["", "+", "-", "> "])
def test_a_line_that_begins_as_a_difference_marks_its_lines_is_one(mark):
    lines = ["+" + drawn(1, B64, 69), drawn(2, B64, 70)]
    both = "\n".join(mark + line for line in lines), f"-{lines[1]}\n+{lines[0]}"
    for text in (lines[0], mark + lines[1], *both):
        assert not left(lines[0], redact(text))
        assert not left(lines[1], redact(text))


LINES = [drawn(i, B64, 64) for i in range(20, 24)]


@pytest.mark.parametrize("form", [
    "{0}", "     5\t{0}", "5:{0}", "+{0}", "> {0}", "{0}\r\n{1}\r", "{0}\n{1}\n{2}", "  {0}\n  {1}", '{{"out": "{0}\\n"}}',
    '{{"out": "a\\n{0}\\n{1}"}}', "\x1b[38;5;240m   5\x1b[0m \x1b[33m{0}\x1b[0m", "{0}\n-----END RSA PRIVATE KEY-----",
])  # fmt: skip
def test_lines_of_a_private_key_go_where_its_beginning_is_not_there(form):
    shown = redact(f"see\n{form.format(*LINES)}\nthere")
    assert [line for line in LINES if left(line, shown)] == []
    assert shown.startswith("see\n")
