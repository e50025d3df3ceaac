"""Commands as a user types them: real processes with real exit codes. They are forked from one that has imported
everything, since torch alone takes seconds to import; tests/test_readme.py starts each of them from nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from multiprocessing import get_context
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

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
    with TemporaryDirectory() as name:
        files = [Path(name, stream) for stream in STREAMS]
        for file in files:
            file.write_bytes(stdin if file.name == "stdin" else b"")
        process = SERVER.Process(
            target=_command, args=([*map(str, args)], files, {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100"})
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        result = CompletedProcess(args, process.exitcode, *(file.read_text("utf-8") for file in files[1:]))
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


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


def _command(args: list[str], files: list[Path], environment: dict[str, str]) -> None:
    """Runs in a process of its own."""
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_APPEND | os.O_WRONLY if number else os.O_RDONLY), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["bertworks", *args]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in range(3)
    )
    from bertworks.cli.main import run

    run()
