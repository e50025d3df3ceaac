"""The table of objectives by `objective.name` of a config. docs/develop/add-an-objective.md describes how to add
one."""

from __future__ import annotations

from bertworks.errors import NotFound, nearest
from bertworks.objectives.causal import Causal
from bertworks.objectives.masked import Masked
from bertworks.objectives.objective import Objective
from bertworks.objectives.permuted import Permuted
from bertworks.objectives.replaced import Replaced

OBJECTIVES: dict[str, type[Objective]] = {"mlm": Masked, "rtd": Replaced, "plm": Permuted, "ltr": Causal}


def objective_class(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise NotFound(f"unknown objective {name!r}", remedy=nearest(name, OBJECTIVES), code="unknown-objective")
    return OBJECTIVES[name]
