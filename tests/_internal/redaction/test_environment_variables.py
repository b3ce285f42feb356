"""Secrets of the environment go in every form; ordinary words, numbers and paths stay."""

from __future__ import annotations

import base64
import json
import os
from urllib.parse import quote

import pytest
from _internal.redaction.secret_corpus import ALNUM, HEX, block, drawn

from ctxkit._internal import (
    REDACTION_MARK,
    get_environment_secrets,
    get_environment_without_secrets,
    redact,
)

KEY = drawn(11, ALNUM, 24)
SECRET = [
    ("PLANTED_API_KEY", KEY), ("DB_PASSWORD", "Tr0ub4dor3xyz"), ("DB_PASS", "hunter2hunter"),
    ("MYSQL_PWD", "hunter2hunter"), ("GITHUB_AUTH", drawn(1, HEX, 32)),
    ("JWT_SECRET", "correct horse battery"), ("NPM_TOKEN_2", KEY), ("AZURE_PAT", KEY),
    ("SENTRY_DSN", f"https://{drawn(2, HEX, 32)}@o1.ingest.sentry.io/2"), ("SESSION_COOKIE", KEY),
    ("MY_CREDENTIALS", KEY), ("SECRET_KEY_BASE", drawn(3, HEX, 64)),
    ("PLANTED_PASSPHRASE", "correct-horse-battery-staple"), ("X_APIKEY", KEY),
    ("ANYTHING", "ghp_" + drawn(4, ALNUM, 36)),
    ("DATABASE_URL", "postgres://app:Hunter2Hunter2@db:5432/x"),
    ("DB_PASSWORD", "hunter2"), ("DB_PASS", "s3cr3t"), ("PGPASSWORD", "p@ss-1"), ("SMTP_PWD", "xkqzpw"),
    ("API_TOKEN", "abc123\n"), ("APP_SECRETS", "blue-42-horse"), ("GCP_CREDENTIALS_JSON", "blue-42-horse"),
    ("API_TOKEN", "~" + drawn(5, ALNUM, 24)), ("API_TOKEN", "/" + drawn(6, ALNUM, 300)),
]  # fmt: skip
ORDINARY = [
    ("MONKEY_MODE", "production"), ("OPENAI_API_KEY", "lm-studio"),
    ("TOKENIZER_NAME", "bert-base-uncased"), ("KEYCLOAK_URL", "https://keycloak.example.org/auth"),
    ("DB_PASSWORD", "production"), ("API_KEY", "sk-none"), ("KEYBOARD_LAYOUT", "us-international"),
    ("SECRET_NAME", "prod/database"), ("TOKEN_LIMIT", "128000000"),
    ("SSH_AUTH_SOCK", "/tmp/ssh-agent.sock"), ("API_TOKEN", "undefined"),
    ("PASSWORD_FILE", "/run/secrets/password1"), ("SECRET_KEY", "changeme-please"),
    ("AUTH", "disabled"), ("DB_PASSWORD", "test1"), ("DB_PASSWORD", "secret"), ("API_TOKEN", "123456"),
    ("API_KEY", "gpt-4"), ("AUTH_TOKEN", "v1.2.3"[:5]), ("SECRET", "a/b.cd"), ("SORT_KEYS", "name,age"), ("HOTKEYS", "ctrl+x"), ("API_KEY", "12345678"), ("PWD", "/home/user1/work2"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_a_secret_goes_wherever_it_stands(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert value.strip() not in redact(f"I saw {value.strip()}, there")


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_no_program_that_is_started_gets_it(monkeypatch, name, value):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv(name, value)
    assert "PATH" in get_environment_without_secrets()
    assert name not in get_environment_without_secrets()


@pytest.mark.parametrize(("name", "value"), ORDINARY)
def test_an_ordinary_value_stays(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert get_environment_secrets() == []


def test_the_password_of_a_url_goes_by_itself(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://app:Hunter2%40Hunter2@db:5432/x")
    assert redact("it is Hunter2@Hunter2 or Hunter2%40Hunter2") == "it is [redacted] or [redacted]"


@pytest.mark.parametrize("value", [KEY, 'Tr0ub"4dor\\3&xyz/+', "correct horse battery"])
def test_every_encoded_form_goes(monkeypatch, value):
    monkeypatch.setenv("PLANTED_PASSWORD", value)
    raw = value.encode()
    forms = [base64.b64encode(raw), base64.urlsafe_b64encode(raw),
             base64.b64encode(b"bob:" + raw), base64.b64encode(b"ab" + raw + b"c"),
             base64.b64encode(b"x" + raw).rstrip(b"="), raw.hex().encode(),
             raw.hex().upper().encode(), quote(value, safe="").encode(),
             json.dumps(value)[1:-1].encode()]  # fmt: skip
    for form in map(bytes.decode, forms):
        left = redact(f"see {form} there")
        assert "[redacted]" in left, form
        assert len(left) <= len("see [redacted] there") + 10, form


def test_a_short_value_goes_where_it_stands_alone_and_not_within_a_word(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    whole = [
        "hunter2",
        "'hunter2'",
        "x=hunter2;",
        "\x1b[31mhunter2\x1b[0m",
        "hun\x1b[1mter2",
        r"\nhunter2\n",
    ]
    assert [redact(text) for text in whole if "[redacted]" not in redact(text)] == []
    for text in ("hunter22", "my_hunter2", "ahunter2", "hunter2_x"):
        assert redact(text) == text


LINES = "first: Xk9-2mQ7w\npassword = blue-42-horse\n[default]\nab12cd34ef\ncorrect horse\n# a comment\nplain\nabcd="


@pytest.mark.parametrize(("line", "is_secret"), [
    ("blue-42-horse", True), ("ab12cd34ef", True), ("correct horse", True), ("[default]", False),
    ("# a comment", False), ("plain", False), ("first", False), ("abcd=", False),
])  # fmt: skip
@pytest.mark.parametrize("gap", ["\n", "\r\n", "\\n"])
def test_a_line_of_a_value_of_several_goes_by_itself(monkeypatch, gap, line, is_secret):
    monkeypatch.setenv("SERVICE_CREDENTIALS", LINES.replace("\n", gap))
    assert redact(f"it is {line} there") == f"it is {REDACTION_MARK if is_secret else line} there"


def test_a_line_of_a_private_key_goes_whatever_its_variable_is_called(monkeypatch):
    short = "\n".join(drawn(i, ALNUM, 40) for i in range(3))
    monkeypatch.setenv("DEPLOY", f"-----BEGIN PRIVATE KEY-----\n{short}\n-----END PRIVATE KEY-----")
    assert redact(f"it is {drawn(1, ALNUM, 40)} there") == f"it is {REDACTION_MARK} there"


@pytest.mark.parametrize("gap", ["\n", "\\n"])
def test_a_value_of_several_lines_goes_line_by_line(monkeypatch, gap):
    whole = block(6, gap=gap)
    monkeypatch.setenv("SERVICE_PRIVATE_KEY", whole)
    lines = whole.split(gap)
    assert redact(f"one line: {lines[3]}!") == "one line: [redacted]!"
    assert redact(f"escaped: {json.dumps(whole)}") == 'escaped: "[redacted]"'
    assert (
        redact("-----BEGIN RSA PRIVATE KEY----- is a header")
        == "-----BEGIN RSA PRIVATE KEY----- is a header"
    )
