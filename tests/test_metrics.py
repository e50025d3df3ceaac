"""Our metrics match the official scorers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from bertworks.measure import intervals as bootstrap
from bertworks.measure import metrics
from bertworks.measure.calibration import (
    answer_calibration_loss,
    calibration_error,
    class_calibration_loss,
    fit_temperature,
    reliability,
    with_temperature,
)
from bertworks.measure.intervals import difference_intervals, intervals, seed_mean
from bertworks.measure.metrics import METRICS
from test_tasks import small_task

CLASSES = st.integers(2, 5).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=40)
    )
)
TAGS = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])
BMES = st.sampled_from(["O", "B-x", "M-x", "E-x", "S-x", "B-y", "E-y"])
SENTENCES = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.lists(TAGS, min_size=n, max_size=n)] * 2)),
    min_size=1,
    max_size=6,
)


@given(CLASSES)
def test_class_metrics(labels_and_rows: tuple[int, list[tuple[int, int]]]) -> None:
    n, rows = labels_and_rows
    targets, predicted = np.array(rows).T.astype(float)
    ours = metrics.nan_to_zero(metrics.class_metrics(targets, predicted, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(targets, predicted))
        f1 = (
            sklearn.metrics.f1_score(targets, predicted, labels=[1], average="macro", zero_division=0)
            if n == 2
            else sklearn.metrics.f1_score(
                targets, predicted, average="macro"
            )  # over the classes that occur or are predicted
        )
        assert ours["f1"] == pytest.approx(f1)
        assert ours["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(targets, predicted), abs=1e-12)
        assert (
            metrics.confusion(targets, predicted, n)
            == sklearn.metrics.confusion_matrix(targets, predicted, labels=range(n))
        ).all()


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=30))
def test_regression_metrics(rows: list[tuple[int, int]]) -> None:
    a, b = np.array(rows, float).T
    ours = metrics.regression_metrics(a, b)
    if a.std() and b.std():
        assert ours["pearson"] == pytest.approx(scipy.stats.pearsonr(a, b).statistic, abs=1e-12)
        assert ours["spearman"] == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    else:
        assert ours["pearson"] == ours["spearman"] == 0


@given(st.lists(st.tuples(*[st.lists(st.booleans(), min_size=3, max_size=3)] * 2), min_size=1, max_size=20))
def test_multilabel_metrics(rows: list[tuple[list[bool], list[bool]]]) -> None:
    targets, predicted = (np.array(column) for column in zip(*rows, strict=True))
    ours = metrics.nan_to_zero(metrics.multilabel_metrics(targets, predicted))
    assert ours["f1"] == pytest.approx(sklearn.metrics.f1_score(targets, predicted, average="micro", zero_division=0))
    macro = sklearn.metrics.f1_score(targets, predicted, average="macro", zero_division=np.nan)
    assert ours["f1_macro"] == pytest.approx(0.0 if np.isnan(macro) else macro)
    assert ours["exact"] == pytest.approx(sklearn.metrics.accuracy_score(targets, predicted))


@given(SENTENCES)
def test_entity_metrics_match_the_conll_scorer(sentences: list[tuple[list[str], list[str]]]) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score

    targets, predicted = ([list(tags) for tags in column] for column in zip(*sentences, strict=True))
    ours = metrics.nan_to_zero(
        metrics.entity_metrics(
            np.array([metrics.entity_counts(*pair) for pair in zip(targets, predicted, strict=True)], float)
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours["entity_f1"] == pytest.approx(f1_score(targets, predicted))
        assert ours["precision"] == pytest.approx(precision_score(targets, predicted))
        assert ours["recall"] == pytest.approx(recall_score(targets, predicted))


@given(st.lists(BMES, min_size=1, max_size=10))
def test_entities_of_bmes(tags: list[str]) -> None:
    from seqeval.metrics.sequence_labeling import get_entities

    as_bioes = [tag.replace("M-", "I-") for tag in tags]  # the library knows BIOES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metrics.entities(tags) == get_entities(as_bioes)


def test_entities_of_other_tag_schemes() -> None:
    assert metrics.entities(["PER", "PER", "O", "LOC"]) == [("PER", 0, 1), ("LOC", 3, 3)]
    assert metrics.entities(["U-x", "B-y", "L-y", "B_z", "I_z"]) == [("x", 0, 0), ("y", 1, 2), ("z", 3, 4)]
    assert metrics.entities(["B", "M", "E", "S"]) == [("_", 0, 2), ("_", 3, 3)]
    all_wrong = metrics.entity_metrics(np.array([metrics.entity_counts(["DT", "NN"], ["NN", "DT"])], float))
    assert all_wrong["entity_f1"] == all_wrong["tag_accuracy"] == 0
    for tags, expected in (
        (["DT", "NN"], False),
        (["PER", "O"], True),
        (["B", "M", "E", "S"], True),
        (["B-x", "I-x"], True),
    ):
        assert metrics.has_entity_tags(tags) == expected


@given(CLASSES)
def test_per_class_metrics(labels_and_rows: tuple[int, list[tuple[int, int]]]) -> None:
    n, rows = labels_and_rows
    ours = metrics.count_classes(({(str(a), None)}, {(str(b), None)}) for a, b in rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sklearn.metrics.precision_recall_fscore_support(
            *zip(*rows, strict=True), labels=range(n), zero_division=0
        )
    for label, (precision, recall, f1, support) in enumerate(zip(*expected, strict=True)):
        counts = ours.get(str(label), metrics.ClassCounts(0, 0, 0))
        assert (counts.precision, counts.recall, counts.f1, counts.support) == pytest.approx(
            (precision, recall, f1, support)
        )


def test_intervals_of_few_examples_without_errors() -> None:
    def accuracy(rows: np.ndarray) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    assert intervals(accuracy, METRICS, [np.ones((60, 1))]) == {"accuracy": (pytest.approx(0.95), 1.0)}
    assert intervals(accuracy, METRICS, [np.ones((2, 1))]) == {"accuracy": (0.0, 1.0)}
    assert intervals(accuracy, METRICS, [np.zeros((60, 1))]) == {"accuracy": (0.0, pytest.approx(0.05))}
    low, high = difference_intervals(accuracy, METRICS, [np.zeros((3, 1))], [np.ones((3, 1))])["accuracy"]
    assert low <= 0 < high, "three examples prove nothing"
    low, high = difference_intervals(accuracy, METRICS, [np.zeros((60, 1))], [np.ones((60, 1))])["accuracy"]
    assert (low, high) == (pytest.approx(0.95), 1.0)

    def mean_error(rows: np.ndarray) -> dict[str, float]:
        return {"mae": float(rows.mean())}

    interval = difference_intervals(mean_error, METRICS, [np.full((60, 1), 1e-4)], [np.zeros((60, 1))])
    assert interval["mae"][1] < 0, "errors are in the user's units, not fractions of examples"


@pytest.mark.parametrize(
    ("references", "prediction", "f1", "exact"),
    [
        (["the Denver Broncos"], "Denver Broncos!", 1.0, 1.0),
        (["Denver Broncos", "Broncos"], "the broncos", 1.0, 1.0),
        (["a b c d"], "b c", 4 / 5, 0.0),
        ([], "", 1.0, 1.0),
        ([], "something", 0.0, 0.0),
        (["something"], "", 0.0, 0.0),
        (["the"], "a", 1.0, 1.0),
    ],
)
def test_answer_scores_match_squad(references: list[str], prediction: str, f1: float, exact: float) -> None:
    assert metrics.answer_scores(references, prediction) == pytest.approx((f1, exact))


@pytest.mark.parametrize(
    ("reference", "prediction", "f1", "exact"),
    [
        ("中华人民共和国", "人民共和国", 10 / 12, 0),
        ("北京", "北京。", 1, 1),
        ("《红楼梦》", "红楼梦", 1, 1),
        ("don’t", "dont", 0, 0),
    ],
)
def test_chinese_answers_are_compared_by_characters(reference: str, prediction: str, f1: float, exact: float) -> None:
    """Scripts with spaces are compared as by SQuAD's scorer, which does not know curly quotes."""
    assert metrics.answer_scores([reference], prediction) == pytest.approx((f1, exact))


def test_rare_classes_do_not_bias_an_interval() -> None:
    targets = np.concatenate([np.zeros(80), np.arange(1, 21)])
    predicted = targets.copy()
    predicted[-2:] = 0
    rows = np.stack([targets, predicted], 1)
    (low, high) = intervals(lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 21), METRICS, [rows])["f1"]
    f1 = metrics.class_metrics(targets, predicted, 21)["f1"]
    assert low < f1 < high


@pytest.mark.parametrize("shape", ["classify", "multilabel"])
def test_the_interval_of_macro_f1_is_about_the_same_classes(shape: str) -> None:
    """Frequent classes are mostly right, classes of one example wrong: resamples without these are not better ones."""
    task = small_task("bert-mini", shape)
    task.labels = tuple(map(str, range(12)))
    generator = np.random.default_rng(0)
    targets = np.concatenate([np.repeat([0, 1, 2, 3], 50), np.arange(4, 12)])
    predicted = np.where((generator.random(len(targets)) < 0.85) & (targets < 4), targets, (targets + 1) % 4)
    rows = np.stack([targets, predicted], 1).astype(float)
    if shape == "multilabel":
        rows = np.concatenate([np.eye(12)[targets], np.eye(12)[predicted]], 1)
    name = "f1" if shape == "classify" else "f1_macro"
    f1 = task.metric_values(rows)[name]
    results = task.resampled_metrics(rows)
    resampled = [results(rows[generator.integers(0, len(rows), len(rows))])[name] for _ in range(300)]
    assert np.mean(resampled) == pytest.approx(f1, abs=0.01), "not shifted"
    low, high = intervals(task.metric_values, METRICS, [rows], task.resampled_metrics)[name]
    assert high - f1 == pytest.approx(f1 - low, rel=0.5) and high - low < 0.1
    assert results(rows) == task.metric_values(rows)


def test_interval_of_a_correlation_with_constant_predictions() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0]] * 10)
    low, high = intervals(lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 2), METRICS, [rows])["matthews"]
    assert low < 0 < high


def test_resamples_without_positives_do_not_bias_an_interval() -> None:
    """Three positives of a hundred, all predicted: one resample of twenty contains none of them."""
    targets = (np.arange(100) < 3).astype(float)
    all_intervals = intervals(
        lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 2), METRICS, [np.stack([targets, targets], 1)]
    )
    assert {name: interval for name, interval in all_intervals.items() if interval[0] < 0.9} == {}


def test_difference_interval_of_equal_runs() -> None:
    rows = (np.arange(10) < 7).astype(float)[:, None]

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    for n_seeds in (1, 3, 7):
        low, high = difference_intervals(accuracy_of, METRICS, [rows] * n_seeds, [rows])["accuracy"]
        assert (low, high) == pytest.approx((-0.3, 0.3)), "of ten examples, three may differ"


def test_many_examples_are_resampled_less_often() -> None:
    calls = []

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        calls.append(len(rows))
        return {"accuracy": float(rows.mean())}

    low, high = intervals(accuracy_of, METRICS, [(np.arange(200_000) % 4 > 0).astype(float)[:, None]])["accuracy"]
    assert 0.745 < low < 0.75 < high < 0.755 and 200 < len(calls) < 300


def test_temperature_is_recovered() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 3))
    calibrated = with_temperature(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), 1.0)
    targets = np.array([rng.choice(3, p=row) for row in calibrated])
    overconfident = with_temperature(calibrated, 1 / 2.5)
    assert fit_temperature(class_calibration_loss(overconfident, targets)) == pytest.approx(2.5, rel=0.1)
    is_right = overconfident.argmax(1) == targets
    assert (
        calibration_error(overconfident.max(1), is_right)
        > 0.1
        > 0.03
        > calibration_error(with_temperature(overconfident, 2.5).max(1), is_right)
    )
    assert sum(bin.count for bin in reliability(overconfident.max(1), is_right)) == 4000


def test_temperature_of_span_answers_is_recovered() -> None:
    rng = np.random.default_rng(0)
    scores = [np.exp(rng.normal(0, 2, (4000, 9))) for _ in range(2)]
    calibrated = [distribution / distribution.sum(1, keepdims=True) for distribution in scores]
    predicted = [distribution.argmax(1) for distribution in calibrated]
    probabilities = np.prod([distribution.max(1) for distribution in calibrated], 0)
    is_right = rng.random(4000) < probabilities
    overconfident = [
        (with_temperature(distribution, 1 / 2.5), index)
        for distribution, index in zip(calibrated, predicted, strict=True)
    ]
    assert fit_temperature(answer_calibration_loss(overconfident, is_right)) == pytest.approx(2.5, rel=0.1)


def test_temperature_of_few_examples_with_an_error_is_bounded() -> None:
    scores = np.array([[0.99, 0.01], [0.98, 0.02]])
    assert 1 < fit_temperature(class_calibration_loss(scores, np.array([0, 1]))) < 3
    assert fit_temperature(class_calibration_loss(scores.repeat(500, 0), np.array([0, 1]).repeat(500))) > 10


def test_temperature_of_few_examples_without_errors_is_bounded() -> None:
    scores = np.array([[0.9, 0.1]] * 12)
    temperature = fit_temperature(class_calibration_loss(scores, np.zeros(12, int)))
    assert with_temperature(scores, temperature).max() == pytest.approx(1 - 1 / 14, abs=0.02)
    with_impossible = np.array([[0.9, 0.1, 0.0]] * 12)  # an example with fewer choices than others
    assert fit_temperature(class_calibration_loss(with_impossible, np.zeros(12, int))) == pytest.approx(temperature)


def test_intervals_contain_the_true_value_and_narrow_with_more_examples() -> None:
    rng = np.random.default_rng(1)

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    few, many = (
        intervals(accuracy_of, METRICS, [(rng.random((n, 1)) < 0.7).astype(float)])["accuracy"] for n in (50, 5000)
    )
    assert few[0] < 0.7 < few[1] and many[0] < 0.7 < many[1]
    assert many[1] - many[0] < 0.2 * (few[1] - few[0])


def test_difference_intervals_detect_only_real_differences() -> None:
    rng = np.random.default_rng(2)
    baseline = (rng.random((1000, 1)) < 0.7).astype(float)
    better = np.maximum(baseline, (rng.random((1000, 1)) < 0.2).astype(float))
    equally_good = baseline[rng.permutation(1000)]

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    assert difference_intervals(accuracy_of, METRICS, [baseline], [better])["accuracy"][0] > 0
    low, high = difference_intervals(accuracy_of, METRICS, [baseline], [equally_good])["accuracy"]
    assert low < 0 < high


def test_seed_noise_widens_an_interval() -> None:
    rng = np.random.default_rng(3)
    similar_runs = [(rng.random((500, 1)) < 0.8).astype(float) for _ in range(4)]
    different_runs = [(rng.random((500, 1)) < accuracy).astype(float) for accuracy in (0.65, 0.75, 0.85, 0.95)]

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    (low, high), (lower, higher) = (
        intervals(accuracy_of, METRICS, runs)["accuracy"] for runs in (similar_runs, different_runs)
    )
    assert low < 0.8 < high and high - low < 0.08 and higher - lower > 0.15
    assert seed_mean(accuracy_of, different_runs)["accuracy"] == pytest.approx(0.8, abs=0.03)
    assert (
        difference_intervals(accuracy_of, METRICS, similar_runs, different_runs)["accuracy"][0]
        < 0
        < difference_intervals(accuracy_of, METRICS, similar_runs, different_runs)["accuracy"][1]
    )


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_few_seeds_give_few_false_differences(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings that are equally good but for seed noise are called different in about 5 of 100 cases."""
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 150)
    rng = np.random.default_rng(4)
    n_trials = 40

    def accuracy_of(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    def is_significant() -> bool:
        difficulty = rng.random((300, 1))
        a, b = ([(difficulty < 0.85 + rng.normal(0, 0.02)).astype(float) for _ in range(seeds)] for _ in range(2))
        low, high = difference_intervals(accuracy_of, METRICS, a, b)["accuracy"]
        return low > 0 or high < 0

    assert sum(is_significant() for _ in range(n_trials)) <= 0.1 * n_trials


def test_intervals_stay_in_the_range_of_the_metric() -> None:
    runs = [np.full((20, 1), accuracy) for accuracy in (0.2, 0.95)]
    all_intervals = intervals(
        lambda rows: {name: float(rows.mean()) for name in ("accuracy", "matthews", "mae")}, METRICS, runs
    )
    assert all_intervals["accuracy"] == (0.0, 1.0)
    assert all_intervals["matthews"] == (-1.0, 1.0), "two seeds that far apart tell nothing"
    assert all_intervals["mae"][0] == 0.0 and all_intervals["mae"][1] > 1.0
