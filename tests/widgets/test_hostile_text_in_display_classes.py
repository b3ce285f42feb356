"""Every class of the kit that says how a notebook shows it, shown over hostile text: text stays text, and is bounded."""

from __future__ import annotations

from importlib import import_module
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
from ipywidgets import Widget
from stand_in_models import Says, live, run, said
from widgets.reports.hostile_logs import EVIL, SECRET, list_leaks, rename_all
from widgets.test_hostile_log_displays import FUNCTIONS, list_forms

import ctxkit as ck
from ctxkit import experiments, metrics
from ctxkit._internal import TextAndHtml, escape_html, sanitize_text
from ctxkit.experiments.gates import gate
from ctxkit.magics.turn_display import LiveTurnDisplay
from ctxkit.session import ToolCall
from ctxkit.widgets import make_board_row, make_card

if TYPE_CHECKING:
    from ctxkit.session import Session

PACKAGE = Path(ck.__file__).parent
RICH_FORMS = {"_repr_html_", "_repr_mimebundle_", "_ipython_display_"}


def find_display_classes() -> dict[str, type]:
    """Return all classes that define how a notebook shows them, by name."""
    classes_by_name = {}
    for file in PACKAGE.rglob("*.py"):
        code = file.read_text(encoding="utf-8")
        if any(f"def {form}(" in code for form in RICH_FORMS):
            module = import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))
            classes = [c for c in vars(module).values() if isinstance(c, type)]
            classes_by_name |= {c.__name__: c for c in classes if RICH_FORMS & vars(c).keys()}
    return classes_by_name


CLASSES = find_display_classes()


class HostileInput:
    """A session whose names and words are all one hostile text, and a folder to write to."""

    def __init__(self, text: str, folder: Path) -> None:
        self.text, self.folder = text, folder
        self.session = self.rename_sample("research")

    def rename_sample(self, sample: str) -> Session:
        """Return a sample in which every name and word contains the text."""
        return rename_all(ck.read(ck.samples.path(sample)), self.text)

    def write_archive(self) -> Path:
        """Write three sessions whose times follow each other into a folder."""
        folder = self.folder / "archive"
        folder.mkdir()
        for i, sample in enumerate(("incident", "billing", "research")):
            session = msgspec.structs.replace(self.rename_sample(sample), id=f"{i} {self.text}")
            ck.write(session, folder / f"{i}.jsonl")
        return folder

    def take_turn(self) -> list[TextAndHtml]:
        """Take a turn with a model and a tool that say the text; return its displays."""
        displays: list[TextAndHtml] = []

        class View:
            show = end = staticmethod(displays.append)

        call = ToolCall("c", self.text, {self.text: self.text})
        with live(self.folder, tools=[]) as session:
            session.agent.model = Says(said(self.text, call, stop="tool"), said(self.text))
            session.agent.move(session.session, session.log.append)
            with LiveTurnDisplay(session, View()):
                self.outcome = run(session.turn(self.text))
        return displays


def make_contest(source: HostileInput) -> object:
    return ck.contest(source.folder / "contest.json").enter(source.text[:60], "clear:keep_last=3")


def make_forecasts(source: HostileInput) -> object:
    archive = source.write_archive()
    experiments.write_forecast(archive, source=source.text)
    return experiments.forecasts(archive)


def make_handle(source: HostileInput) -> object:
    """Display a turn in the background; return what its widget shows."""
    handle = CLASSES["TurnHandle"]("main")
    handle.running = SimpleNamespace(state="running")
    handle.show(source.take_turn()[-1])
    handle._ipython_display_()
    return TextAndHtml(repr(handle), handle._views[0].words.value)


def make_turn_result(source: HostileInput) -> object:
    display = source.take_turn()[-1]
    return CLASSES["TurnResult"](
        source.outcome, source.session, display, Path(sanitize_text(source.text))
    )


def compare_team_views(source: HostileInput) -> object:
    agents = cycle(f"{name} {source.text}" for name in ("first", "second"))
    log = [
        msgspec.structs.replace(m, agent=next(agents)) if m.role == "assistant" else m
        for m in source.session.messages
    ]
    session = msgspec.structs.replace(source.session, log=tuple(log))
    return ck.compare(session, {source.text: {"TextOnly": True}}, loss=False)


DISPLAYS = {
    "_Displayed": lambda source: ck.sweep([source.session], ["none"], loss=False, progress=False),
    "AnswerMark": lambda source: CLASSES["AnswerMark"]("01-a", False, source.text, tries=2),
    "Board": lambda source: CLASSES["Board"]([make_board_row(source.session)]),
    "Chart": lambda source: ck.plots.budget(source.session),
    "CompactionCard": lambda source: make_card(source.session),
    "CompactionReport": lambda source: CLASSES["CompactionReport"](
        source.session.edits, 900, 300, source.session, is_applied=True, notice=source.text
    ),
    "Comparison": lambda source: ck.compare(source.session, ["none", "pi"], progress=False),
    "ContestTable": make_contest,
    "ContextReport": lambda source: ck.report(source.session),
    "ContextStatus": lambda source: CLASSES["ContextStatus"](ck.report(source.session), 1, 5),
    "EstimatorErrors": lambda source: ck.calibrate(source.session),
    "ExamReport": lambda source: experiments.exam(source.rename_sample("billing"), questions=3),
    "ForecastReport": make_forecasts,
    "GateReport": lambda source: gate(
        [source.session], "pi", source.folder / "b.json", update=True
    ),
    "PauseCostReport": lambda source: metrics.idle(source.session),
    "PreformattedText": lambda source: CLASSES["PreformattedText"](source.text),
    "Session": lambda source: source.session,
    "Sessions": lambda source: ck.read_all(source.write_archive(), progress=False),
    "SharedThreshold": lambda source: ck.when(source.write_archive(), progress=False),
    "Spend": lambda source: ck.spend(source.session),
    "MultiSessionSpend": lambda source: ck.spend(
        [source.session, source.rename_sample("incident")]
    ),
    "SubscriptionUsageReport": lambda source: metrics.limits(source.session),
    "Table": lambda source: metrics.limits(source.session).table,
    "TeamDecisionsAndChart": lambda source: CLASSES["TeamDecisionsAndChart"](
        source.text, ck.plots.budget(source.session)
    ),
    "TextAndHtml": lambda source: TextAndHtml(sanitize_text(source.text), escape_html(source.text)),
    "TriggerFloorWaitAdvice": lambda source: ck.when(source.session),
    "TurnHandle": make_handle,
    "TurnResult": make_turn_result,
    "ViewComparison": compare_team_views,
}


def test_every_display_class_is_shown():
    assert set(DISPLAYS) | {"StaticOutputsMixin"} == CLASSES.keys()
    assert CLASSES["StaticOutputsMixin"] in type(ck.explore(ck.samples.path("chat"))).__mro__
    assert "explore" in FUNCTIONS  # of each function that takes a session, in that file


@pytest.mark.parametrize("name", DISPLAYS)
def test_hostile_text_stays_text(name, tmp_path):
    source = HostileInput(
        f"{SECRET} {EVIL}".replace("\ud800", ""), tmp_path
    )  # no reader gives half a pair
    forms = list_forms(DISPLAYS[name](source))
    Widget.close_all()
    leaks = {at: list_foreign_leaks(name, at, text) for at, text in forms.items()}
    assert not any(leaks.values()), leaks


OWN_SCRIPTS = ("onclick=const h=this.parentNode", "oninput=const w=this.value.toLowerCase")
"""The beginnings of the scripts by which tables are sorted and filtered."""
PAGES_WITH_A_SCRIPT = {("CompactionCard", "page text/html"): "1 scripts"}  # saves the picture


def list_foreign_leaks(name: str, form: str, text: str) -> list[str]:
    """Return what leaks into a form of a class, without the scripts that are its own."""
    leaks = list_leaks(text, html=form.endswith("html"))
    own = PAGES_WITH_A_SCRIPT.get((name, form))
    return [leak for leak in leaks if leak != own and not leak.startswith(OWN_SCRIPTS)]
