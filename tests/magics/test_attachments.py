"""`%%agent --attach`: pictures that go with a prompt, as far as the wire."""

from __future__ import annotations

import json

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from agent.tools.test_images import PNG, Drawn

import ctxkit as ck
from ctxkit.agent import image_from_bytes
from ctxkit.errors import BadArguments

DATA = image_from_bytes(PNG).data


def run(shell, cell):
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


@pytest.fixture
def plot(shell, tmp_path):
    (tmp_path / "plot.png").write_bytes(PNG)
    shell.user_ns["fig"] = Drawn()
    return shell


def test_pictures_are_kept_with_the_prompt_and_read_again(plot):
    answer = run(plot, "%%agent --attach plot.png,fig\nWhat is it?")
    first = answer.session.messages[0]
    assert [type(p).__name__ for p in first.parts] == ["Text", "Attachment", "Attachment"]
    assert ck.read(".ctxkit/sessions/main.jsonl").messages[0].parts == first.parts
    assert ck.frame(answer.session, per="session").images_n[0] == 2


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("default")
def test_they_go_over_the_wire(plot, kind, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    name, _ = FORMATS[kind]
    with wire(kind, Play(calls=(("read_file", {"path": "plot.png"}),)), Play(text="Red.")) as up:
        cell = f"%%agent --model {name}?api_base={up.url} --root . --attach plot.png\nColour?"
        answer = run(plot, cell)
    assert answer.text.strip() == "Red."
    first, second = (json.dumps(body) for body in up.asked[-2:])
    assert first.count(DATA) == 1  # the prompt's
    assert second.count(DATA) == 2  # and that of the result
    if kind == "chat":  # OpenAI refuses pictures in results
        roles = {m["role"] for m in up.asked[-1]["messages"] if DATA in json.dumps(m)}
        assert roles == {"user"}


def test_a_model_that_takes_none_is_not_asked(plot, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with pytest.raises(BadArguments, match=r"gpt-3.5-turbo takes no pictures: name another"):
        run(plot, "%%agent --model openai/gpt-3.5-turbo --attach plot.png\nWhat?")
    assert not plot.magics_manager.registry["CtxKit"].lives.get("main").session.log


@pytest.mark.parametrize(("word", "said"), [
    ("gone.png", "no such file"), ("number", "holds no picture"), ("notes.md", r"is no picture \(PNG"),
])  # fmt: skip
def test_what_cannot_be_attached_is_said_before_anything_is_opened(plot, tmp_path, word, said):
    (tmp_path / "notes.md").write_text("# Notes")
    plot.user_ns["number"] = 3
    with pytest.raises(BadArguments, match=said):
        run(plot, f"%%agent --attach {word}\nWhat?")
    assert not (tmp_path / ".ctxkit").exists()


def test_a_dry_run_counts_them(plot):
    plain, seen = (repr(run(plot, f"%%agent --dry-run {a}\nWhat?")) for a in ("", "--attach fig"))
    tokens = [
        int(text.split("message, ")[1].split("/")[0].replace(",", "")) for text in (plain, seen)
    ]
    assert tokens[1] - tokens[0] == 1200


def test_whether_a_model_takes_pictures_is_in_the_table():

    assert ck.prices.price("claude-sonnet-4-5").pictures is True
    assert ck.prices.price("gpt-3.5-turbo").pictures is False
