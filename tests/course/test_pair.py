"""The pair of runs: the reader's weights say the recorded steps again, and the table is that of the two logs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.agent import Request, ignore_delta
from ctxkit.course.pair import live_runs_and_replays, number_lookup_task
from ctxkit.course.pair import tiny_language_model as reader_module
from ctxkit.errors import ModelError
from ctxkit.session import Message, Text
from ctxkit.tokens import estimated_counter

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAIR = Path(ck.__file__).parent / "course" / "pair"


@pytest.fixture(scope="module")
def script():
    # the exam and the training stay beside the notebooks
    sys.path.insert(0, str(NOTEBOOKS))
    yield live_runs_and_replays
    sys.path.remove(str(NOTEBOOKS))


@pytest.fixture(scope="module")
def reader(script):
    return script.TinyReaderModel(counter=estimated_counter(), clock=lambda: 0.0)


@pytest.fixture(scope="module")
def recorded(script):
    return {
        name: ck.read(PAIR / f"{name.replace(' ', '-')}.jsonl")
        for name in script.make_run_settings()
    }


def steps(session):
    return [
        (m.text, [c.arguments for c in m.tool_calls])
        for m in session.messages
        if m.role == "assistant"
    ]


def test_the_committed_weights_make_the_committed_pair_again(script, tmp_path):
    script.record_both_runs(folder=tmp_path)
    made = sorted(tmp_path.glob("*"))
    assert [new.name for new in made] == ["mask-3.jsonl", "none.jsonl", "pair.csv"]
    for new in made:
        assert new.read_text() == (PAIR / new.name).read_text()


def test_the_table_is_that_of_the_two_logs(script, recorded):
    kept = pd.read_csv(PAIR / "pair.csv", index_col=0)
    pd.testing.assert_frame_equal(
        script.compare_with_replay(recorded).infer_objects(), kept, check_dtype=False
    )
    for name, session in recorded.items():
        row = kept.loc[name]
        assert row["calls real"] == len(session.calls)
        assert row["tokens real"] == sum(c.message.usage.prompt_tokens for c in session.calls)
        assert row["calls predicted"] == len(recorded["none"].calls)
    told = script.replay_under_setting(recorded["none"], "mask 3")
    assert kept.loc["mask 3", "tokens predicted"] == ck.frame(told)["turn_input_tokens"].sum()


def test_prompts_are_predicted_to_the_token_until_the_steps_part(script, recorded):
    first, masked = (steps(session) for session in recorded.values())
    alike = next(n for n, (a, b) in enumerate(zip(first, masked, strict=False)) if a != b)
    assert 5 < alike < len(first)
    for name, session in recorded.items():
        told = script.replay_under_setting(recorded["none"], name)
        sent = [sum(i.tokens for i in told.sent(c.index)) for c in told.calls]
        real = [c.message.usage.prompt_tokens for c in session.calls]
        assert sent[: alike + 1] == real[: alike + 1]
        assert (sent == real) == (name == "none")


def test_other_weights_take_other_steps(script, recorded, monkeypatch):
    class Worse(script.TinyReaderModel):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.network.weights["1.into"] = self.network.weights["1.into"][::-1]

    monkeypatch.setattr(script, "TinyReaderModel", Worse)
    at = script.make_lookup_task(questions=1)
    session = asyncio.run(script.run_task("reader", script.make_run_settings()["none"], at))
    assert steps(session) != steps(recorded["none"])[: len(session.calls)]


def test_the_reader_looks_at_what_it_is_shown(script, recorded, reader):
    """What it answered it reads for again once a result is cleared, and copies what another file says."""
    turn = next(c for c in recorded["none"].calls if c.turn == 2)  # both files were read before
    shown = [i.message for i in recorded["none"].sent(turn.index)]
    assert said(reader, shown) == turn.message.text
    name, key = script.WORLD.questions[2][1]
    number = str(script.WORLD.numbers[name, key])
    assert number in turn.message.text
    assert "5309" in said(
        reader, [changed(m, rf"{name}_{key} = \d+", f"{name}_{key} = 5309") for m in shown]
    )
    cleared = [
        changed(m, rf"(?s).*{name}_{key} = \d+.*", "Old environment output: (5 lines omitted)")
        for m in shown
    ]
    assert said(reader, cleared) == f"etc/{name}.toml"


def changed(message, pattern, text):
    if message.role != "tool":
        return message
    return Message(
        role="tool",
        tool=message.tool,
        call_id=message.call_id,
        parts=(Text(re.sub(pattern, text, message.text, count=1)),),
    )


def said(reader, messages):
    reply = asyncio.run(reader(Request(messages=tuple(messages)), ignore_delta))
    return reply.text or reply.tool_calls[0].arguments["path"]


def test_what_does_not_fit_is_refused_and_never_clipped(reader):
    with pytest.raises(ModelError, match="1002 tokens > 1000") as refused:
        said(reader, [Message(role="user", parts=(Text("~" * 999),))])
    assert refused.value.overflow


def test_tokens_keep_every_character_of_the_task(script):
    files = script.WORLD.files
    for text in [
        script.INSTRUCTIONS,
        *files.values(),
        *map(script.WORLD.format_question, range(12)),
        "x7: 12345, Zoë",
    ]:
        assert reader_module.decode_tokens(reader_module.encode_text(text)) == text.replace(
            "ë", "<?>"
        )
    assert len(reader_module.encode_text("archive_port = 8431")) == 5


def test_no_number_of_the_task_was_ever_trained_with(script):
    from pair import histories

    held = set(script.WORLD.numbers.values())
    random = Random(1)
    seen = [said.text for _ in range(300) for said in histories.draw_conversation(random, 6)]
    numbers = {int(n) for text in seen for n in re.findall(r"= (\d{4})", text)}
    assert len(numbers) > 3_000
    assert not numbers & held
    assert {number_lookup_task.is_excluded_from_training(n) for n in numbers} == {False}
    assert {number_lookup_task.is_excluded_from_training(n) for n in held} == {True}


def test_only_steps_that_are_right_by_what_is_in_sight_are_learned(script):
    from pair import histories

    random = Random(2)
    kinds = set()
    for _ in range(200):
        sight, asked, told = set(), [], histories.draw_conversation(random, 8)
        for role, text, kind in told:
            if role == "user":
                asked = re.findall(r"([a-z]+)_([a-z]+)", text)
            elif role == "tool":
                sight |= set(re.findall(r"\w+ = \d+", text))
            elif kind == "answer":
                assert set(text.split(", ")) <= sight
            elif kind:
                name = next(
                    n for n, k in asked if not any(s.startswith(f"{n}_{k} ") for s in sight)
                )
                assert text == f'read_file("etc/{name}.toml")'
                assert (kind == "again") == any(
                    said.text == text for said in told[: told.index((role, text, kind))]
                )
            kinds.add(kind)
    assert kinds == {"", "read", "again", "answer"}


def test_the_exam_counts_wrong_steps(script):
    from pair import exam, histories

    with np.load(reader_module.WEIGHTS_PATH) as kept:
        network = reader_module.TinyReaderNetwork(dict(kept))
    at = number_lookup_task.make_lookup_task(questions=3, seed=5)
    good = histories.make_conversation(at)
    wrong = [
        s._replace(text=s.text.translate({ord("4"): "5"})) if s.kind == "answer" else s
        for s in good
    ]
    changes = sum(a.text != b.text for a, b in zip(good, wrong, strict=True))
    assert changes
    before, after = (
        exam.count_right_steps(network, [good])["right"],
        exam.count_right_steps(network, [wrong])["right"],
    )
    assert after["answer"] <= before["answer"] - 1
    assert after["read"] == before["read"]


@pytest.fixture(scope="module")
def recipe():
    return json.loads((PAIR / "reader.json").read_text())


@pytest.fixture(scope="module")
def weights():
    with np.load(reader_module.WEIGHTS_PATH) as kept:
        return dict(kept)


@pytest.mark.long
def test_the_recipe_says_what_the_weights_can_do(script, recipe, weights):
    from pair import exam

    marks = exam.count_right_steps(
        reader_module.TinyReaderNetwork(weights), exam.make_test_conversations()
    )
    assert {k: f"{row.right} of {row.steps}" for k, row in marks.iterrows()} == recipe["held_out"]
    assert (marks["right"] > 0.9 * marks["steps"]).all()


def test_the_recipe_is_of_these_weights_and_of_the_steps_of_the_exam(script, recipe, weights):
    """All steps are counted; those of a sixth of the conversations are answered."""
    from pair import exam

    assert recipe["parameters"] == sum(each.size for each in weights.values())
    asked = list(exam.make_test_conversations())
    steps_n = Counter(step.kind for steps in asked for step in steps if step.kind)
    stated = {kind: [*map(int, words.split(" of "))] for kind, words in recipe["held_out"].items()}
    assert {kind: steps for kind, (_, steps) in stated.items()} == steps_n
    marks = exam.count_right_steps(reader_module.TinyReaderNetwork(weights), asked[::6])
    assert set(marks.index) == set(stated)
    for kind, (right, steps) in stated.items():
        assert marks.loc[kind, "right"] > 0.9 * marks.loc[kind, "steps"] > 0
        # no more are wrong in a part than in all
        assert marks.loc[kind, "steps"] - marks.loc[kind, "right"] <= steps - right


def test_another_model_is_asked_by_its_name_and_keeps_its_bill(script, tmp_path):
    made = script.record_both_runs(
        "scripted/ports", tmp_path / "deep" / "pair"
    )  # it answers sums alone
    assert made["right"].tolist() == ["0 of 12"] * 2
    session = ck.read(tmp_path / "deep/pair/none.jsonl")
    assert {c.message.model for c in session.calls} == {"scripted/ports"}
    assert not script.is_reader_run(session)
    assert script.price_run(session) is session


def test_the_other_worlds_are_made_again(script):
    kept = pd.read_csv(PAIR / "worlds.csv", index_col=[0, 1])
    assert len(kept) == 40
    assert (kept.xs("mask 3", level=1)["read again"] > 0).all()
    made = script.compare_in_other_worlds([105])
    pd.testing.assert_frame_equal(made.infer_objects(), kept.loc[[105]], check_dtype=False)


def test_what_was_kept_in_the_cache_of_the_network_changes_nothing(reader):
    tokens = list(range(20, 80))
    reader.network.reset()
    whole = reader.network.compute_logits(tokens)
    reader.network.reset()
    parts = np.concatenate(
        [
            reader.network.compute_logits(part)
            for part in (tokens[:1], tokens[1:40], tokens[40:41], tokens[41:])
        ]
    )
    np.testing.assert_allclose(parts, whole, atol=2e-4)


def test_the_network_is_the_one_that_was_trained(script):
    torch = pytest.importorskip("torch")
    from pair import train

    with np.load(reader_module.WEIGHTS_PATH) as kept:
        weights = dict(kept)
    trained = train.TrainingNetwork()
    for name, each in weights.items():
        trained[name].data = torch.from_numpy(each.astype(np.float32))
    tokens = list(range(20, 140))
    with torch.no_grad():
        there = (trained(torch.tensor([tokens])) @ trained["embed"].T)[
            0
        ].numpy() * train.WIDTH**-0.5
    np.testing.assert_allclose(
        reader_module.TinyReaderNetwork(weights).compute_logits(tokens), there, atol=2e-3
    )


def test_wrong_answers_are_counted(script):
    at = script.make_lookup_task(questions=3)
    log = []
    for n in range(3):
        log.append(Message(role="user", id=f"u{n}", parts=(Text(at.format_question(n)),)))
        text = at.format_answer(n) if n != 1 else at.format_answer(0)
        log.append(Message(role="assistant", id=f"a{n}", parts=(Text(text),), stop="stop"))
    assert (
        script.count_right_answers(
            ck.Session(id="s", format="native", agent="main", log=tuple(log)), at
        )
        == 2
    )
    first, second = (at.numbers[each] for each in at.questions[0])
    assert at.is_right(0, f"They are {first:,} and {second:,}.")
    assert not at.is_right(0, f"They are {second} and {first}.")
