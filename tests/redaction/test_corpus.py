"""How much is found and how much is left alone, over made secrets and innocent texts."""

from __future__ import annotations

import pytest
from redaction.corpus import INNOCENT, basic, beside, block, prefixed

from ctxkit.redaction import redact, redacted

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
