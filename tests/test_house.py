"""The structure of the code: a task shape is one file, and its name is used nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.shapes import SHAPES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bertworks"
sys.path.insert(0, str(ROOT / "benchmarks"))

from house import SHAPES as SHAPES_IN_HOUSE  # noqa: E402
from house import shape_literals  # noqa: E402


def test_no_shape_is_named_outside_of_its_file(tmp_path: Path) -> None:
    assert set(SHAPES_IN_HOUSE) == set(SHAPES)
    assert not shape_literals(sorted(SOURCE.rglob("*.py")), SOURCE)
    (tmp_path / "elsewhere.py").write_text('if config.shape == "tag":\n    pass\nshapes = ("classify", "regress")\n')
    assert shape_literals([tmp_path / "elsewhere.py"], tmp_path) == {"elsewhere.py": 2}, (
        "the check finds shape literals"
    )


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_fully_described(name: str) -> None:
    task = SHAPES[name]
    assert task.schema.shape == name and task.terms and task.metrics and task.schema.table_help
    assert all(len(title) == 2 and all(title) for title in task.terms.values())
    assert task.metrics[0].higher_is_better, "models are compared by the first metric"
    assert set(task.schema.column_options) >= {"label"}


def test_the_catalogue_compares_by_metrics_of_its_shapes() -> None:
    for name, row in CATALOGUE.items():
        assert row.metric in {metric.name for metric in row.task.metrics if metric.higher_is_better}, name
