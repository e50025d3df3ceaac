"""Every objective learns a language with known structure, and a sabotaged one does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertworks.data.loader import PretrainBatch
from bertworks.data.shards import Shards
from bertworks.objectives.masked import Masked
from bertworks.objectives.table import OBJECTIVES
from training import events, language_shards, train

# objective, preset, steps, and what held-out text must show after them, with room for other seeds and processors; a
# guess without context costs 3.9
CASES = {
    "mlm": ("roberta-mini", 250, {"masked": 0.7}),
    "mlm+nsp": ("bert-mini", 450, {"masked": 0.7, "pair_accuracy": 0.8}),
    "mlm+sop": ("albert-mini", 300, {"masked": 0.7, "pair_accuracy": 0.8}),
    "rtd": ("electra-mini", 200, {"masked": 0.9, "replaced_auc": 0.8}),
    "plm": ("xlnet-mini", 200, {"permuted": 0.8}),
    "ltr": ("gpt-mini", 120, {"next": 0.9}),
}
LEARNING = ["optim.lr=3e-3", "model.init_range=0.1"]
MASKING = ["data.mask_rate=0.25", "data.masking=token"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return language_shards(tmp_path_factory.mktemp("language"), 300)


def train_and_evaluate(shards: Shards, out: Path, objective: str) -> dict[str, float]:
    preset, steps, _ = CASES[objective]
    settings = [
        *LEARNING,
        *(MASKING if objective != "ltr" else []),
        *(["model.n_segments=2"] if objective == "mlm" else []),
    ]
    train(shards, out, preset, *settings, objective=objective, steps=steps)
    metrics: dict[str, float] = events(out, "eval")[-1]["metrics"]
    return metrics


def thresholds_met(metrics: dict[str, float], thresholds: dict[str, float]) -> dict[str, bool]:
    higher_is_better = ("accuracy", "auc")
    return {
        name: metrics[name] >= threshold if name.endswith(higher_is_better) else metrics[name] <= threshold
        for name, threshold in thresholds.items()
    }


@pytest.mark.parametrize("objective", CASES)
def test_objectives_learn(objective: str, shards: Shards, tmp_path: Path) -> None:
    metrics = train_and_evaluate(shards, tmp_path / "run", objective)
    assert all(thresholds_met(metrics, CASES[objective][2]).values()), metrics


class Sabotaged(Masked):
    """Trained on shuffled labels and random pairs."""

    def forward(self, batch: PretrainBatch) -> Any:
        if not self.training:
            return super().forward(batch)  # evaluated like any other
        rng = np.random.default_rng(batch.examples)
        pairs = np.where(batch.pairs < 0, -1, rng.integers(0, 2, len(batch.pairs)))
        return super().forward(replace(batch, labels=rng.permutation(batch.labels), pairs=pairs))


def test_a_sabotaged_objective_does_not_learn(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", Sabotaged)
    metrics = train_and_evaluate(shards, tmp_path / "run", "mlm+nsp")
    assert not any(thresholds_met(metrics, CASES["mlm+nsp"][2]).values()), metrics
