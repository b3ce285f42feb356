"""deepagents itself on the same messages: which arguments are cut, and the defaults it computes."""

import warnings

import pytest

from ctxkit import presets
from ctxkit.presets.systems.deepagents import TRUNCATED_MARK, DeepAgentsSummary

pytestmark = pytest.mark.peers
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("deepagents", reason="needs jupyter-ctxkit[peers]: make test-peers")
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import (
        SummarizationMiddleware,
        compute_summarization_defaults,
    )
    from langchain_core.language_models.fake_chat_models import FakeListChatModel


def test_the_defaults_are_those_of_a_model_whose_window_is_known():
    model = FakeListChatModel(responses=["x"], profile={"max_input_tokens": 200_000})
    theirs, ours = compute_summarization_defaults(model), presets.deepagents().parameters
    assert (theirs["trigger"], theirs["keep"]) == (ours["trigger"], ours["keep"])
    args = theirs["truncate_args_settings"]
    assert (args["trigger"], args["keep"]) == (
        ours["truncate_args_trigger"],
        ours["truncate_args_keep"],
    )


def test_an_argument_is_cut_to_the_same_text():
    from ctxkit.session import ToolCall

    model = FakeListChatModel(responses=["x"], profile={"max_input_tokens": 200_000})
    settings = {"trigger": ("messages", 1), "keep": ("messages", 1)}
    middleware = SummarizationMiddleware(
        model=model, backend=StateBackend(), truncate_args_settings=settings
    )
    call = {
        "name": "write_file",
        "args": {"path": "/a", "content": "x" * 3000},
        "id": "c",
        "type": "tool_call",
    }
    ours = DeepAgentsSummary()._shorten_call(ToolCall("c", "write_file", call["args"]))
    assert middleware._truncate_tool_call(call)["args"] == ours
    assert ours["content"].endswith(TRUNCATED_MARK)
