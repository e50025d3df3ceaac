"""Every module can be imported where the modules of Unix are missing, as far as can be tested on Unix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
UNIX_MODULES = (
    "fcntl",
    "grp",
    "pwd",
    "resource",
    "termios",
    "tty",
    "pty",
    "syslog",
    "crypt",
    "nis",
    "spwd",
    "posix_ipc",
    "readline",
)
CODE = """
import importlib, sys
# Imported first, since these may need the Unix modules: only ours must do without.
import filelock, torch, torch.distributed, torch.utils.checkpoint, tokenizers, typer, rich.console, rich.live, concurrent.futures.process
for name in {hidden!r}:
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
print("imported", len({modules!r}))
"""


def test_imports_without_unix() -> None:
    paths = sorted((SOURCE / "bertworks").rglob("*.py"))
    modules = [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    modules = [name for name in modules if not name.endswith("__main__")]
    process = subprocess.run(
        [sys.executable, "-c", CODE.format(hidden=UNIX_MODULES, modules=modules)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == f"imported {len(modules)}"
