"""A language model of some hundred thousand parameters, for one task: what it is, and how it says its next step.

A decoder as others are: embeddings, layers of attention with rotary positions and of a small network, the same
embeddings again to say the next piece. Before attention, queries, keys and values are mixed with those of the three
pieces before (the convolution of Primer, So et al. 2021, arXiv:2109.08668, whose squared ReLU it has, too): so that a
place knows what stood in front of it, which copying needs. It was trained by `train.py`; here is NumPy alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.agent.models.scripted import ScriptedModel
from ctxkit.course.pair.pieces import END, NUMBER, decoded, message
from ctxkit.errors import ModelError
from ctxkit.session.messages import Message, Text, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.agent.models.model import Emit, Request
    from ctxkit.tokens import TokenCounter

    Array = NDArray[np.float32]

WEIGHTS = Path(__file__).parent / "reader.npz"
HEADS = 4
TAPS = 4
"""Places that are mixed before attention: the piece itself and three before it."""
LONGEST = 48
"""Pieces of a step, at most."""
_CALL = re.compile(r'(\w+)\((".*")\)')
TURNED = 2
"""Heads of each layer that know places, by rotary positions; the others only match what they read."""


def rotations(places: NDArray[np.int64], width: int) -> tuple[Array, Array]:
    """Return cosines and sines of rotary positions, each (places, width / 2)."""
    speeds = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = places[:, None] * speeds[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Network:
    """The forward pass, one text at a time; what was read is kept, so that each new piece costs little.

    Args:
        weights: by name, as `train.py` wrote them.
    """

    def __init__(self, weights: Mapping[str, NDArray[np.float16]]) -> None:
        self.weights = {name: each.astype(np.float32) for name, each in weights.items()}
        self.layers = sum(name.endswith(".into") for name in weights)
        self.forget()

    def forget(self) -> None:
        """Begin another text."""
        self._read = 0
        self._raw: list[Array | None] = [None] * self.layers
        self._keys: list[Array | None] = [None] * self.layers
        self._values: list[Array | None] = [None] * self.layers

    def read(self, pieces: Sequence[int]) -> Array:
        """Read on, and return the scores (pieces, vocabulary) of what comes after each piece."""
        table = self.weights["embed"]
        x = table[list(pieces)]
        turned = rotations(np.arange(self._read, self._read + len(pieces)), x.shape[1] // HEADS)
        for i in range(self.layers):
            x = x + self._attention(i, _normed(x, self.weights[f"{i}.before"]), turned)
            inner = np.maximum(
                _normed(x, self.weights[f"{i}.between"]) @ self.weights[f"{i}.up"], 0
            )
            x = x + (inner * inner) @ self.weights[f"{i}.down"]
        self._read += len(pieces)
        scores: Array = _normed(x, self.weights["last"]) @ table.T / np.sqrt(np.float32(x.shape[1]))
        return scores

    def _attention(self, i: int, x: Array, turned: tuple[Array, Array]) -> Array:
        raw = x @ self.weights[f"{i}.into"]
        if self._raw[i] is None:
            self._raw[i] = np.zeros((TAPS - 1, raw.shape[1]), np.float32)
        raw = np.concatenate([self._raw[i], raw])
        self._raw[i] = raw[-(TAPS - 1) :]
        taps, n = self.weights[f"{i}.taps"], len(x)
        mixed = sum(raw[TAPS - 1 - t : TAPS - 1 - t + n] * taps[t] for t in range(TAPS))
        q, k, v = (part.reshape(n, HEADS, -1).swapaxes(0, 1) for part in np.split(mixed, 3, axis=1))
        q, k = _turned(q, *turned), _turned(k, *turned)
        if self._keys[i] is not None:
            k = np.concatenate([self._keys[i], k], axis=1)
            v = np.concatenate([self._values[i], v], axis=1)
        self._keys[i], self._values[i] = k, v
        scores = q @ k.swapaxes(1, 2) / np.sqrt(np.float32(q.shape[2]))
        if n > 1:
            later = np.arange(k.shape[1])[None, :] > np.arange(k.shape[1] - n, k.shape[1])[:, None]
            scores = np.where(later, np.float32(-np.inf), scores)
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        heads: Array = (shares @ v).swapaxes(0, 1).reshape(n, -1) @ self.weights[f"{i}.out"]
        return heads


def _normed(x: Array, scale: Array) -> Array:
    size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    normed: Array = x / size * scale
    return normed


def _turned(x: Array, cosines: Array, sines: Array) -> Array:
    first, second = np.split(x[:TURNED], 2, axis=-1)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return np.concatenate([np.concatenate(turned, axis=-1), x[TURNED:]])


def spoken_text(message: Message) -> str:
    """Return the text of a message as the reader reads it; a tool call as the reader writes it."""
    calls = [f"{c.name}({json.dumps(c.arguments.get('path', ''))})" for c in message.tool_calls]
    return "\n".join([*filter(None, [message.text]), *calls])


def prompt(messages: Iterable[Message]) -> list[int]:
    """Return a whole prompt in pieces, and the role of who speaks next."""
    pieces = [n for m in messages for n in message(m.role, spoken_text(m))]
    return [*pieces, NUMBER["<assistant>"]]


class Reader(ScriptedModel):
    """The model behind the kit's interface; billed as a scripted one is, by counting.

    Args:
        weights: the file that `train.py` wrote.
        counter, clock: see `Scripted`.
        context_window: pieces of its own vocabulary that it reads; it was trained with no more.
    """

    def __init__(
        self,
        weights: Path = WEIGHTS,
        *,
        counter: TokenCounter,
        clock: Callable[[], float],
        context_window: int = 1_000,
    ) -> None:
        super().__init__((), name="reader", counter=counter, clock=clock)
        self.name = "reader"
        self.notice = "a small model, trained for this task alone: check what it says"
        self.window = context_window
        with np.load(weights) as kept:
            self.network = Network(dict(kept))
        self._asked: Request | None = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Read the whole prompt and say one step.

        Raises:
            ModelError: the prompt has more pieces than it was trained with.
        """
        self._asked = request
        return await super().__call__(request, emit)

    def reply(self, turn: int, step: int) -> Message:
        """Return what comes after the prompt, piece by piece the most probable."""
        if self._asked is None:
            raise ModelError("The reader was asked nothing yet.")
        pieces = prompt(self._asked.messages)
        if len(pieces) > self.window:
            raise ModelError(
                f"prompt is too long: {len(pieces)} pieces > {self.window} maximum", overflow=True
            )
        text = self.write(pieces)
        if found := _CALL.fullmatch(text):
            arguments = {"path": json.loads(found[2])}
            call = ToolCall(f"read_{turn}_{step}", found[1], arguments)
            return Message(role="assistant", parts=(call,), stop="tool")
        return Message(role="assistant", parts=(Text(text),), stop="stop")

    def _count_usage(self, _request: Request, prompt: int, reply: Message) -> Usage:
        """Return what was read and said; nothing is cached."""
        return Usage(input_tokens=prompt, output_tokens=self._counter.message(reply))

    def write(self, pieces: Sequence[int]) -> str:
        """Return the step that follows pieces; cut off where it finds no end."""
        self.network.forget()
        out: list[int] = []
        while len(out) < LONGEST:
            scores = self.network.read(out[-1:] or pieces)[-1]
            out.append(int(scores.argmax()))
            if out[-1] == NUMBER[END]:
                return decoded(out[:-1])
        return decoded(out)
