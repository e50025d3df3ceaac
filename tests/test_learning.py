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


def learn(shards: Shards, out: Path, objective: str) -> dict[str, float]:
    preset, steps, _ = CASES[objective]
    settings = [
        *LEARNING,
        *(MASKING if objective != "ltr" else []),
        *(["model.n_segments=2"] if objective == "mlm" else []),
    ]
    train(shards, out, preset, *settings, objective=objective, steps=steps)
    metrics: dict[str, float] = events(out, "eval")[-1]["metrics"]
    return metrics


def reached(measures: dict[str, float], wanted: dict[str, float]) -> dict[str, bool]:
    higher = ("accuracy", "auc")
    return {
        name: measures[name] >= level if name.endswith(higher) else measures[name] <= level
        for name, level in wanted.items()
    }


@pytest.mark.parametrize("objective", CASES)
def test_learning(objective: str, shards: Shards, tmp_path: Path) -> None:
    measures = learn(shards, tmp_path / "run", objective)
    assert all(reached(measures, CASES[objective][2]).values()), measures


class Sabotaged(Masked):
    """Taught the wrong tokens and the wrong order."""

    def forward(self, batch: PretrainBatch) -> Any:
        if not self.training:
            return super().forward(batch)  # judged like any other
        rng = np.random.default_rng(batch.examples)
        pairs = np.where(batch.pairs < 0, -1, rng.integers(0, 2, len(batch.pairs)))
        return super().forward(replace(batch, labels=rng.permutation(batch.labels), pairs=pairs))


def test_a_sabotaged_objective_does_not_learn(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", Sabotaged)
    measures = learn(shards, tmp_path / "run", "mlm+nsp")
    assert not any(reached(measures, CASES["mlm+nsp"][2]).values()), measures
