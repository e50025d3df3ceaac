"""`bertworks params`: where a model's parameters are."""

from __future__ import annotations

from typing import Annotated

import typer

from bertworks.cli.show import AsJson, console, show_json


def params(
    name: Annotated[str, typer.Argument(help="A preset (bert-base, ...) or a model folder.", metavar="NAME|FOLDER")],
    as_json: AsJson = False,
) -> None:
    """Print the parameter table of a preset or a folder, with both totals."""
    from bertworks.model.count import count_config, count_parameters
    from bertworks.presets import PRESETS, preset
    from bertworks.runs.tables import parameter_table

    if name in PRESETS:
        table = count_config(preset(name))
    else:
        from bertworks.model.folder import load_folder
        from bertworks.model.locate import locate

        table = count_parameters(load_folder(locate(name)).model)
    if as_json:
        show_json(
            {"name": name, "rows": table.rows, "weights_and_norms": table.weights_and_norms, "total": table.total}
        )
    else:
        console().print(parameter_table(name, table))
