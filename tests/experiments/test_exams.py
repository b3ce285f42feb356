"""Exams: exact questions about what a compaction took, put to several ways, blind and with noise."""

from __future__ import annotations

import dataclasses
import re

import pytest
from builders import assistant, call, result, session, summarised, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.experiments import (
    CompactorCandidate,
    SummaryPromptCandidate,
    exam,
    grade_answers,
    measure_answerable_share,
)
from ctxkit.experiments.compaction_exam_questions import GAP, make_exam
from ctxkit.session import SizeOnly

NAMES = [
    "mail",
    "stock",
    "audit",
    "search",
    "report",
    "import",
    "invoice",
    "payment",
    "customer",
    "ledger",
    "tax",
    "refund",
]
PORTS = {name: 4000 + 7 * n for n, name in enumerate(NAMES)}


def talk(summary="Work went on.", *, reread=False):
    """Twelve facts, a compaction that takes them, and a reply that uses one."""
    facts = [
        user(f"The {name} queue has the ticket OPS-{port} in the tracker.")
        for name, port in PORTS.items()
    ]
    log = [m for fact in facts for m in (fact, assistant("Noted."))]
    last = user("Go on, please.")
    return session(*log, last, summarised(log, summary), assistant("I take OPS-4007 first."))


def ports_of(messages):
    """Answer a paper from what its prompt shows."""
    *prompt, paper = [m.text for m in messages]
    text, lines = "\n".join(prompt), []
    for line in paper.splitlines():
        number = re.match(r"(\d+): ", line)
        if number:
            before = line.partition(": The ")[2].partition(" queue")[0]
            found = re.search(rf"{before} queue has the ticket (OPS-\d+)", text)
            lines.append(f"{number[1]}: {found[1] if found else 'unknown'}")
    return "\n".join(lines)


def test_questions_are_lines_with_one_value_left_out_and_needed_ones_come_first():
    paper = make_exam(talk())
    assert len(paper.questions) == 10
    assert (paper.questions[0].expected, paper.questions[0].needed) == ("OPS-4007", True)
    for question in paper.questions:
        assert question.line.count(GAP) == 1
        assert question.expected not in question.line
    assert make_exam(talk()).questions == paper.questions != make_exam(talk(), seed=1).questions


def test_what_still_stands_or_has_two_answers_is_not_asked():
    twice = [user(f"The queue of the tracker has the ticket OPS-{n} today.") for n in (41, 42)]
    kept = user("Ticket OPS-77 of the mail queue was kept by me.")
    log = [*twice, user("Ticket OPS-77 of the mail queue was first."), assistant()]
    s = session(*log, kept, summarised(log), assistant())
    with pytest.raises(BadArguments, match="nothing exact"):
        make_exam(s)


def test_each_way_gets_the_same_prompt_and_is_judged_by_what_it_shows():
    report = exam(
        talk(),
        {
            "all": lambda _: "\n".join(f"OPS-{p}" for p in PORTS.values()),
            "some": lambda _: "OPS-4007",
        },
    )
    assert [(r.name, r.shown, r.gone) for r in report.results] == [
        ("recorded", 0, 10),
        ("all", 10, 0),
        ("some", 1, 9),
    ]
    full, small = report.results[1:]
    best = f"all answers most: of 10 questions it shows 10, in {full.tokens:,} tokens, and 0 can be"
    others = "Of the ways that leave half as many tokens or fewer, some shows 1, in 9."
    assert report.answer == f"{best} fetched. {others}"
    alone = dataclasses.replace(report, results=(full, small._replace(tokens=full.tokens)))
    assert alone.answer == f"{best} fetched."


def test_a_file_that_the_prompt_names_can_be_fetched():
    asked = call("read_file", path="src/ports.py")
    told = result("the mail queue of the office listens on OPS-4711 only", asked)
    tail = user("Look at src/ports.py again.")
    s = session(
        user("Read it."),
        asked,
        told,
        assistant("Done."),
        tail,
        summarised([asked, told]),
        assistant(),
    )
    (row,) = exam(s).results
    assert (row.shown, row.fetchable) == (0, 1)


def test_the_answers_of_a_model_are_graded_with_the_noise_of_repeats():
    calls = []

    def model(messages):
        calls.append([m.id for m in messages])
        good = ports_of(messages)
        return good if len(calls) % 2 else "\n".join(good.splitlines()[:4])

    told = exam(
        talk(),
        {"all": lambda _: "\n".join(m.text for m in talk().messages)},
        model=model,
        repeats=2,
    )
    recorded, everything = told.results
    assert recorded.right == 0
    assert 4 <= everything.right <= 10
    assert everything.noise is not None
    assert len(calls) == 4
    assert "±" in told.to_text()
    assert set(told.frame()["right"]) <= {0.0, 0.5, 1.0}


def test_a_model_is_asked_after_its_cost_was_said_and_not_without():
    said = []
    with pytest.raises(RuntimeError):
        exam(
            talk(),
            model="anthropic/claude-haiku-4-5",
            confirm=lambda s: (said.append(s), 1 / 0)[0] if False else _refuse(said, s),
        )
    assert re.match(
        r"1 call of anthropic/claude-haiku-4-5 with at most [\d,]+ tokens each, for at most \$",
        said[0],
    )


def test_the_cost_is_that_of_all_repeats_and_of_summaries_that_are_written():
    from ctxkit.tokens import default_counter

    said, ways = [], {"A": SummaryPromptCandidate("none"), "B": lambda _: "."}
    with pytest.raises(RuntimeError):
        exam(
            talk(), ways, model="claude-sonnet-4-5", repeats=10, confirm=lambda s: _refuse(said, s)
        )
    # three ways, the recorded one with them, ten times each, and one summary
    before = sum(default_counter().message(m) for m in talk().messages[:25])
    prompt = before + 10 * 60
    usd = (31 * prompt * 3 + 30 * 10 * 60 * 15) / 1e6  # $3 and $15 for a million tokens
    assert said[0] == (
        f"31 calls of claude-sonnet-4-5 with at most {prompt:,} tokens each, for at most"
        f" ${usd:.2f}; the conversation is sent to that model."
    )


def test_a_model_is_called_by_its_name(monkeypatch):
    made, asked = [], []

    class Reader:
        async def __call__(self, request, _emit):
            asked.append(request)
            return assistant(ports_of(request.messages))

    monkeypatch.setattr(
        "ctxkit.agent.models.model_factory.make_model",
        lambda name, **_: made.append(name) or Reader(),
    )
    everything = "\n".join(m.text for m in talk().messages)
    report = exam(talk(), {"all": lambda _: everything}, model="some/model", repeats=2)
    assert [(r.name, r.right, r.noise) for r in report.results] == [
        ("recorded", 0, 0),
        ("all", 10, 0),
    ]
    assert made == ["some/model"]
    assert len(asked) == 4
    assert report.note.endswith("Shown does not mean understood. Asked: some/model.")


def _refuse(said, sentence):
    said.append(sentence)
    raise RuntimeError


def test_two_prompts_are_compared_by_a_model_that_writes_both():
    def model(messages):
        asked = messages[-1].text
        if asked == "all":
            return "\n".join(m.text for m in messages[:-1])
        return "nothing" if asked == "none" else ports_of(messages)

    report = exam(
        talk(),
        {"A": SummaryPromptCandidate("none"), "B": SummaryPromptCandidate("all")},
        model=model,
    )
    assert [(r.name, r.shown, r.right) for r in report.results[1:]] == [("A", 0, 0), ("B", 10, 10)]
    with pytest.raises(BadArguments, match="name one with model="):
        exam(talk(), {"A": SummaryPromptCandidate("none")})


def test_answers_are_graded_by_exact_values():
    questions = make_exam(talk()).questions[:2]
    first, second = (q.expected for q in questions)
    assert grade_answers(questions, f"1: {first.lower()}\n2: {second}1") == (True, False)
    assert grade_answers(questions, "I do not know.") == (False, False)


def test_a_program_that_changes_nothing_says_so_and_one_that_drops_all_fails():
    same, none = (
        CompactorCandidate(lambda m: m),
        CompactorCandidate(lambda m: [{"role": "user", "content": "Hi."}]),
    )
    report = exam(talk(), {"same": same, "none": none})
    assert "Not compacted by same" in report.to_text() or "lost the answers" in report.answer
    assert [r.changed for r in report.results] == [True, False, True]
    assert measure_answerable_share(talk(), same) is None
    assert measure_answerable_share(talk(), none) == 0


def test_a_session_without_a_compaction_is_divided_and_without_text_refused():
    s = ck.read(ck.samples.path("incident"))
    assert exam(s, {"window": "window:keep_tokens=500"}).paper.compaction is None
    with pytest.raises(BadArguments, match="name rules"):
        exam(s)
    with pytest.raises(BadArguments, match=r"no text|nothing exact"):
        make_exam(
            session(
                ck.Message(role="user", id="u", parts=(SizeOnly("text", tokens=9),)), assistant("")
            )
        )
    with pytest.raises(BadArguments, match="no compaction 7"):
        make_exam(talk(), 7)


def test_questions_are_of_the_first_20_000_lines():
    filler = user("\n".join(["It went on as it was before."] * 19_999))
    tickets = [f"The {name} queue has the ticket OPS-{PORTS[name]} now." for name in NAMES[:3]]
    log = [filler, user("\n".join(tickets[:2])), user(tickets[2])]
    paper = make_exam(session(*log, summarised(log), user(), assistant()))
    assert [q.expected for q in paper.questions] == ["OPS-4000"]


def test_keys_are_never_asked_for():
    secret = "sk-ant-api03-" + "Ab3xY9" * 15
    line = user(f"The deploy key of the old build machine is {secret} 42% done.")
    s = session(line, assistant(), summarised([line]), user(), assistant())
    with pytest.raises(BadArguments, match="nothing exact"):
        make_exam(s)
