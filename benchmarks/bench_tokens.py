"""Counting tokens against tiktoken itself, in one process: first sight, second sight, growth, and
texts that hurt.
"""

from __future__ import annotations

import json
import random
import statistics
import sysconfig
import time
from pathlib import Path

import tiktoken

from benchmarks.cpu_timing import cpu
from ctxkit import tokens
from ctxkit.tokens.exact_counters import TiktokenCounter, get_encoding_definition

ENCODING = "o200k_base"
MEGABYTE = 1_000_000


def corpus(size: int = 3 * MEGABYTE, seed: int = 7) -> list[str]:
    """Texts as agents hold them: pieces of source code, numbered code, JSON and diff-like lines, a
    few not ASCII.
    """
    rng = random.Random(seed)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts: list[str] = []
    held = 0
    while held < size:
        source = rng.choice(files).read_text(errors="replace")
        length = max(20, min(60_000, int(rng.lognormvariate(6.55, 1.35))))
        start = rng.randrange(max(1, len(source) - length))
        text = source[start : start + length]
        kind = rng.random()
        if kind < 0.2:
            text = "\n".join(f"{i:6d}\t{line}" for i, line in enumerate(text.split("\n"), 1))
        elif kind < 0.4:
            text = json.dumps({"path": "src/a.py", "ok": True, "lines": text.split("\n")})
        elif kind < 0.5:
            text = "\n".join(rng.choice("+- ") + line for line in text.split("\n"))
        elif kind < 0.53:
            text = text.replace("self", "сам").replace("return", "返回")
        texts.append(text)
        held += len(text)
    return texts


def row(name: str, ours: float, peer: float, goal: str) -> dict[str, object]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": peer / ours,
        "goal": goal,
        "unit": "s CPU",
    }


def first_counts(texts: list[str], reference: tiktoken.Encoding) -> dict[str, object]:

    def ours() -> int:
        counter = TiktokenCounter(ENCODING)  # with an empty memo
        return sum(counter(t) for t in texts)

    def peer() -> int:
        return sum(len(reference.encode_ordinary(t)) for t in texts)

    assert ours() == peer()
    rounds = [(cpu(ours, 1), cpu(peer, 1)) for _ in range(5)]
    return row(
        "first count, against tiktoken",
        *(statistics.median(r) for r in zip(*rounds, strict=True)),
        ">= 0.95",
    )


def second_counts(texts: list[str], reference: tiktoken.Encoding) -> list[dict[str, object]]:
    counter = TiktokenCounter(ENCODING)
    assert [counter(t) for t in texts] == [len(reference.encode_ordinary(t)) for t in texts]
    raw = [t.encode() for t in texts]
    peer = cpu(lambda: [len(reference.encode_ordinary(t)) for t in texts], 3)
    same = cpu(lambda: [counter(t) for t in texts for _ in range(20)]) / 20
    taken = []
    for _ in range(5):
        copies = [b.decode() for b in raw]
        start = time.process_time()
        for text in copies:
            counter(text)
        taken.append(time.process_time() - start)
    return [
        row("a text seen before, same object, against tiktoken", same, peer, ">= 1000"),
        row(
            "a text seen before, equal copy, against tiktoken",
            statistics.median(taken),
            peer,
            ">= 100",
        ),
    ]


def growing(texts: list[str], name: str, reference: tiktoken.Encoding) -> dict[str, object]:
    """Appends of 1,000 characters; the recount is sampled at every 40th append, where both must
    agree.
    """
    text = "\n".join(texts)[:MEGABYTE]
    if name == "one line":
        text = text.replace("\n", " ")
    parts = [text[i : i + 1000] for i in range(0, len(text), 1000)]
    got: list[int] = []

    def ours() -> None:
        grows = tokens.IncrementalCounter(tokens.exact_counter(ENCODING))
        got[:] = [grows.append(p) for p in parts]

    mine = cpu(ours, 3)
    sampled = range(0, len(parts), 40)
    start = time.process_time()
    want = {i: len(reference.encode_ordinary("".join(parts[: i + 1]))) for i in sampled}
    peer = (time.process_time() - start) / len(sampled) * len(parts)
    assert all(got[i] == n for i, n in want.items())
    return row(
        f"a growing text of 1 MB, {name}, against a recount at each append", mine, peer, ">= 100"
    )


def hard_texts() -> dict[str, str]:
    rng = random.Random(3)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return {
        "spaces": " " * MEGABYTE,
        "code, then spaces": "def f():\n" + " " * MEGABYTE + "return 1\n",
        "a": "a" * MEGABYTE,
        "newlines": "\n" * MEGABYTE,
        "=": "=" * MEGABYTE,
        "base64": "".join(rng.choices(letters, k=MEGABYTE)),
        "hex": "".join(rng.choices("0123456789abcdef", k=MEGABYTE)),
        "CJK": "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(MEGABYTE // 3)),
        "minified": "".join(rng.choices("abcdefgxyz(){};=.,+!", k=MEGABYTE)),
        "surrogates": "a\ud800b" * 1000,
        "special": "<|endoftext|> said the tool" * 1000,
    }


def hard(reference: tiktoken.Encoding) -> list[dict[str, object]]:
    counter, rows = tokens.exact_counter(ENCODING), []
    for name, text in hard_texts().items():
        if "spaces" not in name:  # there tiktoken panics
            assert counter.count_uncached(text) == len(reference.encode_ordinary(text))
        size = len(text.encode("utf-8", "surrogatepass"))
        taken = cpu(lambda text=text: counter.count_uncached(text), 3) / size * MEGABYTE  # type: ignore[misc]
        rows.append(row(f"a MB of hard text ({name}), against 0.3 s", taken, 0.3, ">= 1"))
    return rows


def run() -> list[dict[str, object]]:
    texts, peer = corpus(), tiktoken.Encoding(**get_encoding_definition(ENCODING))
    tokens.exact_counter(ENCODING)("warm")
    growths = [growing(texts, name, peer) for name in ("all kinds", "one line")]
    return [first_counts(texts, peer), *second_counts(texts, peer), *growths, *hard(peer)]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:75s} {line['ours']:.6f} {line['peer']:.6f} x{line['ratio']:.2f}  goal"
            f" {line['goal']}"
        )
