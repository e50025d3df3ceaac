"""Every module can be imported where Unix's own modules are missing, as far as can be known without such a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
UNIX = (
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
# What others need of them they have imported before: only ours must do without.
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
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(hidden=UNIX, modules=modules)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"imported {len(modules)}"
