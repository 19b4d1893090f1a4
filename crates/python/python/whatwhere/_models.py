"""Trained run folders."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native


class Model:
    """A trained model, its tokenizer and its settings; `load` opens one."""

    def __init__(self, folder: str | os.PathLike[str], weights: str | None = None):
        if not hasattr(_native, "Model"):
            raise ImportError(
                "this build of whatwhere opens no run folders: build it with the cargo feature `models`"
            )
        self._native = _native.Model(os.fspath(folder), weights)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings it was trained with, by the words of TOML."""
        found: dict[str, Any] = json.loads(self._native.settings())
        return found

    @property
    def step(self) -> int:
        """Updates behind the weights."""
        return self._native.step

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text."""
        return self._native.tokens(text)

    def generate(
        self, prompt: str = "", *, limit: int = 256, stop: Sequence[str] = (), **sampling: float
    ) -> str:
        """What comes after the prompt, at most `limit` tokens, up to a `stop` string; for a decoder.

        `sampling` has the words of the command line: temperature (0.8; 0 takes the best token), top_k, top_p, min_p,
        repetition_penalty, seed (0). Equal seeds write equal texts.
        """
        if limit < 0:
            raise ValueError(f"limit = {limit}, expected 0 or more tokens")
        return self._native.generate(prompt, limit, list(stop), json.dumps(sampling))

    def translate(self, sentences: Sequence[str], **search: float | str) -> list[str]:
        """Each sentence translated, in the order given; for an encoder-decoder.

        `search` has the words of the command line: beam (4; 1 is greedy), length_penalty (0.6), longer (50 tokens beyond
        the longest source), and for imported models of several languages from_language and to_language ("en", or a token).
        """
        if isinstance(sentences, str):
            raise ValueError("sentences is one string, expected a list of them")
        return self._native.translate(list(sentences), json.dumps(search))

    def fill(self, text: str, count: int = 5) -> list[list[tuple[str, float]]]:
        """The `count` likeliest tokens for every `[MASK]` of a text, best first, with their probabilities; for an encoder."""
        if count < 0:
            raise ValueError(f"count = {count}, expected 0 or more")
        return self._native.fill(text, count)

    @property
    def classes(self) -> list[str]:
        """Names of the classes that it tells, in the order of their numbers; of a run with the objective `classify`."""
        return self._native.classes()

    def classify(self, texts: Sequence[str | tuple[str, str]]) -> list[dict[str, Any]]:
        """The class of each text, or pair of texts, in the order given; of a run with the objective `classify`.

        Each is a dictionary: `label` and its `probability`, `probabilities` by class, and whether the text was `cut` because
        it is longer than the run was trained with.
        """
        if isinstance(texts, str):
            raise ValueError("texts is one string, expected a list of them")
        pairs: list[tuple[str, str | None]] = [
            (text, None) if isinstance(text, str) else (text[0], text[1]) for text in texts
        ]
        classes = self.classes
        answers = []
        for probabilities, cut in self._native.classify(pairs):
            shares = dict(zip(classes, probabilities))
            label = max(classes, key=lambda name: shares[name])
            answers.append(
                {"label": label, "probability": shares[label], "probabilities": shares, "cut": cut}
            )
        return answers

    def score(self, text: str) -> list[tuple[str, float]]:
        """Each token after the first, with its log-probability (natural) given the tokens before it; of a decoder."""
        return self._native.score(text)

    def logits(self, ids: ArrayLike, decoder_ids: ArrayLike | None = None) -> NDArray[np.float32]:
        """Logits of token ids (batch, length) at every position, (batch, length, vocabulary), trained and imported runs alike.

        Of the next token, for an encoder of the same; an encoder-decoder reads `ids` and is asked for what comes after
        each of `decoder_ids`.
        """
        rows = _ids("ids", ids)
        if decoder_ids is None:
            return self._native.logits(None, rows)
        return self._native.logits(rows, _ids("decoder_ids", decoder_ids))

    def attention_weights(self, text: str, layer: int = 0) -> NDArray[np.float32]:
        """How much each token of a text takes of which in one layer, (heads, tokens, tokens); not of an encoder-decoder.

        Rows are queries and sum to 1 (where the pattern weighs no further). As large as the scores.
        """
        if layer < 0:
            raise ValueError(f"layer = {layer}, expected 0 or more")
        return self._native.attention_weights(text, layer)

    def heads(
        self, text: str, target: str | None = None, *, ablation: bool = True
    ) -> dict[str, Any]:
        """What every head does over a text, measured; `target` is the other side of a pair, for an encoder-decoder.

        `heads` has one dictionary for each: `role` (or None), mean weights on the `previous` token, the `first`, `itself`, an
        `offset`, after earlier occurrences (`induction`), on earlier ones (`same_token`), from closing to opening `bracket`,
        each beside a `uniform` head's; `entropy`, `shares` of the scores' spread, `loss_without` it in nats per token.
        `pruning` has the loss with ever fewer heads. `ablation=False` leaves losses out, which take two passes for each head.
        """
        found: dict[str, Any] = json.loads(self._native.heads(text, target, ablation))
        return found


def _ids(name: str, ids: ArrayLike) -> list[list[int]]:
    """Token ids as rows of one length."""
    array = np.asarray(ids)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has shape {array.shape} of {array.dtype}, expected (batch, length) of whole numbers"
        )
    if array.min() < 0 or array.max() >= 2**32:
        raise ValueError(f"{name} reaches from {array.min()} to {array.max()}, expected ids from 0")
    rows: list[list[int]] = array.tolist()
    return rows


def load(folder: str | os.PathLike[str], weights: str | None = None) -> Model:
    """Opens a run folder that `whatwhere train` or `whatwhere import` has written.

    `weights` are what the model computes with, "f32" or "int8", which takes a quarter of the memory and has nearly the same
    results; by default they are as the run stores them (`whatwhere quantize`).

    >>> model = load("runs/tiny")  # doctest: +SKIP
    >>> model.generate("Once", limit=20, temperature=0.0)  # doctest: +SKIP
    """
    return Model(folder, weights)
