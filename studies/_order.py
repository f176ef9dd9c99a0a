"""What order_task measures: one model on one split of the order task."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import _tasks
import numpy as np
from _training import Adam, Batch, Model, Record, cross_entropy, epochs, make, train
from numpy.typing import NDArray

import gradprop as gp
from gradprop.environment import single_threaded_blas

Array = NDArray[Any]
NETWORKS = {"RNN": ("vanilla", 16), "GRU": ("gru", 8)}
LINEAR = ("bag of words", "counts and ramps", "every position")
MODELS = (*LINEAR, *NETWORKS)
SYMBOLS, BATCH, RATE, MAX_NORM = 8, 50, 1e-2, 1.0
ENOUGH = 1000
"""Iterations within which logistic regression converges on every split here."""


def features(name: str, x: Array) -> Array:
    """What a linear model sees of one-hot sequences x (B, T, symbols)."""
    if name == "bag of words":
        return np.asarray(x.sum(axis=1))
    if name == "counts and ramps":
        ramp = np.linspace(-1.0, 1.0, x.shape[1], dtype=x.dtype)
        return np.concatenate([x.sum(axis=1), np.einsum("t,bts->bs", ramp, x)], axis=1)
    return x.reshape(len(x), -1)


def regression(name: str, data: Batch, iterations: int) -> Any:
    """Fit a logistic regression with scikit-learn's defaults but for the number of iterations."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(), single_threaded_blas():
        # an early stop is what is asked for
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(max_iter=iterations).fit(features(name, data.x), data.target)


def network(name: str, rng: np.random.Generator) -> Model:
    """A fresh recurrent network."""
    kind, n = NETWORKS[name]
    return make(kind, n, SYMBOLS, 2, rng)


def trained(
    model: Model,
    data: Batch,
    passes: int,
    rng: np.random.Generator,
    after: Callable[[int], None] = lambda passed: None,
) -> Record:
    """Train a network over the data some times, calling `after` each of them."""
    each = len(data.x) // BATCH

    def watch(update: int, record: Record) -> bool:
        if update % each == 0:
            after(update // each)
        return False

    return train(
        model, epochs(data, BATCH, rng), Adam(RATE), passes * each, cross_entropy,
        max_norm=MAX_NORM, watch=watch,
    )  # fmt: skip


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Accuracy after every pass over the training set, and F1 and the rule followed at the end."""
    length, each, passes = int(point["length"]), int(point["each"]), int(point["passes"])
    draw = (_tasks.order_of_several(point[s], length, each, rng) for s in ("n_train", "n_test"))
    data, test = draw
    conflict = conflicting(int(point["n_test"]), length, rng)
    name = point["model"]
    accuracy = np.full(passes, np.nan)
    if name in NETWORKS:
        model = network(name, rng)

        def after(passed: int) -> None:
            accuracy[passed - 1] = np.mean(answers(model, test.x) == test.target)

        record = trained(model, data, passes, rng, after)
        found, on_conflict = answers(model, test.x), answers(model, conflict.x)
        fitted = np.mean(answers(model, data.x) == data.target)
        converged, diverged = accuracy[-1], record.diverged != ""
        count = gp.parameter_count(model.cell, output_size=2).total
    else:
        fits = [regression(name, data, i) for i in (*range(1, passes + 1), ENOUGH)]
        scores = [np.mean(fitted_answers(f, name, test.x) == test.target) for f in fits]
        accuracy[:], converged, fit = scores[:-1], scores[-1], fits[-2]
        found, on_conflict = (fitted_answers(fit, name, b.x) for b in (test, conflict))
        fitted = np.mean(fitted_answers(fit, name, data.x) == data.target)
        count, diverged = fit.coef_.size + fit.intercept_.size, False
    return {
        "accuracy": accuracy, "converged": float(converged), "fitted": float(fitted),
        "f1": f1_score(found, test.target), "n_parameters": int(count), "diverged": diverged,
        "follows_first": float(np.mean(on_conflict == conflict.target)),
    }  # fmt: skip


def measure_size(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Accuracy of the converged model of every position, and its weights of symbols 0 and 1."""
    length, each = int(point["length"]), int(point["each"])
    test = _tasks.order_of_several(point["n_test"], length, each, rng)
    data = _tasks.order_of_several(point["n_train"], length, each, rng)
    fit = regression(LINEAR[-1], data, ENOUGH)
    weights = fit.coef_.reshape(length, SYMBOLS)[:, :2]
    return {
        "accuracy": float(np.mean(fitted_answers(fit, LINEAR[-1], test.x) == test.target)),
        "weights": weights.T.astype(np.float64),
        "iterations": int(fit.n_iter_[0]),
    }


def answers(model: Model, x: Array) -> Array:
    """Label that a network gives to each sequence."""
    return np.asarray(model.predict(x).argmax(axis=1))


def fitted_answers(fit: Any, name: str, x: Array) -> Array:
    """Label that a logistic regression gives to each sequence."""
    return np.asarray(fit.predict(features(name, x)))


def conflicting(size: int, length: int, rng: np.random.Generator) -> Batch:
    """Sequences with two of each mark, the first and the last of which are the same symbol.

    Who goes by the first mark gives the label; who goes by the last takes its symbol for the
    second one, and gives the other label.
    """
    batch = _tasks.order_of_several(3 * size, length, 2, rng)
    marked = batch.x[..., :2]
    last = length - 1 - marked[:, ::-1].any(axis=-1).argmax(axis=1)
    same = marked[np.arange(len(last)), last, 0] == batch.target
    keep = np.flatnonzero(same)[:size]
    return Batch(batch.x[keep], batch.target[keep])


def f1_score(found: Array, wanted: Array) -> float:
    """Harmonic mean of precision and recall of label 1; 0 if it was never found rightly."""
    hits = float(np.sum((found == 1) & (wanted == 1)))
    return 2.0 * hits / float(np.sum(found == 1) + np.sum(wanted == 1))
