"""The command line as a user meets it: real processes, real exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bertworks
from bertworks.text.tokenizer import Tokenizer
from commands import run, run_json

BERTWORKS = str(Path(sys.executable).parent / "bertworks")
SMALL = {"hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 3, "n_positions": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s"]))
    return bertworks.new("bert-mini", heads=["lm"], tokenizer=Tokenizer.load(folder), **SMALL).save(folder / "model")


def test_params() -> None:
    assert "108,808,704" in run("params", "bert-base").stdout
    table = run_json("params", "bert-base")
    assert (table["weights_and_norms"], table["total"]) == (108_808_704, 109_482_240)


def test_params_of_a_folder(folder: Path) -> None:
    total = sum(p.numel() for p in bertworks.load(folder).model.parameters())
    assert run_json("params", folder)["total"] == total
    assert f"{total:,}" in run("params", folder).stdout


def test_info(folder: Path) -> None:
    info = run_json("info", "minilm")
    assert (info["limit"], info["limit_from"], info["positions"]) == (256, "sentence_bert_config.json", 512)
    assert info["opens_in_transformers_as"] == "BertModel" and info["normalised"] is True
    assert re.search(r"^limit +256$", run("info", "minilm").stdout, re.MULTILINE)
    assert run_json("info", folder)["heads"] == ["lm"]


def test_info_says_what_others_refuse(tmp_path: Path) -> None:
    bertworks.new("albert-mini", vocab_size=20, sharing="attention", **SMALL).save(tmp_path / "m")
    assert run_json("info", tmp_path / "m")["opens_in_transformers_as"] is None
    assert "refuses it by its model_type" in run("info", tmp_path / "m").stdout


def test_embed(folder: Path, tmp_path: Path) -> None:
    lines = ["the cat", "the cat sat on the mat " * 4, "mats"]
    (tmp_path / "in.txt").write_bytes("\r\n".join(lines).encode())
    done = run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / "x.npy")
    vectors = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert np.allclose(vectors, bertworks.load(folder).encode(lines), atol=1e-6)
    assert "3 vectors of 16 numbers" in done.stdout and "1 texts with 24 tokens were longer than 10 and read in windows" in done.stdout
    assert done.stderr == "", "a progress bar where there is no terminal"
    out = run_json("embed", "-", "--model", folder, "--out", tmp_path / "y.npy", "--on-long", "truncate", stdin="\n".join(lines).encode())
    assert out["shape"] == [3, 16] and out["ledger"]["cut_tokens"] == 14
    assert not np.allclose(np.load(tmp_path / "y.npy")[1], vectors[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "x.npy", "y.npy"]


def test_embed_draws_progress_on_a_terminal(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n" * 300)
    main, second = pty.openpty()
    command = [
        BERTWORKS,
        "embed",
        str(tmp_path / "in.txt"),
        "--model",
        str(folder),
        "--out",
        str(tmp_path / "x.npy"),
        "--batch-tokens",
        "8",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=second, env={**os.environ, "TERM": "xterm"})
    os.close(second)
    drawn = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        if not chunk:
            break
        drawn += chunk
    os.close(main)
    assert process.wait() == 0
    assert b"tokens" in drawn and b"/600" in drawn


def test_fill(folder: Path) -> None:
    out = run_json("fill", "the [MASK] sat on [MASK]", "--model", folder, "--top-k", "3")
    assert [len(blank) for blank in out["blanks"]] == [3, 3]
    text = run("fill", "the [MASK] sat on [MASK]", "--model", folder).stdout
    assert "blank 2" in text and "jointly" in text


def test_tokenize(folder: Path) -> None:
    out = run_json("tokenize", "The cats", "--pair", "on mats", "--model", folder)
    assert out["pieces"] == ["[CLS]", "the", "cat", "##s", "[SEP]", "on", "mat", "##s", "[SEP]"]
    table = run("tokenize", "The CATs", "--pair", "on MATs", "--model", folder).stdout
    assert "CAT" in table and "MAT" in table, "slices of the user's own texts"


def test_import(tmp_path: Path, shared: Path) -> None:
    out = run_json("import", shared / "weights" / "albert-rxnmapper", "--out", tmp_path / "rxn")
    assert out["heads"] == ["lm"]
    assert run_json("info", tmp_path / "rxn")["opens_in_transformers_as"] == "AlbertForMaskedLM"


def without_ending(out: str) -> list[str]:
    """Without what only a training says at its end."""
    return [line for line in out.splitlines() if not line.startswith(("held out", "best  ", "          ", "model  ", "report  "))]


def test_tour(tmp_path: Path) -> None:
    """Through the user's own text, which has no labels: whether a sentence follows another is the classifier's task."""
    (tmp_path / "own.txt").write_text("The cat sat on the mat. The dog saw the cat.\n\nA dog ran to the mat. It sat.\n\n" * 120)
    out = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    assert "cat" in (tmp_path / "tour" / "masks.html").read_text()
    assert "bertworks prepare" in out and "[MASK]" in out
    again = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    assert without_ending(again) == without_ending(out), "the second time uses what is there"
    resumed = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--resume").stdout
    assert "before" in resumed and "bertworks prepare" not in resumed and "report.html" in resumed
    for folder in ("pretrained", "random", "minilm"):
        low, high = json.loads((tmp_path / "tour/task" / folder / "results.json").read_text())["intervals"]["accuracy"]
        assert f"{low:.1%} to {high:.1%}" in out
    page = (tmp_path / "tour/report.html").read_text()
    made, others = (json.loads((tmp_path / "tour/task" / name / "results.json").read_text()) for name in ("pretrained", "random"))
    assert ("were too few to show" in page) == (made["measures"]["accuracy"] <= others["intervals"]["accuracy"][1])
    assert "What pre-training is worth" in page and "预训练的价值" in page and "<script" not in page
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) > 5 and all((tmp_path / "tour" / link).is_file() for link in links)
    assert "other text" in run("tour", "--out", tmp_path / "tour", code=2).stderr
    assert "109,482,240" in out
    rows = dict(re.findall(r"^ (\d)  .*?\.  +(.*?) *$", out, re.MULTILINE))
    cosines = {number: [float(value) for value in row.replace("·", "1").split()] for number, row in rows.items()}
    assert len(cosines) == 6 and cosines["1"][1] > 0.4 > cosines["1"][2], "the two cats are closer than cat and bank"


def test_from_text_to_masks(tmp_path: Path) -> None:
    """Each verb on the one before it, as programs read them."""
    text = tmp_path / "text.jsonl"
    text.write_text(
        "".join(json.dumps({"n": n, "body": f"The cat number {n} sat. It saw a dog. The dog saw it."}) + "\n" for n in range(60))
    )
    made = run_json("vocab", "train", text, "--size", "150", "--out", tmp_path / "v")
    assert made["size"] <= 150 and made["kind"] == "wordpiece"
    out = run_json("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s", "--workers", "1")
    assert out["counts"]["documents"] == 60 and out["counts"]["sentences"] == 180 and out["reading"]["columns"] == {str(text): "body"}
    said = run("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s").stdout
    assert "60 documents, 180 sentences" in said and f"text column of {text}: 'body'" in said
    page = tmp_path / "[bold]page.html"
    shown = run("masks", tmp_path / "s", "--pairs", "nsp", "--masking", "word", "--lines", "5", "--html", page).stdout
    assert shown.count("[CLS]") == 5 and f"page written to {page}" in shown and page.is_file()
    checked = run_json("vocab", "check", tmp_path / "v", text)
    assert checked["scripts"]["latin"]["occurrences"] == 60 * 12
    grown = run_json("vocab", "extend", tmp_path / "v", text, "--add", "2", "--out", tmp_path / "w")
    assert grown["words"] <= 2 and (tmp_path / "w" / "tokenizer.json").is_file()
    stdin = run_json("prepare", "-", "--line-docs", "--tokenizer", tmp_path / "v", "--out", tmp_path / "t", stdin=b"the cat\nthe dog\n")
    assert stdin["counts"]["documents"] == 2


def test_bad_things_said_to_the_data_verbs(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "some.txt").write_text("the cat sat\n")
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    vocab, aliases = ["--tokenizer", folder], ["--aliases", tmp_path / "none.tsv"]
    for args, says in (
        (["prepare", tmp_path / "empty.txt", *vocab, "--out", tmp_path / "a"], "there is no text in it"),
        (["prepare", tmp_path / "none.txt", *vocab, "--out", tmp_path / "b"], "no such file"),
        (["prepare", tmp_path / "bad.txt", "--strict", *vocab, "--out", tmp_path / "c"], "line 2"),
        (["prepare", tmp_path / "some.txt", *vocab, "--out", tmp_path / "some.txt"], "cannot write here"),
        (["masks", tmp_path], "no shards here"),
        (["vocab", "train", tmp_path / "empty.txt", "--out", tmp_path / "d"], "no text to learn"),
        (["vocab", "train", tmp_path / "some.txt", "--out", tmp_path], "something of this name"),
        (
            ["vocab", "extend", folder, tmp_path / "some.txt", "--add", "1", *aliases, "--out", tmp_path / "e"],
            "no none.tsv",
        ),
        (["corpus", "docs", "--out", tmp_path], "not a regular file"),
    ):
        error = run(*args, code=2).stderr
        assert says in error, (args, error)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["params", "bert-bse"], "did you mean 'bert-base'"),
        (["info", "./nowhere"], "no such folder"),
        (["embed", "./nowhere.txt", "--model", "minilm", "--out", "x.npy"], "no such file"),
        (["fill", "a [MASK]", "--model", "minilm"], "no language-model head"),
        (["tokenize", "", "--model", "minilm"], "is empty"),
        (["tokenize", "x" * 20_000, "--model", "minilm"], "one token would stand for 20,000 characters"),
        (["params", "x" * 300], "cannot be looked at"),
        (["import", "./nowhere", "--out", "x"], "no such folder"),
    ],
)
def test_errors_are_plain_and_exit_with_2(args: list[str], says: str) -> None:
    error = run(*args, code=2).stderr
    assert error.startswith("error (") and says in error
    told = json.loads(run(*args, "--json", code=2).stderr)["error"]
    assert told["code"] and told["cause"]


def test_bad_lines_are_named(folder: Path, tmp_path: Path) -> None:
    for content, says in ((b"the\n\ncat\n", "line 2"), (b"the\ncat\n\xff\xfe\n", "line 3"), (b"", "line 1")):
        (tmp_path / "in.txt").write_bytes(content)
        error = run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / "x.npy", code=2).stderr
        assert says in error and not (tmp_path / "x.npy").exists()


def test_an_unwritable_target_loses_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    error = run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / "no" / "x.npy", code=2).stderr
    assert "there is no such folder" in error
    (tmp_path / "in2.txt").write_text("the cat\n" * 3)
    assert "not a regular file" in run("embed", tmp_path / "in2.txt", "--model", folder, "--out", tmp_path, code=2).stderr


def test_embed_overwrites_neither_its_texts_nor_devices(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    os.mkfifo(tmp_path / "pipe")
    for out, says in (("in.txt", "the file with the texts"), ("pipe", "not a regular file")):
        assert says in run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / out, code=2).stderr
    assert (tmp_path / "in.txt").read_text() == "the cat\n" and (tmp_path / "pipe").is_fifo()
    assert "a device" in run("embed", "/dev/zero", "--model", folder, "--out", tmp_path / "x.npy", code=2).stderr
    (tmp_path / "link.npy").symlink_to(tmp_path / "real.npy")
    run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / "link.npy")
    assert (tmp_path / "link.npy").is_symlink() and np.load(tmp_path / "real.npy").shape == (1, 16)


def test_lines_are_named_also_by_the_tokenizer(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n\u200b\n" + "the cat " * 9 + "\n")
    error = run("embed", tmp_path / "in.txt", "--model", folder, "--out", tmp_path / "x.npy", code=2).stderr
    assert "the line is empty to this tokenizer" in error and "in.txt, line 2" in error


def test_import_onto_itself(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"precious")
    assert "must not be the old one" in run("import", tmp_path, "--out", tmp_path, code=2).stderr
    assert (tmp_path / "pytorch_model.bin").read_bytes() == b"precious"


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    name = tmp_path / "[red]x :smile:"
    bertworks.new("bert-mini", vocab_size=20, **SMALL).save(name)
    assert "[red]x :smile:" in run("params", name).stdout


def test_a_plain_terminal() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([BERTWORKS, "tokenize", "thé日", "--model", "minilm"], capture_output=True, env=environment)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    closed = subprocess.run(f"{BERTWORKS} params bert-base >&-", shell=True, capture_output=True)
    assert b"AttributeError" not in closed.stderr


def test_bad_options_exit_with_2() -> None:
    assert "window" in run("embed", "x", "--model", "minilm", "--out", "y", "--on-long", "guess", code=2).stderr
    run("nonsense", code=2)


def test_version_and_module() -> None:
    assert run("--version").stdout.strip() == f"bertworks {bertworks.__version__}"
    done = subprocess.run([sys.executable, "-m", "bertworks", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"bertworks {bertworks.__version__}"


def test_a_process_of_torchrun_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops without taking the interpreter down; nothing that was to be said is lost."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "error (not-found)" in run("info", "/nowhere", code=2).stderr
