"""A missing key is told before LiteLLM is imported, in the words of LiteLLM's own look."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ctxkit.agent import load_litellm
from ctxkit.agent.models import litellm_provider as keys
from ctxkit.errors import ModelError

NAMES = [
    *{
        k
        for group in (keys._KEY_VARIABLES, keys._OTHER_KEY_VARIABLES)
        for names in group.values()
        for k in names
    }
]


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No key, no `.env` above the working folder, LiteLLM as if it were not imported."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.setattr(keys, "util", SimpleNamespace(find_spec=lambda _name: None))


@pytest.mark.parametrize("provider", keys._KEY_VARIABLES)
def test_the_table_is_litellm_s(provider, monkeypatch):
    litellm = load_litellm()
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    missing = litellm.validate_environment(f"{provider}/some-model")["missing_keys"]
    assert tuple(missing) == keys._KEY_VARIABLES[provider]
    for name in (*keys._KEY_VARIABLES[provider], *keys._OTHER_KEY_VARIABLES.get(provider, ())):
        with monkeypatch.context() as patch:
            patch.setenv(name, "x")
            assert litellm.validate_environment(f"{provider}/some-model")["missing_keys"] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gpt-4o", "OPENAI_API_KEY"),
        ("gemini/gemini-2.5-pro", "GOOGLE_API_KEY or GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_named(bare, name, wanted):
    with pytest.raises(ModelError) as e:
        keys.check_api_key(name, {})
    assert str(e.value) == f"{name} needs a key: set the environment variable {wanted}."


@pytest.mark.parametrize(
    "name", ["ollama_chat/qwen3:4b", "bedrock/x", "my-own/model", "unknown", ""]
)
def test_nothing_is_said_of_what_only_litellm_knows(bare, name):
    keys.check_api_key(name, {})


def test_a_key_given_otherwise_will_do(bare, monkeypatch, tmp_path):
    name = "anthropic/claude-sonnet-4-5"
    keys.check_api_key(name, {"api_key": "x"})
    keys.check_api_key(name, {"api_base": "http://127.0.0.1:1"})
    with monkeypatch.context() as patch:
        patch.setenv("ANTHROPIC_AUTH_TOKEN", "x")
        keys.check_api_key(name, {})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "litellm", object())
        keys.check_api_key(name, {})
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=x")
    keys.check_api_key(name, {})


def test_litellm_is_not_imported_to_say_so(tmp_path):
    script = (
        "import asyncio, sys\n"
        "from ctxkit.agent.models.model import Request, ignore_delta as silent\n"
        "from ctxkit.agent.models.litellm_provider import ProviderModel\n"
        "try:\n"
        "    asyncio.run(ProviderModel('anthropic/claude-sonnet-4-5')(Request(messages=()), silent))\n"
        "except Exception as e:\n"
        "    print(e, 'litellm' in sys.modules)\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith("set the environment variable ANTHROPIC_API_KEY. False")
