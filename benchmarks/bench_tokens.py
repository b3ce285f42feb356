"""Counting tokens against tiktoken itself, in one process: first and repeated counts, a growing
text, and texts that are slow to encode.
"""

from __future__ import annotations

import json
import random
import statistics
import sysconfig
import time
from pathlib import Path

import tiktoken

from benchmarks.cpu_timing import measure_cpu
from ctxkit import tokens
from ctxkit.tokens.exact_counters import TiktokenCounter, get_encoding_definition

ENCODING = "o200k_base"
MEGABYTE = 1_000_000


def make_corpus(size: int = 3 * MEGABYTE, seed: int = 7) -> list[str]:
    """Return texts like those of agents: code, numbered code, JSON, diffs, a few not ASCII."""
    rng = random.Random(seed)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts: list[str] = []
    chars_n = 0
    while chars_n < size:
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
        chars_n += len(text)
    return texts


def make_row(name: str, ours: float, peer: float, goal: str) -> dict[str, object]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": peer / ours,
        "goal": goal,
        "unit": "s CPU",
    }


def measure_first_counts(texts: list[str], reference: tiktoken.Encoding) -> dict[str, object]:

    def ours() -> int:
        counter = TiktokenCounter(ENCODING)  # with an empty memo
        return sum(counter(t) for t in texts)

    def peer() -> int:
        return sum(len(reference.encode_ordinary(t)) for t in texts)

    assert ours() == peer()
    rounds = [(measure_cpu(ours, 1), measure_cpu(peer, 1)) for _ in range(5)]
    return make_row(
        "first count, against tiktoken",
        *(statistics.median(r) for r in zip(*rounds, strict=True)),
        ">= 0.95",
    )


def measure_repeated_counts(
    texts: list[str], reference: tiktoken.Encoding
) -> list[dict[str, object]]:
    counter = TiktokenCounter(ENCODING)
    assert [counter(t) for t in texts] == [len(reference.encode_ordinary(t)) for t in texts]
    encoded = [t.encode() for t in texts]
    peer = measure_cpu(lambda: [len(reference.encode_ordinary(t)) for t in texts], 3)
    same_object_seconds = measure_cpu(lambda: [counter(t) for t in texts for _ in range(20)]) / 20
    copy_seconds = []
    for _ in range(5):
        copies = [data.decode() for data in encoded]
        start = time.process_time()
        for text in copies:
            counter(text)
        copy_seconds.append(time.process_time() - start)
    return [
        make_row(
            "a text seen before, same object, against tiktoken",
            same_object_seconds,
            peer,
            ">= 1000",
        ),
        make_row(
            "a text seen before, equal copy, against tiktoken",
            statistics.median(copy_seconds),
            peer,
            ">= 100",
        ),
    ]


def measure_growing_text(
    texts: list[str], name: str, reference: tiktoken.Encoding
) -> dict[str, object]:
    """Measure appends of 1,000 characters against recounts.

    The recount is sampled at every 40th append, where both counts must be equal.
    """
    text = "\n".join(texts)[:MEGABYTE]
    if name == "one line":
        text = text.replace("\n", " ")
    parts = [text[i : i + 1000] for i in range(0, len(text), 1000)]
    counts: list[int] = []

    def append_all() -> None:
        counter = tokens.IncrementalCounter(tokens.exact_counter(ENCODING))
        counts[:] = [counter.append(part) for part in parts]

    our_seconds = measure_cpu(append_all, 3)
    sampled = range(0, len(parts), 40)
    start = time.process_time()
    expected = {i: len(reference.encode_ordinary("".join(parts[: i + 1]))) for i in sampled}
    peer_seconds = (time.process_time() - start) / len(sampled) * len(parts)
    assert all(counts[i] == n for i, n in expected.items())
    return make_row(
        f"a growing text of 1 MB, {name}, against a recount at each append",
        our_seconds,
        peer_seconds,
        ">= 100",
    )


def make_hard_texts() -> dict[str, str]:
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


def measure_hard_texts(reference: tiktoken.Encoding) -> list[dict[str, object]]:
    counter, rows = tokens.exact_counter(ENCODING), []
    for name, text in make_hard_texts().items():
        if "spaces" not in name:  # there tiktoken panics
            assert counter.count_uncached(text) == len(reference.encode_ordinary(text))
        size = len(text.encode("utf-8", "surrogatepass"))
        seconds = measure_cpu(lambda text=text: counter.count_uncached(text), 3) / size * MEGABYTE  # type: ignore[misc]
        rows.append(make_row(f"a MB of hard text ({name}), against 0.3 s", seconds, 0.3, ">= 1"))
    return rows


def run() -> list[dict[str, object]]:
    texts, reference = make_corpus(), tiktoken.Encoding(**get_encoding_definition(ENCODING))
    tokens.exact_counter(ENCODING)("warm")
    growing_rows = [
        measure_growing_text(texts, name, reference) for name in ("all kinds", "one line")
    ]
    return [
        measure_first_counts(texts, reference),
        *measure_repeated_counts(texts, reference),
        *growing_rows,
        *measure_hard_texts(reference),
    ]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:75s} {line['ours']:.6f} {line['peer']:.6f} x{line['ratio']:.2f}  goal"
            f" {line['goal']}"
        )
