"""Embedding of files: every type of input, in parts, resumed after an interruption."""

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
from bertworks.text.ledger import Ledger
from commands import refusal, run, run_json
from test_cli import BERTWORKS
from texts import tiny_tokenizer

WORDS = "de fi go la mo ba ku".split()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 16, "n_layers": 2, "n_heads": 2, "ffn_size": 32, "n_positions": 24}
    return bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **sizes).save(tmp_path_factory.mktemp("m") / "model")


def make_texts(n: int) -> list[str]:
    return [" ".join(WORDS[(i * 7 + k) % 7] for k in range(1 + i % 9)) for i in range(n)]


def test_embedding_in_parts_gives_all_vectors(model_folder: Path, tmp_path: Path) -> None:
    texts = make_texts(2 * INPUT_BATCH_SIZE + 100)
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    out = run_json("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    assert out["shape"] == [len(texts), 16]
    assert out["ledger"]["texts"] == len(texts)
    assert out["resumed_at"] == 0
    vectors = np.load(tmp_path / "x.npy")
    assert vectors.dtype == np.float32 and vectors.shape == (len(texts), 16)
    assert np.allclose(vectors, bertworks.load(model_folder).encode(texts), atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "x.npy"}, "no temporary files are left behind"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "stdin"])
def test_every_kind_of_input(kind: str, model_folder: Path, tmp_path: Path) -> None:
    texts = make_texts(40)
    file = tmp_path / f"in.{kind}"
    stdin = b""
    if kind == "csv":
        file.write_text("id,review\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    elif kind == "jsonl":
        file.write_text("".join(json.dumps({"id": i, "review": text}) + "\n" for i, text in enumerate(texts)))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"id": list(range(40)), "review": texts}), file)
    else:
        stdin = "\n".join(texts).encode()
    column = [] if kind == "stdin" else ["--text", "review"]
    run("embed", model_folder, "-" if kind == "stdin" else file, *column, "--out", tmp_path / "x.npy", stdin=stdin)
    assert np.allclose(np.load(tmp_path / "x.npy"), bertworks.load(model_folder).encode(texts), atol=1e-5)


def test_a_killed_run_resumes_to_the_same_bits(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(make_texts(12 * INPUT_BATCH_SIZE)) + "\n")
    command = [BERTWORKS, "embed", model_folder, tmp_path / "in.txt", "--threads", "1", "--out"]
    run(*command[1:], tmp_path / "uninterrupted.npy")
    process = subprocess.Popen([*command, tmp_path / "x.npy"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = tmp_path / ".x.npy.partial.json"
    while process.poll() is None and not state.is_file():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it finished before it could be killed"
    rows_written = json.loads(state.read_text())["rows"]
    with (tmp_path / ".x.npy.partial").open("ab") as file:
        file.write(b"half a part")  # as after a kill in the middle of a write
    out = run_json(*command[1:], tmp_path / "x.npy")
    assert out["resumed_at"] == rows_written > 0
    assert out["ledger"]["texts"] == 12 * INPUT_BATCH_SIZE
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "uninterrupted.npy").read_bytes()


def test_a_failed_embed_of_standard_input_leaves_nothing(model_folder: Path, tmp_path: Path) -> None:
    stdin = "\n".join([*make_texts(INPUT_BATCH_SIZE), "", "de"]).encode()
    assert refusal("embed", model_folder, "-", "--out", tmp_path / "x.npy", stdin=stdin)["code"] == "bad-rows"
    assert not [path.name for path in tmp_path.iterdir() if "partial" in path.name], "it could not be resumed"


def test_other_inputs_or_options_start_over(model_folder: Path, tmp_path: Path) -> None:
    """The partial output of one file is not continued with another."""
    (tmp_path / "in.txt").write_text("\n".join(make_texts(INPUT_BATCH_SIZE + 5)) + "\n")
    bench = bertworks.load(model_folder)
    inputs = text_inputs(str(tmp_path / "in.txt"), tmp_path / "x.npy")

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_file(bench, inputs, tmp_path / "x.npy", batch_tokens=512, progress=stop)
    partial_files = (tmp_path / ".x.npy.partial").read_bytes(), (tmp_path / ".x.npy.partial.json").read_bytes()

    def resumed_at(**options: object) -> int:
        (tmp_path / ".x.npy.partial").write_bytes(partial_files[0])
        (tmp_path / ".x.npy.partial.json").write_bytes(partial_files[1])
        inputs = text_inputs(str(tmp_path / "in.txt"), tmp_path / "x.npy")
        settings = {"batch_tokens": 512, **options}
        return embed_file(bench, inputs, tmp_path / "x.npy", **settings).resumed_at  # type: ignore[arg-type]

    assert resumed_at() == INPUT_BATCH_SIZE
    assert resumed_at(pooling="max") == 0
    assert resumed_at(on_long="truncate") == 0
    assert resumed_at(batch_tokens=64) == 0
    (tmp_path / "in.txt").write_text("\n".join(reversed(make_texts(INPUT_BATCH_SIZE + 5))) + "\n")
    assert resumed_at() == 0


def test_bad_lines_are_reported_or_skipped(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("de fi\n\nba\n\u200b\n")
    error_output = run("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", code=2).stderr
    for line in (2, 4):
        assert f"{tmp_path / 'in.txt'}, line {line}: " in error_output
    assert "error (bad-rows)" in error_output and not (tmp_path / "x.npy").exists()
    run("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--skip-bad")
    vectors = np.load(tmp_path / "x.npy")
    assert np.isnan(vectors).all(1).tolist() == [False, True, False, True], "rows keep their positions"
    (tmp_path / "in.txt").write_text("")
    assert refusal("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "y.npy")["code"] == "no-inputs"


def test_long_lines_are_refused_with_their_place(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("de fi\n" + "ba " * 60 + "\n")
    error = refusal("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--on-long", "error")
    assert error["where"] == f"{tmp_path / 'in.txt'}, line 2"


def test_a_second_writer_is_refused(model_folder: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / "in.txt").write_text("de fi\n")
    with FileLock(tmp_path / ".x.npy.lock"):
        assert refusal("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")["code"] == "in-use"


def test_a_state_of_other_vectors_is_not_resumed(model_folder: Path, tmp_path: Path) -> None:
    """Run A stops, run B starts over and stops before its first part; A must not resume from what B truncated."""
    (tmp_path / "in.txt").write_text("\n".join(make_texts(2 * INPUT_BATCH_SIZE)) + "\n")
    bench = bertworks.load(model_folder)
    out = tmp_path / "x.npy"

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
def test_rows_that_cannot_be_parsed_are_never_skipped(
    name: str, content: str, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    error = refusal("embed", model_folder, tmp_path / name, "--out", tmp_path / "x.npy", "--skip-bad")
    assert error["where"].endswith(f"{name}, line {3 if name == 'a.csv' else 2}")
    assert error["code"] == "unplaced-rows" and not (tmp_path / "x.npy").exists()


def test_other_encodings_are_refused_unless_bad_rows_are_skipped(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"de fi\nba \xff\n")
    error = refusal("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    assert (error["code"], error["where"]) == ("not-utf8", f"{tmp_path / 'in.txt'}, line 2")
    out = run_json("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--skip-bad")
    assert out["shape"] == [2, 16] and any("U+FFFD" in remark for remark in out["remarks"])


def test_standard_input_is_refused_as_a_file_is(model_folder: Path, tmp_path: Path) -> None:
    """Before vectors of the batch are written, which is not the first one here."""
    stdin = "\n".join([*make_texts(INPUT_BATCH_SIZE), "ba "]).encode() + b"\xff\n"
    error = refusal("embed", model_folder, "-", "--out", tmp_path / "x.npy", stdin=stdin)
    assert error["code"] == "not-utf8" and error["where"].endswith(f"line {INPUT_BATCH_SIZE + 1}")
    assert not list(tmp_path.iterdir())
    out = run_json("embed", model_folder, "-", "--out", tmp_path / "x.npy", "--skip-bad", stdin=stdin)
    assert out["shape"] == [INPUT_BATCH_SIZE + 1, 16] and any("U+FFFD" in remark for remark in out["remarks"])


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        (b"de fi\nba \0 de\n", "binary-file", "in.txt, line 2"),
        ("de fi\n".encode("utf-16"), "utf16", "in.txt, line 1"),
        (b"de\n" + "ก".encode() * 11_000, "word-too-long", "in.txt, line 2, characters 0 to 11,000"),
    ],
)
def test_invalid_files_are_named_with_their_line(
    content: bytes, code: str, place: str, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    error = refusal("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    assert (error["code"], error["where"]) == (code, f"{tmp_path}/{place}")


def test_special_tokens_in_a_text_are_counted_and_said(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("de [MASK] fi [SEP]\nba de\n")
    out = run_json("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    assert (out["ledger"]["special"], out["ledger"]["unknown"]) == (2, 0)
    last_line = run("embed", model_folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy").stdout.splitlines()[-1]
    assert last_line == str(Ledger(**out["ledger"])) != str(Ledger(**{**out["ledger"], "special": 0}))
