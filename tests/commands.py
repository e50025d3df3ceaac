"""Commands as a user types them: real processes with real exit codes. They are forked from one that has imported
everything, since torch alone takes seconds to import; tests/stories.py starts each verb but `corpus` from nothing, too."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

MAX_SECONDS = 600
STREAMS = ("stdin", "stdout", "stderr")
SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "bertworks.cli.main",
        "bertworks.cli.tour_stages",
        "bertworks.runs.run",
        "bertworks.runs.predictions",
        "bertworks.runs.verify",
    ]
)


def run(*args: str | Path, stdin: bytes = b"", code: int = 0) -> CompletedProcess[str]:
    result = forked(*args, stdin=stdin)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


def forked(
    *args: str | Path,
    stdin: bytes = b"",
    folder: Path | None = None,
    before: Callable[[], None] | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> CompletedProcess[str]:
    """`before` is called in the process of the command, which then runs in `folder`."""
    with TemporaryDirectory() as name:
        files = [Path(name, stream) for stream in STREAMS]
        for file in files:
            file.write_bytes(stdin if file.name == "stdin" else b"")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100", **variables}
        process = SERVER.Process(
            target=_command, args=([*map(str, args)], files, environment, folder or Path.cwd(), before)
        )
        process.start()
        process.join(MAX_SECONDS)
        if process.exitcode is None:  # as a rank that waits for one that has ended
            process.kill()
            process.join()
        assert process.exitcode is not None
        return CompletedProcess(args, process.exitcode, *(file.read_text("utf-8") for file in files[1:]))


def ranks(*args: str | Path, port: int, world: int = 2, **options: Any) -> list[CompletedProcess[str]]:
    """A process for each rank, with the variables that torchrun sets."""

    def start(rank: int) -> CompletedProcess[str]:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        variables = {name: str(number) for name, number in numbers.items()}
        return forked(*args, variables={**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}, **options)

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(start, range(world)))


def refusal(*args: str | Path, code: int = 2, **kwargs: Any) -> dict[str, str]:
    """The error that a command ends with: its code, and the lines below it (`where`, `what to do`)."""
    error_output = run(*args, code=code, **kwargs).stderr
    match = re.search(r"^error \(([\w-]+)\): (.*)$", error_output, re.MULTILINE)
    assert match is not None, error_output
    return {
        "code": match[1],
        "cause": match[2],
        **dict(re.findall(r"^  (where|what to do): (.*)$", error_output, re.MULTILINE)),
    }


def run_json(*args: str | Path, **kwargs: Any) -> Any:
    return json.loads(run(*args, "--json", **kwargs).stdout)


def _command(
    args: list[str], files: list[Path], environment: dict[str, str], folder: Path, before: Callable[[], None] | None
) -> None:
    """Runs in a process of its own."""
    os.chdir(folder)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_APPEND | os.O_WRONLY if number else os.O_RDONLY), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["bertworks", *args]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in range(3)
    )
    from bertworks.train import runtime

    runtime.PEAK_FLOPS_SECONDS = 0.02  # as in conftest.py
    if before is not None:
        before()
    from bertworks.cli.main import run

    run()
