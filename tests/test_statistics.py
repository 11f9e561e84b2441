"""Few-run statistics, against SciPy, known values and the coverage they promise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rl_training.statistics import (
    bootstrap_interval,
    brunner_munzel,
    holm,
    improvement_interval,
    iqm,
    probability_of_improvement,
    rank_test,
)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 9.0], 4.0),
        ([0.0, 1.0, 3.0, 100.0], 2.0),
        ([-1000.0, 1.0, 2.0, 6.0, 1000.0], 3.0),
        ([9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0], 3.5),
    ],
)
def test_iqm_by_hand(scores: list[float], expected: float) -> None:
    assert iqm(scores) == pytest.approx(expected)


@pytest.mark.parametrize("count", range(1, 25))
def test_iqm_is_scipys_trimmed_mean(count: int) -> None:
    scores = np.random.default_rng(count).normal(size=(count, 3))
    assert iqm(scores[:, 0]) == pytest.approx(stats.trim_mean(scores[:, 0], 0.25))
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
    for axis in (0, 1, -1):
        np.testing.assert_allclose(iqm(scores, axis=axis), stats.trim_mean(scores, 0.25, axis=axis))


def test_iqm_leaves_its_input_in_order() -> None:
    scores = np.array([3.0, 1.0, 2.0, 0.0])
    iqm(scores)
    assert scores.tolist() == [3.0, 1.0, 2.0, 0.0]


@pytest.mark.parametrize("statistic", [iqm, np.mean])
def test_bootstrap_agrees_with_all_resamples_there_are(statistic: Any) -> None:
    scores = np.random.default_rng(3).exponential(size=5)
    every_resample = np.array(list(itertools.product(scores, repeat=5)))
    expected = np.quantile(statistic(every_resample, axis=-1), [0.1, 0.9])
    got = bootstrap_interval(scores, statistic, confidence=0.8, resamples=20_000)
    np.testing.assert_allclose(got, expected, atol=0.02 * scores.std())


@pytest.mark.parametrize("statistic", [iqm, np.mean, np.median])
def test_bootstrap_covers_the_true_center_as_often_as_promised(statistic: Any) -> None:
    experiments = np.random.default_rng(11).normal(loc=5.0, scale=2.0, size=(400, 40))
    intervals = [bootstrap_interval(scores, statistic, resamples=500) for scores in experiments]
    covered = np.mean([low <= 5.0 <= high for low, high in intervals])
    # The binomial error of 400 experiments is 0.011, and percentile intervals run slightly short.
    assert 0.92 <= covered <= 0.975


def test_bootstrap_never_mixes_tasks() -> None:
    scores = np.tile([0.0, 100.0], (6, 1))
    assert bootstrap_interval(scores, np.mean) == (50.0, 50.0)


def test_bootstrap_draws_each_task_on_its_own() -> None:
    # Redrawing whole rows would keep every row's mean of one half.
    scores = np.array([[0.0, 1.0], [1.0, 0.0]] * 3)
    low, high = bootstrap_interval(scores, np.mean)
    assert low < 0.35
    assert high > 0.65


def test_one_task_is_the_same_as_no_task_axis() -> None:
    scores = np.random.default_rng(0).normal(size=7)
    assert bootstrap_interval(scores) == bootstrap_interval(scores[:, None])


def test_bootstrap_depends_on_its_seed_alone() -> None:
    scores = np.random.default_rng(0).normal(size=9)
    np.random.seed(1)
    first = bootstrap_interval(scores, seed=4)
    np.random.seed(2)
    assert first == bootstrap_interval(scores, seed=4)
    assert first != bootstrap_interval(scores, seed=5)


def test_more_confidence_is_wider() -> None:
    scores = np.random.default_rng(0).normal(size=20)
    low_50, high_50 = bootstrap_interval(scores, confidence=0.5)
    low_99, high_99 = bootstrap_interval(scores, confidence=0.99)
    assert low_99 < low_50 < iqm(scores) < high_50 < high_99


def test_probability_of_improvement_by_hand() -> None:
    assert probability_of_improvement([2.0, 3.0], [0.0, 1.0]) == 1.0
    assert probability_of_improvement([1.0, 1.0], [1.0]) == 0.5
    assert probability_of_improvement([1.0, 3.0], [2.0, 3.0, 4.0]) == pytest.approx(1.5 / 6)


def test_probability_of_improvement_is_the_mann_whitney_u() -> None:
    rng = np.random.default_rng(2)
    # Small integers, so that there are ties.
    x, y = rng.integers(0, 6, size=13), rng.integers(1, 8, size=9)
    expected = stats.mannwhitneyu(x, y).statistic / (13 * 9)
    assert probability_of_improvement(x, y) == pytest.approx(expected)
    assert probability_of_improvement(y, x) == pytest.approx(1 - expected)


@pytest.mark.parametrize("scores", [[], [1.0, float("nan")], [float("inf")], [[1.0, float("nan")]]])
def test_meaningless_scores_are_refused(scores: Any) -> None:
    expected = "at least one" if not scores else "1 of [12] NaN or infinite"
    with pytest.raises(ValueError, match=f"^scores: .*{expected}"):
        iqm(scores)
    with pytest.raises(ValueError, match=f"^scores: .*{expected}"):
        bootstrap_interval(scores)
    with pytest.raises(ValueError, match=r"^x: "):
        probability_of_improvement(scores, [1.0])
    with pytest.raises(ValueError, match=r"^y: "):
        probability_of_improvement([1.0], scores)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"^scores: .*\(1, 1, 1\)"):
        bootstrap_interval([[[1.0]]])
    with pytest.raises(ValueError, match=r"^confidence: .*95"):
        bootstrap_interval([1.0], confidence=95)
    with pytest.raises(ValueError, match=r"^resamples: .*0"):
        bootstrap_interval([1.0], resamples=0)
    with pytest.raises(ValueError, match=r"^x, y: "):
        probability_of_improvement([[1.0]], [1.0])


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 3), (5, 5), (4, 8)])
def test_statistic_is_scipys(n: int, m: int) -> None:
    rng = np.random.default_rng(n * 10 + m)
    for ties in (False, True):
        x, y = rng.normal(size=n), rng.normal(size=m) * 3
        if ties:
            x, y = np.round(x), np.round(y)
        expected = stats.brunnermunzel(x, y).statistic
        if np.isfinite(expected):
            assert brunner_munzel(x[None], y[None])[0] == pytest.approx(expected)


def test_rank_test_is_the_share_of_all_divisions() -> None:
    rng = np.random.default_rng(0)
    for ties in (False, True):
        x, y = rng.normal(size=4) + 1, rng.normal(size=5)
        if ties:
            x, y = np.round(x), np.round(y)
        pooled = np.concatenate((x, y))
        seen = abs(stats.brunnermunzel(x, y).statistic)
        far = 0
        for chosen in itertools.combinations(range(9), 4):
            rest = [i for i in range(9) if i not in chosen]
            with np.errstate(all="ignore"):
                far += (
                    not abs(stats.brunnermunzel(pooled[list(chosen)], pooled[rest]).statistic) < seen - 1e-9
                )
        assert rank_test(x, y) == pytest.approx(far / 126)
        assert rank_test(y, x) == pytest.approx(far / 126)


def test_rank_test_is_honest_about_few_and_about_equal_scores() -> None:
    assert rank_test([1.0, 2.0, 3.0], [7.0, 8.0, 9.0]) == pytest.approx(0.1)
    assert rank_test([500.0] * 5, [500.0] * 5) == 1.0
    assert rank_test([1.0], [2.0]) == 1.0


def test_rank_test_of_many_scores_is_drawn_and_near_the_exact_one() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=30) + 0.4, rng.normal(size=30)
    assert rank_test(x, y) == pytest.approx(stats.brunnermunzel(x, y).pvalue, abs=0.01)
    assert rank_test(x, y) == rank_test(x, y)
    assert 0 < rank_test(x + 100, y) < 1e-3


def test_rank_test_calls_wolf_as_rarely_as_promised() -> None:
    rng = np.random.default_rng(5)
    p_values = [rank_test(rng.normal(size=5), rng.normal(size=5)) for _ in range(1_000)]
    assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.05


def test_a_difference_in_spread_is_not_taken_for_one_in_height() -> None:
    rng = np.random.default_rng(6)
    called = [rank_test(10 * rng.normal(size=6), rng.normal(size=6)) < 0.05 for _ in range(300)]
    assert np.mean(called) < 0.08
    called = [rank_test(10 * rng.normal(size=5), rng.normal(size=10)) < 0.05 for _ in range(200)]
    # Mann-Whitney's test calls some 20 % of these.
    assert np.mean(called) < 0.12


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_improvement_interval_agrees_with_all_resamples_there_are() -> None:
    x, y = np.array([1.0, 3.0, 3.0]), np.array([0.0, 2.0, 3.0])
    pairs = itertools.product(itertools.product(x, repeat=3), itertools.product(y, repeat=3))
    every = [probability_of_improvement(a, b) for a, b in pairs]
    expected = np.quantile(every, [0.1, 0.9])
    got = improvement_interval(x, y, confidence=0.8, resamples=20_000)
    np.testing.assert_allclose(got, expected, atol=0.06)
    assert improvement_interval([2.0, 3.0], [0.0, 1.0]) == (1.0, 1.0)
