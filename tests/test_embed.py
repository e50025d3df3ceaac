"""Vectors of files: the one reader of inputs, parts, and a run that was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertworks
from bertworks.datasets.inputs import INPUT_BATCH_SIZE
from bertworks.errors import BertworksError
from bertworks.runs.embed import EmbeddedFile, embed_file, text_inputs
from commands import refusal, run, run_json
from test_cli import BERTWORKS
from texts import tiny_tokenizer

WORDS = "de fi go la mo ba ku".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 16, "n_layers": 2, "n_heads": 2, "ffn_size": 32, "n_positions": 24}
    return bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **sizes).save(tmp_path_factory.mktemp("m") / "model")


def lines(n: int) -> list[str]:
    return [" ".join(WORDS[(at * 7 + k) % 7] for k in range(1 + at % 9)) for at in range(n)]


def test_parts_are_the_whole(folder: Path, tmp_path: Path) -> None:
    texts = lines(2 * INPUT_BATCH_SIZE + 100)
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    out = run_json("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    assert out["shape"] == [len(texts), 16] and out["ledger"]["texts"] == len(texts) and out["resumed_at"] == 0
    vectors = np.load(tmp_path / "x.npy")
    assert vectors.dtype == np.float32 and vectors.shape == (len(texts), 16)
    assert np.allclose(vectors, bertworks.load(folder).encode(texts), atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "x.npy"}, "nothing is left behind"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "stdin"])
def test_every_kind_of_input(kind: str, folder: Path, tmp_path: Path) -> None:
    texts = lines(40)
    file = tmp_path / f"in.{kind}"
    stdin = b""
    if kind == "csv":
        file.write_text("id,review\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts)))
    elif kind == "jsonl":
        file.write_text("".join(json.dumps({"id": at, "review": text}) + "\n" for at, text in enumerate(texts)))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"id": list(range(40)), "review": texts}), file)
    else:
        stdin = "\n".join(texts).encode()
    column = [] if kind == "stdin" else ["--text", "review"]
    run("embed", folder, "-" if kind == "stdin" else file, *column, "--out", tmp_path / "x.npy", stdin=stdin)
    assert np.allclose(np.load(tmp_path / "x.npy"), bertworks.load(folder).encode(texts), atol=1e-5)


def test_a_killed_run_goes_on_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(lines(12 * INPUT_BATCH_SIZE)) + "\n")
    command = [BERTWORKS, "embed", folder, tmp_path / "in.txt", "--threads", "1", "--out"]
    run(*command[1:], tmp_path / "undisturbed.npy")
    victim = subprocess.Popen([*command, tmp_path / "x.npy"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = tmp_path / ".x.npy.partial.json"
    while victim.poll() is None and not state.is_file():
        time.sleep(0.005)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL, "it was too fast to be killed"
    done = json.loads(state.read_text())["rows"]
    with (tmp_path / ".x.npy.partial").open("ab") as file:
        file.write(b"half a part")  # what a kill in the middle of a write leaves
    out = run_json(*command[1:], tmp_path / "x.npy")
    assert out["resumed_at"] == done > 0 and out["ledger"]["texts"] == 12 * INPUT_BATCH_SIZE
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "undisturbed.npy").read_bytes()


def test_another_text_or_model_begins_again(folder: Path, tmp_path: Path) -> None:
    """What is left of one file is not taken for the beginning of another."""
    (tmp_path / "in.txt").write_text("\n".join(lines(INPUT_BATCH_SIZE + 5)) + "\n")
    bench = bertworks.load(folder)
    inputs = text_inputs(str(tmp_path / "in.txt"), tmp_path / "x.npy")

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_file(bench, inputs, tmp_path / "x.npy", batch_tokens=512, progress=stop)
    kept = (tmp_path / ".x.npy.partial").read_bytes(), (tmp_path / ".x.npy.partial.json").read_bytes()

    def embedded(**options: object) -> int:
        (tmp_path / ".x.npy.partial").write_bytes(kept[0])
        (tmp_path / ".x.npy.partial.json").write_bytes(kept[1])
        fresh = text_inputs(str(tmp_path / "in.txt"), tmp_path / "x.npy")
        settings = {"batch_tokens": 512, **options}
        return embed_file(bench, fresh, tmp_path / "x.npy", **settings).resumed_at  # type: ignore[arg-type]

    assert embedded() == INPUT_BATCH_SIZE
    assert embedded(pooling="max") == 0 and embedded(on_long="truncate") == 0 and embedded(batch_tokens=64) == 0
    (tmp_path / "in.txt").write_text("\n".join(reversed(lines(INPUT_BATCH_SIZE + 5))) + "\n")
    assert embedded() == 0


def test_bad_lines_are_named_or_passed_over(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("de fi\n\nba\n\u200b\n")
    told = run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", code=2).stderr
    for line in (2, 4):
        assert f"{tmp_path / 'in.txt'}, line {line}: " in told
    assert "error (bad-rows)" in told and not (tmp_path / "x.npy").exists()
    run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--skip-bad")
    vectors = np.load(tmp_path / "x.npy")
    assert np.isnan(vectors).all(1).tolist() == [False, True, False, True], "rows keep their places"
    (tmp_path / "in.txt").write_text("")
    assert refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "y.npy")["code"] == "no-inputs"


def test_long_lines_are_named_where_they_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("de fi\n" + "ba " * 60 + "\n")
    error = refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--on-long", "error")
    assert error["where"] == f"{tmp_path / 'in.txt'}, line 2"


def test_two_writers_do_not_meet(folder: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / "in.txt").write_text("de fi\n")
    with FileLock(tmp_path / ".x.npy.lock"):
        assert refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")["code"] == "in-use"


def test_a_state_of_other_vectors_is_not_believed(folder: Path, tmp_path: Path) -> None:
    """Run A stops, run B begins anew and stops before its first part; A must not go on with what B truncated."""
    (tmp_path / "in.txt").write_text("\n".join(lines(2 * INPUT_BATCH_SIZE)) + "\n")
    bench, out = bertworks.load(folder), tmp_path / "x.npy"

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    def embed(progress: Callable[[int, int | None], None] = lambda done, total: None, **options: Any) -> EmbeddedFile:
        inputs = text_inputs(str(tmp_path / "in.txt"), out)
        return embed_file(bench, inputs, out, batch_tokens=512, progress=progress, **options)

    with pytest.raises(KeyboardInterrupt):
        embed(stop)
    with pytest.raises(BertworksError):
        _refuse_first_part(bench, tmp_path, out)
    done = embed()
    vectors = np.load(out)
    assert done.resumed_at == 0 and np.abs(vectors).sum(1).min() > 0


def _refuse_first_part(bench: bertworks.Workbench, folder: Path, out: Path) -> None:
    (folder / "long.txt").write_text("ba " * 60 + "\n")
    embed_file(bench, text_inputs(str(folder / "long.txt"), out), out, batch_tokens=512, on_long="error")


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "id,text\n1,de fi\n2\n3,ba\n"), ("a.jsonl", '{"text": "de"}\n{no\n')]
)
def test_rows_that_cannot_be_parsed_would_shift_the_others(
    name: str, content: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    error = refusal("embed", folder, tmp_path / name, "--out", tmp_path / "x.npy", "--skip-bad")
    assert error["code"] == "unplaced-rows" and not (tmp_path / "x.npy").exists()


def test_other_encodings_are_refused_unless_asked_for(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"de fi\nba \xff\n")
    assert refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")["code"] == "not-utf8"
    out = run_json("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--skip-bad")
    assert out["shape"] == [2, 16] and any("U+FFFD" in remark for remark in out["remarks"])
