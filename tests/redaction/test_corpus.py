"""How much is found and how much is left alone, over made secrets and innocent texts."""

from __future__ import annotations

import pytest
from redaction.corpus import B64, INNOCENT, PREFIXED, basic, beside, block, drawn, prefixed

from ctxkit.redaction import MARK, redact, redacted
from ctxkit.redaction.redacted_streams import Stream

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
    assert redacted(given) == {**given, "password": "[redacted]"}


def test_a_key_of_an_object_can_be_a_secret_itself():
    _, _, body = prefixed(1)[15]
    assert redacted({f"sk-{body}": {"n": 1}}) == {"[redacted]": {"n": 1}}


PHRASE = "abandon ability able about above absent absorb abstract absurd abuse access accident"


@pytest.mark.parametrize(
    "form", ['MNEMONIC="{}"', "seed phrase: {}", '{{"recovery_phrase": "{}"}}']
)
def test_the_words_of_a_wallet_go(form):
    assert redact(form.format(PHRASE)) == form.format(MARK)
    assert redact(form.format("is what opens it")) == form.format("is what opens it")


def test_the_lines_of_a_putty_key_go():
    lines = "\n".join(drawn(i, B64, 64) for i in range(14))
    assert redact(f"Private-Lines: 14\n{lines}\nPrivate-MAC: 0") == (
        f"Private-Lines: 14\n{MARK}Private-MAC: 0"
    )
    shown = Stream([])
    pieces = [shown.feed(p) for p in f"Private-Lines: 14\n{lines}\nPrivate-MAC: 0".splitlines(True)]
    assert not left(lines, "".join([*pieces, shown.flush()]))


@pytest.mark.parametrize(("prefix", "alphabet", "length"), PREFIXED)
def test_a_vendors_key_is_missed_less_than_once_in_fifty(prefix, alphabet, length):
    keys = [prefix + drawn(seed, alphabet, length) for seed in range(300)]
    assert sum(redact(key) == key for key in keys) <= 6


def test_a_phrase_is_held_back_until_it_is_known_to_be_none():
    stream = Stream([])
    text = f"seed phrase: {PHRASE}. And then"
    assert "".join([*map(stream.feed, text), stream.flush()]) == f"seed phrase: {MARK}. And then"
