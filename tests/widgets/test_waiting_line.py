"""A line says that a cell is waiting, after a second, and is taken away again."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

import ctxkit as ck
from ctxkit.widgets import progress_notice


@pytest.fixture
def shown(monkeypatch):
    """The HTML that a notebook was shown, in its order."""
    texts = []
    handle = SimpleNamespace(update=lambda html: texts.append(html.data))

    def display(html, display_id):
        texts.append(html.data)
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    monkeypatch.setattr(progress_notice, "_WAIT_SECONDS", 0.05)
    return texts


def test_what_takes_long_is_announced_and_taken_away(shown):
    with progress_notice.show_waiting("adding up ..."):
        time.sleep(0.4)
        assert shown == ["<em>adding up ...</em>"]
    assert shown == ["<em>adding up ...</em>", ""]


def test_what_is_quick_shows_nothing(shown, monkeypatch):
    monkeypatch.setattr(progress_notice, "_WAIT_SECONDS", 60)
    with progress_notice.show_waiting("adding up ..."):
        pass
    assert shown == []


def test_an_error_takes_it_away_too(shown):
    def fail():
        with progress_notice.show_waiting("adding up ..."):
            time.sleep(0.4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shown[-1] == ""


def test_outside_a_notebook_nothing_is_shown(shown, monkeypatch):
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)
    with progress_notice.show_waiting("adding up ..."):
        time.sleep(0.2)
    assert shown == []


def test_a_session_and_a_marked_answer_announce_themselves(shown, monkeypatch):
    said = []
    real = progress_notice.show_waiting
    monkeypatch.setattr(
        progress_notice, "show_waiting", lambda text: said.append(text) or real(text)
    )
    monkeypatch.setattr(
        "ctxkit.course.exercises.show_waiting", lambda text: said.append(text) or real(text)
    )
    assert "text/html" in ck.read(ck.samples.path("chat"))._repr_mimebundle_()
    ck.check("07-c", "loss")
    assert ["session" in said[0], "mark this answer" in said[1]] == [True, True]
