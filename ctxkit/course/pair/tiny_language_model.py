"""A language model of some 300,000 parameters for one task: vocabulary, network, and provider.

The network is a decoder: embeddings, layers of attention with rotary positions and of a small
feed-forward network, and the same embeddings again as the output layer. Before attention, queries,
keys and values are mixed with those of the three tokens before (the convolution of Primer, So et
al. 2021, arXiv:2109.08668, whose squared ReLU it has, too), so that a position knows the tokens in
front of it, which copying needs. `notebooks/pair/train.py` trained it; here is NumPy alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.agent.models.scripted_and_lookup_models import ScriptedModel
from ctxkit.course.pair.number_lookup_task import CONFIG_KEYS, INSTRUCTIONS, SERVICES
from ctxkit.errors import ModelError
from ctxkit.session.messages import Message, Text, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.agent.models.model import Emit, Request
    from ctxkit.tokens.token_counters import TokenCounter

    Array = NDArray[np.float32]

WEIGHTS_PATH = Path(__file__).parent / "reader.npz"
N_HEADS = 4
N_ROTARY_HEADS = 2
"""Heads of each layer with rotary positions; the others compare content alone."""
CONVOLUTION_WIDTH = 4
"""Positions that are mixed before attention: the token itself and three before it."""
MAX_STEP_TOKENS = 48
"""Tokens of one step, at most."""
PLACEHOLDERS = (
    "Old environment output: ({lines} lines omitted)",
    "[Old tool result content cleared]",
)
"""Text in the place of a cleared result: SWE-agent's, and Claude Code's."""
ROLES = ("system", "user", "assistant", "tool", "summary")
PAD, END, OTHER = "<pad>", "<end>", "<?>"
_PHRASES = ("Question ", ": what are ", " and ", " = ", ", ", 'read_file("etc/', '.toml")')
_WORDS = sorted(set(re.findall(r" ?[A-Za-z]+", " ".join([INSTRUCTIONS, *PLACEHOLDERS]))))
VOCABULARY = tuple(
    dict.fromkeys(
        [
            *(PAD, END, OTHER, *(f"<{role}>" for role in ROLES)),
            *("\n", *map(chr, range(32, 127))),
            *(f"{n:02}" for n in range(100)),
            *SERVICES,
            *(f"_{key}" for key in CONFIG_KEYS),
            *_PHRASES,
            *_WORDS,
        ]
    )
)
"""The reader's own tokens: words of its task, pairs of digits, and single characters."""
TOKEN_IDS = {token: n for n, token in enumerate(VOCABULARY)}
_TOKEN = re.compile(
    "|".join(map(re.escape, sorted(VOCABULARY[3 + len(ROLES) :], key=len, reverse=True))) + "|.",
    re.DOTALL,
)
_CALL = re.compile(r'(\w+)\((".*")\)')


class TinyReaderModel(ScriptedModel):
    """The trained model behind the kit's interface; its tokens are counted as a scripted one's.

    Args:
        weights: the file that `train.py` wrote.
        counter: counts the tokens of its bill.
        clock: returns the time in seconds.
        context_window: tokens of its own vocabulary, as many as it was trained with.
    """

    def __init__(
        self,
        weights: Path = WEIGHTS_PATH,
        *,
        counter: TokenCounter,
        clock: Callable[[], float],
        context_window: int = 1_000,
    ) -> None:
        super().__init__((), name="reader", counter=counter, clock=clock)
        self.name = "reader"
        self.notice = "a small model, trained for this task alone: check what it says"
        self.window = context_window
        with np.load(weights) as arrays:
            self.network = TinyReaderNetwork(dict(arrays))
        self._request: Request | None = None

    async def __call__(self, request: Request, emit: Emit) -> Message:
        """Read the whole prompt and return one step.

        Raises:
            ModelError: the prompt has more tokens than it was trained with.
        """
        self._request = request
        return await super().__call__(request, emit)

    def reply(self, turn: int, step: int) -> Message:
        """Return the most probable step after the prompt, token by token.

        Raises:
            ModelError: there is no request, or its prompt has more tokens than the model's window.
        """
        if self._request is None:
            raise ModelError("The reader was asked nothing yet.")
        prompt = encode_prompt(self._request.messages)
        if len(prompt) > self.window:
            raise ModelError(
                f"prompt is too long: {len(prompt)} tokens > {self.window} maximum", overflow=True
            )
        text = self.generate_step(prompt)
        if match := _CALL.fullmatch(text):
            arguments = {"path": json.loads(match[2])}
            call = ToolCall(f"read_{turn}_{step}", match[1], arguments)
            return Message(role="assistant", parts=(call,), stop="tool")
        return Message(role="assistant", parts=(Text(text),), stop="stop")

    def generate_step(self, prompt: Sequence[int]) -> str:
        """Return the step that follows a prompt, clipped at `MAX_STEP_TOKENS` without an end."""
        self.network.reset()
        output: list[int] = []
        while len(output) < MAX_STEP_TOKENS:
            logits = self.network.compute_logits(output[-1:] or prompt)[-1]
            output.append(int(logits.argmax()))
            if output[-1] == TOKEN_IDS[END]:
                return decode_tokens(output[:-1])
        return decode_tokens(output)

    def _count_usage(self, _request: Request, prompt: int, reply: Message) -> Usage:
        """Return the tokens of prompt and reply; nothing is cached."""
        return Usage(input_tokens=prompt, output_tokens=self._counter.message(reply))


class TinyReaderNetwork:
    """The forward pass for one text at a time, with a cache of keys and values.

    Args:
        weights: arrays by name, as `train.py` wrote them.
    """

    def __init__(self, weights: Mapping[str, NDArray[np.float16]]) -> None:
        self.weights = {name: each.astype(np.float32) for name, each in weights.items()}
        self.n_layers = sum(name.endswith(".into") for name in weights)
        self.reset()

    def reset(self) -> None:
        """Empty the cache, for another text."""
        self._position = 0
        self._inputs: list[Array | None] = [None] * self.n_layers
        self._keys: list[Array | None] = [None] * self.n_layers
        self._values: list[Array | None] = [None] * self.n_layers

    def compute_logits(self, tokens: Sequence[int]) -> Array:
        """Append tokens to the text, and return the logits (tokens, vocabulary) after each."""
        weights, embeddings = self.weights, self.weights["embed"]
        x = embeddings[list(tokens)]
        positions = np.arange(self._position, self._position + len(tokens))
        rotations = compute_rotations(positions, x.shape[1] // N_HEADS)
        for i in range(self.n_layers):
            x = x + self._attend(i, _scale_to_rms(x, weights[f"{i}.before"]), rotations)
            inner = np.maximum(_scale_to_rms(x, weights[f"{i}.between"]) @ weights[f"{i}.up"], 0)
            x = x + (inner * inner) @ weights[f"{i}.down"]
        self._position += len(tokens)
        output = _scale_to_rms(x, weights["last"])
        logits: Array = output @ embeddings.T / np.sqrt(np.float32(x.shape[1]))
        return logits

    def _attend(self, i: int, x: Array, rotations: tuple[Array, Array]) -> Array:
        mixed, n = self._convolve(i, x @ self.weights[f"{i}.into"]), len(x)
        q, k, v = (
            part.reshape(n, N_HEADS, -1).swapaxes(0, 1) for part in np.split(mixed, 3, axis=1)
        )
        q, k = _rotate_heads(q, *rotations), _rotate_heads(k, *rotations)
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

    def _convolve(self, i: int, projections: Array) -> Array:
        """Mix queries, keys and values of each position with those of the positions before."""
        n_before, n = CONVOLUTION_WIDTH - 1, len(projections)
        before = self._inputs[i]
        if before is None:
            before = np.zeros((n_before, projections.shape[1]), np.float32)
        inputs = np.concatenate([before, projections])
        self._inputs[i] = inputs[-n_before:]
        kernel = self.weights[f"{i}.taps"]
        mixed: Array = sum(
            inputs[n_before - t : n_before - t + n] * kernel[t] for t in range(CONVOLUTION_WIDTH)
        )
        return mixed


def encode_text(text: str) -> list[int]:
    """Return the token ids of a text, longest match first; `<?>` for an unknown character."""
    return [TOKEN_IDS.get(token, TOKEN_IDS[OTHER]) for token in _TOKEN.findall(text)]


def decode_tokens(tokens: Iterable[int]) -> str:
    """Return the text of token ids."""
    return "".join(VOCABULARY[n] for n in tokens)


def encode_message(role: str, text: str) -> list[int]:
    """Return the token ids of a message: its role, its text, and its end.

    Args:
        role: role of the message, for which the vocabulary has a token.
        text: text of the message.
    """
    return [TOKEN_IDS[f"<{role}>"], *encode_text(text), TOKEN_IDS[END]]


def encode_prompt(messages: Iterable[Message]) -> list[int]:
    """Return the token ids of a prompt, up to the role of the reply."""
    tokens = [n for m in messages for n in encode_message(m.role, format_message(m))]
    return [*tokens, TOKEN_IDS["<assistant>"]]


def format_message(message: Message) -> str:
    """Return a message's text and tool calls in the form that the reader was trained with."""
    calls = [f"{c.name}({json.dumps(c.arguments.get('path', ''))})" for c in message.tool_calls]
    return "\n".join([*filter(None, [message.text]), *calls])


def compute_rotations(positions: NDArray[np.int64], width: int) -> tuple[Array, Array]:
    """Return cosines and sines of rotary positions, each (positions, width / 2).

    Args:
        positions: position of each token, from 0.
        width: dimensions of one attention head, an even number.
    """
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = positions[:, None] * frequencies[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _scale_to_rms(x: Array, scale: Array) -> Array:
    root_mean_square = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    scaled: Array = x / root_mean_square * scale
    return scaled


def _rotate_heads(x: Array, cosines: Array, sines: Array) -> Array:
    first, second = np.split(x[:N_ROTARY_HEADS], 2, axis=-1)
    halves = [first * cosines - second * sines, second * cosines + first * sines]
    return np.concatenate([np.concatenate(halves, axis=-1), x[N_ROTARY_HEADS:]])
