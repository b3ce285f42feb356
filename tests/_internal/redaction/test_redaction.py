"""Keys leave no text: those of the environment by value, others by their shape."""

from __future__ import annotations

import pytest

from ctxkit._internal import redact, redact_json

SHAPED = [
    "sk-abcdefghijklmnop",
    "sk_live_abcdefgh1234",
    "ghp_abcdefghijklmnop",
    "github_pat_abcdefghij",
    "xoxb-1234567890-abc",
    "AKIAABCDEFGHIJKLMNOP",
    "AIzaabcdefghijklmnopqrstu",
    "glpat-abcdefghijkl",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", SHAPED)
def test_what_has_the_shape_of_a_key_goes(key):
    assert redact(f"before {key} after") == "before [redacted] after"


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer {}",
        "x-api-key: {}",
        "'Authorization': 'Basic {}",
        "bearer {}",
        "api_key={}",
        "token={}",
    ],
)
def test_what_follows_a_header_goes_and_the_header_stays(header):
    assert redact(header.format("abc123def456")) == header.format("[redacted]")


@pytest.mark.parametrize(
    "text",
    ["a basic understanding", "pk_url_kwarg", "hf_transfer_enabled", "password=os.environ[x]",
    "bearer of news", "task-oriented-planning", "def token(self): ..."],
)  # fmt: skip
def test_what_only_looks_alike_stays(text):
    assert redact(text) == text


def test_values_of_the_environment_go_wherever_they_stand(monkeypatch, tmp_path):
    monkeypatch.setenv("PLANTED_API_KEY", "plain words here")
    monkeypatch.setenv("KEY_FILE", str(tmp_path))
    given = {"a": ["x plain words here y", 3, None], "b": {"c": "plain words"}}
    assert redact_json(given) == {"a": ["x [redacted] y", 3, None], "b": {"c": "plain words"}}
    assert redact(f"in {tmp_path}") == f"in {tmp_path}"
