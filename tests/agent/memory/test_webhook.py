"""The webhook over real HTTP: what is asked and told, and every bad answer ends in a sentence, in time."""

from __future__ import annotations

import asyncio
import time

import pytest
from agent.memory.webhook_server import BAD, hook
from waiting import PATIENCE

from ctxkit.agent import WebhookMemoryProvider
from ctxkit.errors import BadArguments, StoreError


def test_a_block_is_loaded_for_an_agent_with_headers_from_the_environment(monkeypatch):
    """F24: A webhook gives the block; headers take variables of the environment, missing ones are empty."""
    monkeypatch.setenv("MEMORY_WORD", "open-sesame-42")
    with hook() as (url, asked):
        made = WebhookMemoryProvider(
            load_url=f"{url}/load",
            headers={"X-Word": "${MEMORY_WORD}", "X-None": "a${NOT_THERE_}b"},
        )
        assert asyncio.run(made.before("main")) == "User prefers tabs."
    path, headers, body = asked[0]
    assert (path, body) == ("/load", {"agent": "main"})
    assert (headers["X-Word"], headers["X-None"]) == ("open-sesame-42", "ab")
    assert "sesame" not in repr(made)


def test_the_talk_is_saved_every_so_many_turns_without_keys():
    """F24: The talk goes to the webhook every N turns."""
    key = "sk-ant-api03-" + "Ab1" * 30
    with hook() as (url, asked):
        made = WebhookMemoryProvider(save_url=f"{url}/save", save_every=3)
        said = [("user", f"Use {key}."), ("assistant", "Yes.")]
        saved = [asyncio.run(made.after("main", said, turn)) for turn in range(1, 7)]
    assert saved == [False, False, True, False, False, True]
    assert asked[0][0] == "/save"
    assert asked[0][2]["history"][1] == {"role": "assistant", "content": "Yes."}
    assert key not in str(asked)


@pytest.mark.parametrize("manner", BAD)
def test_a_bad_answer_is_a_sentence_in_time(manner):
    with hook(manner) as (url, asked):
        has_no_end = manner in ("hangs", "drips")
        began, seconds = time.monotonic(), 1.5 if has_no_end else PATIENCE
        with pytest.raises(StoreError, match=r"^The memory's webhook .*\.$"):
            asyncio.run(WebhookMemoryProvider(load_url=url, seconds=seconds).before("main"))
        assert time.monotonic() - began < PATIENCE
        assert len(asked) <= 1  # a redirect is not followed
        assert asked or has_no_end


def test_a_server_that_is_not_there_is_a_sentence():
    with hook() as (url, _):
        pass
    with pytest.raises(StoreError, match="could not be asked"):
        asyncio.run(WebhookMemoryProvider(load_url=url, seconds=PATIENCE).before("main"))


def test_a_long_block_is_cut_and_controls_go():
    with hook(block="a\x1b[2Jb\u202e" + "x" * 100_000) as (url, _):
        block = asyncio.run(WebhookMemoryProvider(load_url=url).before("main"))
    assert len(block) < 8_100
    assert block.startswith("abx")
    assert block.endswith("(cut to 8,000 characters)")
    with (
        hook(block="x" * 1_000_000) as (url, _),
        pytest.raises(StoreError, match="more than 1,000,000 bytes"),
    ):
        asyncio.run(WebhookMemoryProvider(load_url=url).before("main"))


@pytest.mark.parametrize("given", [{}, {"load_url": "file:///etc/passwd"}, {"load_url": "http://a:b@c"},
                                   {"save_url": "http://x", "seconds": 0}])  # fmt: skip
def test_what_cannot_be_an_endpoint_is_refused(given):
    with pytest.raises(BadArguments):
        WebhookMemoryProvider(**given)


@pytest.mark.parametrize("block", [None, ""])
def test_a_server_with_nothing_to_say_costs_no_word(block):
    """As in fuseraft nothing is put in where the block is null or empty, and that is no failure."""
    with hook(block=block) as (url, _):
        assert asyncio.run(WebhookMemoryProvider(load_url=url).before("main")) == ""


@pytest.mark.parametrize(
    "bad", ["correct\nhorse", "correct\r\nX-Evil: horse", "pferd\U0001f40e horse"]
)
def test_a_header_that_cannot_be_sent_is_named_and_its_value_is_not(monkeypatch, bad):
    monkeypatch.setenv("WORD_OF_MINE", bad)
    made = WebhookMemoryProvider(
        load_url="http://127.0.0.1:1/", headers={"X-Word": "Bearer ${WORD_OF_MINE}"}
    )
    with pytest.raises(StoreError, match="header X-Word") as told:
        asyncio.run(made.before("main"))
    assert "horse" not in f"{told.value} {told.value.__context__} {told.value.__cause__}"
