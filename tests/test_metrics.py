"""Our measures are those of the official scorers."""

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
def test_classes(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    n, rows = drawn
    truth, said = np.array(rows).T.astype(float)
    found = metrics.nan_to_zero(metrics.class_metrics(truth, said, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(truth, said))
        f1 = (
            sklearn.metrics.f1_score(truth, said, labels=[1], average="macro", zero_division=0)
            if n == 2
            else sklearn.metrics.f1_score(truth, said, average="macro")  # over the classes that occur or are said
        )
        assert found["f1"] == pytest.approx(f1)
        assert found["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, said), abs=1e-12)
        assert (
            metrics.confusion(truth, said, n) == sklearn.metrics.confusion_matrix(truth, said, labels=range(n))
        ).all()


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=30))
def test_numbers(rows: list[tuple[int, int]]) -> None:
    a, b = np.array(rows, float).T
    found = metrics.regression_metrics(a, b)
    if a.std() and b.std():
        assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(a, b).statistic, abs=1e-12)
        assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    else:
        assert found["pearson"] == found["spearman"] == 0


@given(st.lists(st.tuples(*[st.lists(st.booleans(), min_size=3, max_size=3)] * 2), min_size=1, max_size=20))
def test_marks(rows: list[tuple[list[bool], list[bool]]]) -> None:
    truth, said = (np.array(part) for part in zip(*rows, strict=True))
    found = metrics.nan_to_zero(metrics.multilabel_metrics(truth, said))
    assert found["f1"] == pytest.approx(sklearn.metrics.f1_score(truth, said, average="micro", zero_division=0))
    macro = sklearn.metrics.f1_score(truth, said, average="macro", zero_division=np.nan)
    assert found["f1_macro"] == pytest.approx(0.0 if np.isnan(macro) else macro)
    assert found["exact"] == pytest.approx(sklearn.metrics.accuracy_score(truth, said))


@given(SENTENCES)
def test_entities_are_the_conll_scorers(sentences: list[tuple[list[str], list[str]]]) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score

    truth, said = ([list(part) for part in side] for side in zip(*sentences, strict=True))
    found = metrics.nan_to_zero(
        metrics.entity_metrics(
            np.array([metrics.entity_counts(*pair) for pair in zip(truth, said, strict=True)], float)
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["entity_f1"] == pytest.approx(f1_score(truth, said))
        assert found["precision"] == pytest.approx(precision_score(truth, said))
        assert found["recall"] == pytest.approx(recall_score(truth, said))


@given(st.lists(BMES, min_size=1, max_size=10))
def test_entities_of_bmes(tags: list[str]) -> None:
    from seqeval.metrics.sequence_labeling import get_entities

    as_theirs = [tag.replace("M-", "I-") for tag in tags]  # the library knows BIOES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metrics.entities(tags) == get_entities(as_theirs)


def test_tags_that_only_name_a_kind() -> None:
    assert metrics.entities(["PER", "PER", "O", "LOC"]) == [("PER", 0, 1), ("LOC", 3, 3)]
    assert metrics.entities(["U-x", "B-y", "L-y", "B_z", "I_z"]) == [("x", 0, 0), ("y", 1, 2), ("z", 3, 4)]
    assert metrics.entities(["B", "M", "E", "S"]) == [("_", 0, 2), ("_", 3, 3)]
    wrong = metrics.entity_metrics(np.array([metrics.entity_counts(["DT", "NN"], ["NN", "DT"])], float))
    assert wrong["entity_f1"] == wrong["tag_accuracy"] == 0
    for tags, expected in (
        (["DT", "NN"], False),
        (["PER", "O"], True),
        (["B", "M", "E", "S"], True),
        (["B-x", "I-x"], True),
    ):
        assert metrics.has_entity_tags(tags) == expected


@given(CLASSES)
def test_class_by_class(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    n, rows = drawn
    found = metrics.count_classes(({(str(a), None)}, {(str(b), None)}) for a, b in rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = sklearn.metrics.precision_recall_fscore_support(
            *zip(*rows, strict=True), labels=range(n), zero_division=0
        )
    for at, (precision, recall, f1, there) in enumerate(zip(*theirs, strict=True)):
        one = found.get(str(at), metrics.ClassCounts(0, 0, 0))
        assert (one.precision, one.recall, one.f1, one.support) == pytest.approx((precision, recall, f1, there))


def test_no_error_among_few_is_no_certainty() -> None:
    def accuracy(rows: np.ndarray) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    assert intervals(accuracy, METRICS, [np.ones((60, 1))]) == {"accuracy": (pytest.approx(0.95), 1.0)}
    assert intervals(accuracy, METRICS, [np.ones((2, 1))]) == {"accuracy": (0.0, 1.0)}
    assert intervals(accuracy, METRICS, [np.zeros((60, 1))]) == {"accuracy": (0.0, pytest.approx(0.05))}
    low, high = difference_intervals(accuracy, METRICS, [np.zeros((3, 1))], [np.ones((3, 1))])["accuracy"]
    assert low <= 0 < high, "three examples prove nothing"
    low, high = difference_intervals(accuracy, METRICS, [np.zeros((60, 1))], [np.ones((60, 1))])["accuracy"]
    assert (low, high) == (pytest.approx(0.95), 1.0)

    def distance(rows: np.ndarray) -> dict[str, float]:
        return {"mae": float(rows.mean())}

    found = difference_intervals(distance, METRICS, [np.full((60, 1), 1e-4)], [np.zeros((60, 1))])
    assert found["mae"][1] < 0, "distances are in the user's units, and no shares of examples"


@pytest.mark.parametrize(
    ("rights", "said", "f1", "exact"),
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
def test_answers_by_the_rules_of_squad(rights: list[str], said: str, f1: float, exact: float) -> None:
    assert metrics.answer_scores(rights, said) == pytest.approx((f1, exact))


@pytest.mark.parametrize(
    ("right", "said", "f1", "exact"),
    [
        ("中华人民共和国", "人民共和国", 10 / 12, 0),
        ("北京", "北京。", 1, 1),
        ("《红楼梦》", "红楼梦", 1, 1),
        ("don’t", "dont", 0, 0),
    ],
)
def test_chinese_answers_are_compared_by_signs(right: str, said: str, f1: float, exact: float) -> None:
    """What is written with spaces is compared as SQuAD's scorer does, which knows no curly quotes."""
    assert metrics.answer_scores([right], said) == pytest.approx((f1, exact))


def test_rare_classes_do_not_pull_an_interval_down() -> None:
    truth = np.concatenate([np.zeros(80), np.arange(1, 21)])
    said = truth.copy()
    said[-2:] = 0
    rows = np.stack([truth, said], 1)
    (low, high), found = (
        intervals(lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 21), METRICS, [rows])["f1"],
        metrics.class_metrics(truth, said, 21)["f1"],
    )
    assert low < found < high


def test_one_class_said_is_no_certainty_about_a_correlation() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0]] * 10)
    low, high = intervals(lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 2), METRICS, [rows])["matthews"]
    assert low < 0 < high


def test_draws_that_cannot_show_a_measure_do_not_pull_it_down() -> None:
    """Three positives of a hundred, all found: in one draw of twenty there is none of them."""
    truth = (np.arange(100) < 3).astype(float)
    found = intervals(
        lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], 2), METRICS, [np.stack([truth, truth], 1)]
    )
    assert {name: edges for name, edges in found.items() if edges[0] < 0.9} == {}


def test_equal_runs_are_no_certainty_whatever_their_seeds() -> None:
    rows = (np.arange(10) < 7).astype(float)[:, None]

    def measure(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    for seeds in (1, 3, 7):
        low, high = difference_intervals(measure, METRICS, [rows] * seeds, [rows])["accuracy"]
        assert (low, high) == pytest.approx((-0.3, 0.3)), "of ten examples, three may be otherwise"


def test_many_examples_are_drawn_less_often() -> None:
    calls = []

    def measure(rows: metrics.Floats) -> dict[str, float]:
        calls.append(len(rows))
        return {"accuracy": float(rows.mean())}

    low, high = intervals(measure, METRICS, [(np.arange(200_000) % 4 > 0).astype(float)[:, None]])["accuracy"]
    assert 0.745 < low < 0.75 < high < 0.755 and 200 < len(calls) < 300


def test_temperature_is_found_again() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 2, (4000, 3))
    honest = with_temperature(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), 1.0)
    truth = np.array([draw.choice(3, p=row) for row in honest])
    boastful = with_temperature(honest, 1 / 2.5)
    assert fit_temperature(class_calibration_loss(boastful, truth)) == pytest.approx(2.5, rel=0.1)
    right = boastful.argmax(1) == truth
    assert (
        calibration_error(boastful.max(1), right)
        > 0.1
        > 0.03
        > calibration_error(with_temperature(boastful, 2.5).max(1), right)
    )
    assert sum(one.count for one in reliability(boastful.max(1), right)) == 4000


def test_temperature_of_answers_in_two_parts_is_found_again() -> None:
    draw = np.random.default_rng(0)
    parts = [np.exp(draw.normal(0, 2, (4000, 9))) for _ in range(2)]
    honest = [part / part.sum(1, keepdims=True) for part in parts]
    said = [part.argmax(1) for part in honest]
    chances = np.prod([part.max(1) for part in honest], 0)
    right = draw.random(4000) < chances
    boastful = [(with_temperature(part, 1 / 2.5), one) for part, one in zip(honest, said, strict=True)]
    assert fit_temperature(answer_calibration_loss(boastful, right)) == pytest.approx(2.5, rel=0.1)


def test_few_examples_with_an_error_do_not_make_a_model_doubt_everything() -> None:
    scores = np.array([[0.99, 0.01], [0.98, 0.02]])
    assert 1 < fit_temperature(class_calibration_loss(scores, np.array([0, 1]))) < 3
    assert fit_temperature(class_calibration_loss(scores.repeat(500, 0), np.array([0, 1]).repeat(500))) > 10


def test_few_examples_without_an_error_do_not_make_a_model_sure() -> None:
    scores = np.array([[0.9, 0.1]] * 12)
    temperature = fit_temperature(class_calibration_loss(scores, np.zeros(12, int)))
    assert with_temperature(scores, temperature).max() == pytest.approx(1 - 1 / 14, abs=0.02)
    with_impossible = np.array([[0.9, 0.1, 0.0]] * 12)  # a choice between fewer than others have
    assert fit_temperature(class_calibration_loss(with_impossible, np.zeros(12, int))) == pytest.approx(temperature)


def test_intervals_hold_the_truth_and_narrow_with_more_examples() -> None:
    draw = np.random.default_rng(1)

    def measure(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    few, many = (
        intervals(measure, METRICS, [(draw.random((n, 1)) < 0.7).astype(float)])["accuracy"] for n in (50, 5000)
    )
    assert few[0] < 0.7 < few[1] and many[0] < 0.7 < many[1]
    assert many[1] - many[0] < 0.2 * (few[1] - few[0])


def test_a_difference_is_seen_only_where_there_is_one() -> None:
    draw = np.random.default_rng(2)
    a = (draw.random((1000, 1)) < 0.7).astype(float)
    better = np.maximum(a, (draw.random((1000, 1)) < 0.2).astype(float))
    shuffled = a[draw.permutation(1000)]

    def measure(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    assert difference_intervals(measure, METRICS, [a], [better])["accuracy"][0] > 0
    low, high = difference_intervals(measure, METRICS, [a], [shuffled])["accuracy"]
    assert low < 0 < high


def test_luck_of_the_seed_widens_an_interval() -> None:
    draw = np.random.default_rng(3)
    alike = [(draw.random((500, 1)) < 0.8).astype(float) for _ in range(4)]
    apart = [(draw.random((500, 1)) < share).astype(float) for share in (0.65, 0.75, 0.85, 0.95)]

    def measure(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    (low, high), (lower, higher) = (intervals(measure, METRICS, runs)["accuracy"] for runs in (alike, apart))
    assert low < 0.8 < high and high - low < 0.08 and higher - lower > 0.15
    assert seed_mean(measure, apart)["accuracy"] == pytest.approx(0.8, abs=0.03)
    assert (
        difference_intervals(measure, METRICS, alike, apart)["accuracy"][0]
        < 0
        < difference_intervals(measure, METRICS, alike, apart)["accuracy"][1]
    )


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_few_seeds_do_not_make_noise_a_difference(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways of training that are equally good, but for the luck of their seeds: called different in about 5 of 100
    cases."""
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 150)
    draw, trials = np.random.default_rng(4), 40

    def measure(rows: metrics.Floats) -> dict[str, float]:
        return {"accuracy": float(rows.mean())}

    def called_different() -> bool:
        hardness = draw.random((300, 1))
        a, b = ([(hardness < 0.85 + draw.normal(0, 0.02)).astype(float) for _ in range(seeds)] for _ in range(2))
        low, high = difference_intervals(measure, METRICS, a, b)["accuracy"]
        return low > 0 or high < 0

    assert sum(called_different() for _ in range(trials)) <= 0.1 * trials


def test_intervals_stay_where_measures_can_be() -> None:
    runs = [np.full((20, 1), share) for share in (0.2, 0.95)]
    found = intervals(
        lambda rows: {name: float(rows.mean()) for name in ("accuracy", "matthews", "mae")}, METRICS, runs
    )
    assert found["accuracy"] == (0.0, 1.0) and found["matthews"] == (-1.0, 1.0), "two seeds that far apart say nothing"
    assert found["mae"][0] == 0.0 and found["mae"][1] > 1.0
