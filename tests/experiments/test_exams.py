"""Exams: exact questions about what a compaction took, put to several ways, blind and with noise."""

from __future__ import annotations

import dataclasses
import re
import warnings

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
from ctxkit.experiments.exams_comparing_ways_to_compact import CandidateResult, ExamReport
from ctxkit.policies import Summary
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


def test_rules_without_a_trigger_compact_the_prompt_once_and_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = exam(talk(), {"window": "window:keep_tokens=60"})
    (_, window) = report.results
    assert window.changed
    assert window.tokens <= 60
    passages = []
    candidate = Summary(keep_turns=1, summariser=lambda p: passages.append(p.before) or "Short.")
    assert exam(talk(), {"summary": candidate}).results[1].changed
    assert passages == [2 * len(PORTS) + 1]  # all facts, replies and the last request, at once


LINE = "The mail queue has the ticket OPS-4000 in it."


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ([LINE], [("The mail queue has the ticket ____ in it.", "OPS-4000", "id")]),
        (["Read src/mail.py before the other files."],
         [("Read ____ before the other files.", "src/mail.py", "path")]),
        (["The mail page is https://mail.example/queue for us all."],
         [("The mail page is ____ for us all.", "https://mail.example/queue", "url")]),
        (["It has ops-4000 and OPS-4000 in the mail queue."], []),  # twice in the line
        (["queue has ticket OPS-4000"], []),  # four words, that of the value with them
        (["queue has our ticket OPS-4000"], [("queue has our ticket ____", "OPS-4000", "id")]),
        ([f"{LINE} {'x' * (299 - len(LINE))}"],
         [(f"The mail queue has the ticket ____ in it. {'x' * (299 - len(LINE))}", "OPS-4000", "id")]),
        ([f"{LINE} {'x' * (300 - len(LINE))}"], []),  # longer than 300 characters
        ([LINE, LINE.replace("4000", "4001")], []),  # one gap with two answers
        ([LINE, LINE.upper()], [("THE MAIL QUEUE HAS THE TICKET ____ IN IT.", "OPS-4000", "id")]),
    ],
)  # fmt: skip
def test_a_question_is_a_line_with_one_value_and_five_words(lines, asked):
    log = [user("\n".join(lines)), assistant("Noted.")]
    made = session(*log, user(), summarised(log), assistant())
    try:
        questions = make_exam(made).questions
    except BadArguments:
        questions = ()
    assert [(q.line, q.expected, q.family) for q in questions] == asked


def test_a_question_says_who_stated_it_and_whether_it_was_needed():
    asked = call("read_file", path="etc/mail.toml")
    told = result("the mail queue of the office listens on OPS-4711 only", asked)
    said = user("The stock queue has the ticket OPS-4007 in it.")
    log = [said, asked, told]
    made = session(*log, user(), summarised(log), assistant("I take OPS-4711 first."))
    first, second = make_exam(made).questions
    assert (first.source, first.path, first.needed) == (
        "a result of read_file",
        "etc/mail.toml",
        True,
    )
    assert (second.source, second.path, second.needed) == ("the user", None, False)
    assert second.text == (
        "Which exact value stands in the gap of this line of the user: The stock queue has the"
        " ticket ____ in it."
    )


def test_a_value_that_is_a_part_of_a_later_one_is_asked_last():
    log = [user(f"The {name} queue has the ticket OPS-{PORTS[name]} now.") for name in NAMES[:6]]
    again = user("See OPS-40219 there.")  # the fourth, and a digit more
    made = session(*log, user(), summarised(log), again, assistant("Fine."))
    for seed in range(3):
        expected = [q.expected for q in make_exam(made, seed=seed).questions]
        assert len(expected) == 6
        assert expected[-1] == "OPS-4021"
    assert len(make_exam(made, questions=2).questions) == 2
    with pytest.raises(BadArguments, match="1 or more"):
        make_exam(made, questions=0)


def test_the_last_compaction_with_most_to_ask_is_taken():
    facts = [user(f"The {name} queue has the ticket OPS-{PORTS[name]} now.") for name in NAMES[:5]]
    one, two = facts[:2], facts[2:4]
    made = session(
        *one, user(), summarised(one), assistant(), *two, user(), summarised(two), assistant(),
        facts[4], user(), summarised([facts[4]]), assistant(),
    )  # fmt: skip
    paper = make_exam(made)
    assert paper.compaction == 1  # the second of two with two questions each
    assert {q.expected for q in paper.questions} == {"OPS-4014", "OPS-4021"}
    assert {q.expected for q in make_exam(made, 0).questions} == {"OPS-4000", "OPS-4007"}
    assert [q.expected for q in make_exam(made, 2).questions] == ["OPS-4028"]


def test_a_session_without_compactions_loses_its_first_four_fifths():
    log = [user(f"The {name} queue has the ticket OPS-{PORTS[name]} now.") for name in NAMES[:7]]
    asked = call("read_file", path="a.py")
    paper = make_exam(session(*log, asked, result("ok", asked), assistant("Done.")))
    # 8 of 10 messages; the tail does not begin with the result of a removed call
    assert [m.text for m in paper.retained] == ["Done."]
    assert len(paper.before) == 10
    assert (paper.compaction, paper.recorded) == (None, None)


def make_result(name, sources, grades=(), tokens=100, changed=True):
    return CandidateResult(name, tokens, changed, tuple(sources), tuple(grades))


def test_the_figures_of_a_way_are_counts_means_and_spreads():
    one = make_result("a", ["shown", "gone", "fetchable", "gone"])
    assert (one.shown, one.fetchable, one.gone, one.right, one.noise) == (1, 1, 2, None, None)
    graded = one._replace(grades=((True, False, True, False), (True, True, True, True)))
    assert graded.right == 3  # of 2 and 4
    assert graded.noise == pytest.approx(2**0.5)
    assert one._replace(grades=((True, False, False, False),)).noise is None


def make_report(*results, compaction=1, model=None):
    questions = make_exam(talk()).questions[:2]
    paper = make_exam(talk())._replace(questions=questions, compaction=compaction)
    return ExamReport(paper, results, model)


def test_the_report_names_the_way_that_answers_most():
    shown, gone = ("shown", "shown"), ("gone", "gone")
    half, full = make_result("half", ("shown", "gone"), tokens=50), make_result("full", shown)
    tokens = "in {} tokens, and {} can be fetched."
    small = " Of the ways that leave half as many tokens or fewer, half shows 1, in 50."
    most = f"full answers most: of 2 questions it shows 2, {tokens.format(100, 0)}"
    assert make_report(half, full).answer == f"{most}{small}"
    assert make_report(half._replace(tokens=51), full).answer == most
    same = make_result("same", shown, changed=False, tokens=9)
    assert make_report(full, same).answer == f"{most} Not compacted by same."
    assert make_report(same).answer == "No way changed the prompt, so nothing was tested."
    lost = make_result("x", gone)
    assert make_report(lost, same).answer == (
        "Every way that compacts lost the answers to all 2 questions."
    )
    fetch = make_result("fetch", ("gone", "fetchable"))
    assert make_report(fetch).answer == (
        f"fetch answers most: of 2 questions it shows 0, {tokens.format(100, 1)}"
    )
    # fewer tokens decide between equals, right answers before what is shown
    assert make_report(full, full._replace(name="b", tokens=99)).answer.startswith("b answers")
    right = half._replace(grades=((True, True),))
    told = make_report(full._replace(grades=((True, False),)), right).answer
    assert (
        told
        == f"half answers most: of 2 questions it shows 1, {tokens.format(50, 0)} 2.0 were answered right."
    )


def test_ways_are_compared_with_the_first_by_the_majority_of_repeats():
    sources = ("gone",) * 8
    yes, no = (True,) * 8, (False,) * 8
    first, all_right = make_result("a", sources, (no, no, yes)), make_result("b", sources, (yes,))
    report = make_report(first, all_right)
    assert [row[6].text for row in report.table.rows] == ["", "0.0078"]  # 2 / 2**8
    assert [row[5].text for row in report.table.rows] == ["2.7 ± 4.6", "8.0"]
    tie = make_report(make_result("a", sources, (no, yes)), all_right)
    assert tie.table.rows[1][6].text == "0.0078"  # a half is no majority
    ungraded = make_report(first._replace(grades=()), all_right)
    assert [row[6].text for row in ungraded.table.rows] == ["", ""]
    assert [row[5].text for row in ungraded.table.rows] == ["", "8.0"]
    assert len(make_report(first._replace(grades=())).table.heads) == 5


def test_the_note_says_what_was_removed_and_who_was_asked():
    way = make_result("a", ("gone", "shown"))
    note = "2 exact questions about what {} took away; 1 of the values were used later. Shown does not mean understood.{}"
    assert make_report(way).note == note.format("compaction 1", "")
    divided = make_report(way, compaction=None, model="m/x")
    assert divided.note == note.format("the first four fifths of the session", " Asked: m/x.")
    text = make_report(way).to_text(why=True)
    assert "\n\n1. Which exact value" in text
    assert "[OPS-4007]: a gone.\n2. " in text
    assert ": a shown.\n\n2 exact questions" in text
    assert "Which exact value" not in make_report(way).to_text()


@pytest.mark.parametrize("repeats", [0, 21])
def test_a_model_answers_1_to_20_times(repeats):
    with pytest.raises(BadArguments, match="1 to 20"):
        exam(talk(), repeats=repeats)
    assert exam(talk(), repeats=1).results == exam(talk(), repeats=20).results


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("1: OPS-4007\n2: OPS-1", (True, False)),
        (" 1) ops-4007 \n2. it is OPS-4007", (True, False)),
        ("2: x\n1: OPS-4007", (True, False)),
        ("1: OPS-40071", (False, False)),
        ("1: unknown\n1: OPS-4007", (True, False)),  # the last line of a number counts
        ("0001: OPS-4007", (False, False)),
        ("OPS-4007", (False, False)),
    ],
)
def test_an_answer_is_a_numbered_line(reply, right):
    assert grade_answers(make_exam(talk()).questions[:2], reply) == right
