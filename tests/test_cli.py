"""The command line as a user meets it: real processes, real exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.main import get_command
from typer.testing import CliRunner

import bertworks
from bertworks.cli.live import STOPPING, LiveView, event_line, metrics_line
from bertworks.cli.main import app
from bertworks.cli.show import console, show_table
from bertworks.cli.tour_stages import BLANKS
from bertworks.runs.context import Outcome
from bertworks.runs.tour_task import next_sentence_task
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.events import Started
from bertworks.train.runtime import StopRequest
from browsing import without_script
from commands import refusal, run, run_json
from test_trainer import trained_event
from texts import tiny_tokenizer

BERTWORKS = str(Path(sys.executable).parent / "bertworks")
JSON_FIELDS = {
    "code": "code",
    "cause": "cause",
    "where": "place",
    "what to do": "remedy",
}  # of an error: as printed -> in JSON
SMALL = {"hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 3, "n_positions": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "##s"])
    )
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
    own = run_json("info", folder)
    assert own["heads"] == ["lm"] and own["kind"] == "transformer"


def test_info_says_what_transformers_cannot_open(tmp_path: Path) -> None:
    bertworks.new("albert-mini", vocab_size=20, sharing="attention", **SMALL).save(tmp_path / "m")
    assert run_json("info", tmp_path / "m")["opens_in_transformers_as"] is None
    line = re.search(r"^opens in transformers as +(.+)$", run("info", tmp_path / "m").stdout, re.MULTILINE)
    assert line is not None and "model_type" in line[1] and "'bertworks'" in line[1]


def test_embed(folder: Path, tmp_path: Path) -> None:
    lines = ["the cat", "the cat sat on the mat " * 4, "mats"]
    (tmp_path / "in.txt").write_bytes("\r\n".join(lines).encode())
    process = run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    vectors = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert np.allclose(vectors, bertworks.load(folder).encode(lines), atol=1e-6)
    assert re.match(r"3\D+16\D", process.stdout)
    assert str(tmp_path / "x.npy") in process.stdout.splitlines()[0]
    assert process.stderr == "", "no progress bar without a terminal"
    ledger = run_json("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")["ledger"]
    assert (ledger["windowed_texts"], ledger["windowed_tokens"], ledger["limit"], ledger["cut_texts"]) == (1, 24, 10, 0)
    assert process.stdout.splitlines()[1] == str(Ledger(**ledger))
    out = run_json(
        "embed",
        folder,
        "-",
        "--out",
        tmp_path / "y.npy",
        "--on-long",
        "truncate",
        stdin="\n".join(lines).encode(),
    )
    assert out["shape"] == [3, 16] and out["ledger"]["cut_tokens"] == 14
    assert not np.allclose(np.load(tmp_path / "y.npy")[1], vectors[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "x.npy", "y.npy"]


def test_embed_shows_progress_on_a_terminal(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n" * 300)
    terminal, process_side = pty.openpty()
    command = [
        BERTWORKS,
        "embed",
        str(folder),
        str(tmp_path / "in.txt"),
        "--out",
        str(tmp_path / "x.npy"),
        "--batch-tokens",
        "8",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=process_side, env={**os.environ, "TERM": "xterm"}
    )
    os.close(process_side)
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    os.close(terminal)
    assert process.wait() == 0
    assert b"texts" in output and b"/300" in output


def test_fill(folder: Path) -> None:
    arguments = ["fill", folder, "the [MASK] sat on [MASK]", "--top-k", "3"]
    out = run_json(*arguments)
    assert [len(blank) for blank in out["blanks"]] == [3, 3]
    *blanks, independent, joint = run(*arguments).stdout.splitlines()
    assert len(blanks) == 2, "a line for each blank"
    for line, candidates in zip(blanks, out["blanks"], strict=True):
        assert line.endswith(
            "  ".join(f"{candidate['piece']} {candidate['probability']:.1%}" for candidate in candidates)
        )
    assert independent.endswith(f" {out['independent']}") and joint.endswith(f" {out['joint']}")


def test_tokenize(folder: Path) -> None:
    out = run_json("tokenize", folder, "The cats", "--text2", "on mats")
    assert out["pieces"] == ["[CLS]", "the", "cat", "##s", "[SEP]", "on", "mat", "##s", "[SEP]"]
    table = run("tokenize", folder, "The CATs", "--text2", "on MATs").stdout
    assert "CAT" in table and "MAT" in table, "slices of the original texts"


def test_import(tmp_path: Path, shared: Path) -> None:
    out = run_json("import", shared / "weights" / "albert-rxnmapper", "--out", tmp_path / "rxn")
    assert out["heads"] == ["lm"]
    assert run_json("info", tmp_path / "rxn")["opens_in_transformers_as"] == "AlbertForMaskedLM"


def removed_lines(first: str, second: str) -> list[str]:
    """The lines that the second output lacks; otherwise both must be the same."""
    first_lines = first.splitlines()
    second_lines = second.splitlines()
    changes = SequenceMatcher(None, first_lines, second_lines, autojunk=False).get_opcodes()
    assert {kind for kind, *_ in changes} <= {"equal", "delete"}, second
    return [line for kind, begin, end, _, _ in changes if kind == "delete" for line in first_lines[begin:end]]


def test_tour(tmp_path: Path) -> None:
    """On the user's own text, which has no labels: the classifier learns whether a sentence follows another."""
    (tmp_path / "own.txt").write_text(
        "The cat sat on the mat. The dog saw the cat.\n\nA dog ran to the mat. It sat.\n\n" * 120
    )
    out = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    assert "cat" in (tmp_path / "tour" / "masks.html").read_text()
    assert "bertworks prepare" in out and "[MASK]" in out
    for stage in ("bertworks vocab train", "bertworks prepare"):
        assert re.search(rf"^   \$ {stage} .*--skip-bad", out, re.MULTILINE), "as the tour itself reads"
    second = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    reports = [
        str(tmp_path / "tour" / name / "report.html")
        for name in ("run", "task/pretrained", "task/random", "task/minilm")
    ]
    removed = removed_lines(out, second)
    assert [line.split()[-1] for line in removed if line.endswith("report.html")] == reports, (
        "the second tour reuses the runs of the first"
    )
    assert len(removed) <= 8 * len(reports), "and lacks only the closing lines of a training"
    resumed = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--resume").stdout
    assert all(sentence in resumed for sentence in BLANKS)
    assert "bertworks prepare" not in resumed
    assert "report.html" in resumed
    for folder in ("pretrained", "random", "minilm"):
        results = json.loads((tmp_path / "tour/task" / folder / "results.json").read_text())
        estimate = results["selection"]["cross_fitted"]["accuracy"]
        low, high = results["intervals"]["accuracy"]
        assert re.search(rf" {estimate:.1%} +{low:.1%} to {high:.1%}", out), "an interval, and what it is around"
    page = without_script((tmp_path / "tour/report.html").read_text())
    pretrained, random_init = (
        json.loads((tmp_path / "tour/task" / name / "results.json").read_text()) for name in ("pretrained", "random")
    )
    too_short = pretrained["selection"]["cross_fitted"]["accuracy"] <= random_init["intervals"]["accuracy"][1]
    assert page.count("<code>bertworks tour --out NEW ") == (2 if too_short else 0), "in both languages"
    assert page.count('<h2><span lang="en">') == page.count("<h2>") >= 5 and "<script" not in page
    assert len(re.findall(r'<span lang="en">[^<]', page)) == len(re.findall(r'<span lang="zh">[^<]', page)) > 20
    links = re.findall(r'href="([^"]+)"', page)
    assert "bertworks embed minilm FILE --out vectors.npy" in page
    assert len(links) > 7 and all((tmp_path / "tour" / link).is_file() for link in links)
    assert {"inside/pretrained/attention.html", "inside/minilm/attention.html"} <= set(links)
    assert page.count("not enough text") >= 2 and "not enough text" in out, "to name heads, in both models"
    assert refusal("tour", "--out", tmp_path / "tour")["code"] == "different-source"
    assert "109,482,240" in out
    rows = dict(re.findall(r"^ (\d)  .*?\.  +(.*?) *$", out, re.MULTILINE))
    cosines = {number: [float(value) for value in row.replace("·", "1").split()] for number, row in rows.items()}
    assert len(cosines) == 6
    assert cosines["1"][1] > 0.4 > cosines["1"][2], "the two cats are closer than cat and bank"


def test_a_tour_skips_what_is_not_text_at_every_stage(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(b"The cat sat on the mat. The dog saw the cat. It ran.\n\n" * 300 + b"\xff\xfe bad\n")
    assert next_sentence_task([str(text)], tmp_path / "task") is not None


def test_a_late_interrupt_of_the_pretraining_stops_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came when the training had ended. The command that goes on has all options of the one that began."""
    (tmp_path / "own [a].txt").write_text("The cat sat on the mat. The dog saw the cat.\n\n" * 120)
    monkeypatch.setattr(
        "bertworks.cli.tour_stages.pretrain", lambda job, run, process: Outcome(run, requested_signal=signal.SIGINT)
    )
    options = ["--text", str(tmp_path / "own [a].txt"), "--out", str(tmp_path / "[/tour]"), "--budget", "3s"]
    options += ["--device", "cpu", "--threads", "1"]
    result = CliRunner().invoke(app, ["tour", *options, "--resume"])
    assert result.exit_code == 128 + signal.SIGINT, result.output
    lines = [line for line in result.output.splitlines() if "--resume" in line]
    assert len(lines) == 2, "with the pre-training, and at the end"
    for line in lines:
        command = shlex.split(re.search(r"bertworks tour [^`]*", line)[0])
        assert command == ["bertworks", "tour", *options, "--resume"]
    assert str(tmp_path / "[/tour]" / "masks.html") in result.output


def test_a_tour_writes_over_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("precious")
    error = refusal("tour", "--out", tmp_path, "--budget", "4s")
    assert (error["code"], error["where"]) == ("not-empty", str(tmp_path)) and "report.html" in error["cause"]
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    (tmp_path / "tour.json").write_text("{}")
    assert refusal("tour", "--out", tmp_path, "--budget", "4s")["code"] == "different-source"
    assert (tmp_path / "report.html").read_text() == "precious"


@pytest.mark.parametrize("budget", ["0", "0s", "9" * 400])
def test_a_budget_that_is_no_time_is_refused_before_work_begins(budget: str, tmp_path: Path) -> None:
    assert refusal("tour", "--out", tmp_path / "tour", "--budget", budget)["code"] == "bad-duration"
    assert not (tmp_path / "tour").exists()


def test_from_text_to_masks(tmp_path: Path) -> None:
    """Each command on the output of the one before, with --json."""
    text = tmp_path / "text.jsonl"
    text.write_text(
        "".join(
            json.dumps({"n": n, "body": f"The cat number {n} sat. It saw a dog. The dog saw it."}) + "\n"
            for n in range(60)
        )
    )
    vocabulary = run_json("vocab", "train", text, "--size", "150", "--out", tmp_path / "v")
    assert vocabulary["size"] <= 150 and vocabulary["kind"] == "wordpiece"
    out = run_json("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s", "--workers", "1")
    assert out["counts"]["documents"] == 60
    assert out["counts"]["sentences"] == 180
    assert out["reading"]["columns"] == {str(text): "body"}
    output = run("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s").stdout
    assert re.match(r"60\D+180\D", output) and out["reading"]["remarks"][0] in output.splitlines()
    assert len(out["reading"]["remarks"]) == 1
    assert str(text) in out["reading"]["remarks"][0]
    assert "'body'" in out["reading"]["remarks"][0]
    page = tmp_path / "[bold]page.html"
    output = run("masks", tmp_path / "s", "--pairs", "nsp", "--masking", "word", "--lines", "5", "--html", page).stdout
    assert output.count("[CLS]") == 5 and str(page) in output.splitlines()[-1] and page.is_file()
    coverage = run_json("vocab", "check", tmp_path / "v", text)
    assert coverage["scripts"]["latin"]["occurrences"] == 60 * 12
    extension = run_json("vocab", "extend", tmp_path / "v", text, "--add", "2", "--out", tmp_path / "w")
    assert extension["words"] <= 2 and (tmp_path / "w" / "tokenizer.json").is_file()
    stdin = run_json(
        "prepare",
        "-",
        "--line-docs",
        "--tokenizer",
        tmp_path / "v",
        "--out",
        tmp_path / "t",
        stdin=b"the cat\nthe dog\n",
    )
    assert stdin["counts"]["documents"] == 2


def test_errors_of_the_data_commands(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "some.txt").write_text("the cat sat\n")
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    vocab = ["--tokenizer", folder]
    aliases = ["--aliases", tmp_path / "none.tsv"]
    for args, code, place in (
        (["prepare", tmp_path / "empty.txt", *vocab, "--out", tmp_path / "a"], "no-text", tmp_path / "empty.txt"),
        (["prepare", tmp_path / "none.txt", *vocab, "--out", tmp_path / "b"], "not-found", tmp_path / "none.txt"),
        (
            ["prepare", tmp_path / "bad.txt", *vocab, "--out", tmp_path / "c"],
            "not-utf8",
            f"{tmp_path / 'bad.txt'}, line 2",
        ),
        (
            ["prepare", tmp_path / "some.txt", *vocab, "--out", tmp_path / "some.txt"],
            "not-writable",
            tmp_path / "some.txt",
        ),
        (["masks", tmp_path], "no-shards", tmp_path),
        (["vocab", "train", tmp_path / "empty.txt", "--out", tmp_path / "d"], "no-text", None),
        (["vocab", "train", tmp_path / "some.txt", "--out", tmp_path], "already-exists", tmp_path),
        (
            ["vocab", "extend", folder, tmp_path / "some.txt", "--add", "1", *aliases, "--out", tmp_path / "e"],
            "missing-file",
            tmp_path,
        ),
        (["corpus", "docs", "--out", tmp_path], "not-a-file", tmp_path),
    ):
        error = refusal(*args)
        assert (error["code"], error.get("where")) == (code, place and str(place)), (args, error)
        assert code != "missing-file" or "none.tsv" in error["cause"]


@pytest.mark.parametrize(
    ("args", "code", "mention"),
    [
        (["params", "bert-bse"], "not-on-hub", "'bert-base'"),
        (["info", "./nowhere"], "not-found", "./nowhere"),
        (["embed", "minilm", "./nowhere.txt", "--out", "x.npy"], "not-found", "nowhere.txt"),
        (["fill", "minilm", "a [MASK]"], "missing-head", "--model"),
        (["tokenize", "minilm", ""], "empty-text", ""),
        (["tokenize", "minilm", "x" * 20_000], "word-too-long", "20,000"),
        (["params", "x" * 300], "unreadable", "xxx"),
        (["import", "./nowhere", "--out", "x"], "not-found", "./nowhere"),
    ],
)
def test_errors_are_plain_and_exit_with_2(args: list[str], code: str, mention: str) -> None:
    shown = refusal(*args)
    error = json.loads(run(*args, "--json", code=2).stderr)["error"]
    assert shown == {key: error[name] for key, name in JSON_FIELDS.items() if error[name]}
    assert error["code"] == code
    assert error["cause"]
    assert any(mention in (text or "") for text in error.values()), error


FAILING = {  # every command with --json, and arguments that fail
    "corpus docs": ["--out", "."],
    "vocab train": ["./nowhere", "--out", "x"],
    "vocab check": ["./nowhere", "./nowhere"],
    "vocab extend": ["./nowhere", "./nowhere", "--add", "1", "--out", "x"],
    "prepare": ["./nowhere", "--tokenizer", "./nowhere", "--out", "x"],
    "pretrain": ["./nowhere", "--preset", "bert-tiny", "--out", "x"],
    "resume": ["./nowhere"],
    "verify-resume": ["./nowhere"],
    "finetune": ["classify", "--train", "./nowhere", "--model", "./nowhere", "--out", "x"],
    "evaluate": ["./nowhere", "./nowhere"],
    "predict": ["./nowhere", "./nowhere"],
    "compare": ["./nowhere", "./nowhere"],
    "embed": ["./nowhere", "./nowhere", "--out", "x.npy"],
    "fill": ["./nowhere", "a [MASK]"],
    "tokenize": ["./nowhere", "text"],
    "info": ["./nowhere"],
    "params": ["./nowhere"],
    "import": ["./nowhere", "--out", "x"],
    "inspect": ["./nowhere", "--text", "a text"],
    "atlas": ["./nowhere", "--corpus", "./nowhere"],
    "words": ["./nowhere", "bank", "--corpus", "./nowhere"],
    "similar": ["./nowhere", "a", "b"],
}


def commands_by_name(command: Any, *path: str) -> dict[str, Any]:
    """All commands by the words that a user types."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        return {" ".join(path): command}
    return {
        name: leaf
        for key, subcommand in subcommands.items()
        for name, leaf in commands_by_name(subcommand, *path, key).items()
    }


def test_every_command_with_json_is_tested() -> None:
    with_json = {
        name
        for name, command in commands_by_name(get_command(app)).items()
        if any("--json" in option.opts for option in command.params)
    }
    assert with_json == set(FAILING)


@pytest.mark.parametrize("verb", FAILING)
def test_errors_are_json_with_the_json_option(verb: str) -> None:
    shown = refusal(*verb.split(), *FAILING[verb])
    for args in (["--json", *FAILING[verb]], [*FAILING[verb], "--json"]):
        error = json.loads(run(*verb.split(), *args, code=2).stderr)["error"]
        assert shown == {key: error[name] for key, name in JSON_FIELDS.items() if error[name]}


def test_errors_are_plain_when_json_is_an_argument() -> None:
    for args in (["./nowhere", "--", "--json"], ["./nowhere", "text", "--text2", "--json"]):
        assert refusal("tokenize", *args) == {"code": "not-found", "cause": ANY, "where": "./nowhere"}
    error = json.loads(run("tokenize", "--json", "./nowhere", "--", "--json", code=2).stderr)["error"]
    assert error["code"] == "not-found"


def test_an_unwritable_target_loses_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    error = refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "no" / "x.npy")
    assert (error["code"], error["where"]) == ("missing-folder", str(tmp_path / "no"))
    (tmp_path / "in2.txt").write_text("the cat\n" * 3)
    assert refusal("embed", folder, tmp_path / "in2.txt", "--out", tmp_path)["code"] == "not-a-file"


def test_embed_overwrites_neither_its_texts_nor_devices(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    os.mkfifo(tmp_path / "pipe")
    for out, code in (("in.txt", "would-replace-input"), ("pipe", "not-a-file")):
        error = refusal("embed", folder, tmp_path / "in.txt", "--out", tmp_path / out)
        assert (error["code"], error["where"]) == (code, str(tmp_path / out))
    assert (tmp_path / "in.txt").read_text() == "the cat\n" and (tmp_path / "pipe").is_fifo()
    error = refusal("embed", folder, "/dev/zero", "--out", tmp_path / "x.npy")
    assert (error["code"], error["where"]) == ("not-a-file", "/dev/zero")
    (tmp_path / "link.npy").symlink_to(tmp_path / "real.npy")
    run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "link.npy")
    assert (tmp_path / "link.npy").is_symlink() and np.load(tmp_path / "real.npy").shape == (1, 16)


OLD_SPELLINGS = [
    (["tokenize", "the cat", "--model", "FOLDER"], ["tokenize", "FOLDER", "the cat"]),
    (["tokenize", "the", "--pair", "cat", "--model", "FOLDER"], ["tokenize", "FOLDER", "the", "--text2", "cat"]),
    (["fill", "the [MASK]", "--model", "FOLDER"], ["fill", "FOLDER", "the [MASK]"]),
]


@pytest.mark.parametrize(("old", "new"), OLD_SPELLINGS)
def test_old_spellings_work_and_name_the_new_one(old: list[str], new: list[str], folder: Path) -> None:
    def with_folder(args: list[str]) -> list[str]:
        return [str(folder) if arg == "FOLDER" else arg for arg in args]

    old_process = run(*with_folder(old))
    new_process = run(*with_folder(new))
    assert old_process.stdout == new_process.stdout and not new_process.stderr
    assert old_process.stderr.startswith("old spelling; since version 0.2")


def test_the_model_may_be_given_once_only(folder: Path) -> None:
    assert refusal("fill", folder, "the [MASK]", "--model", folder)["code"] == "given-twice"
    error = refusal("fill", "the [MASK]")
    assert error["code"] == "missing-argument"
    assert error["what to do"] == "bertworks fill MODEL TEXT"


def test_bertworks_without_arguments_lists_the_commands() -> None:
    output = run().stdout
    for verb in commands_by_name(get_command(app)):
        assert f"bertworks {verb.split()[0]} " in f"{output} ".replace("\n", " \n"), verb
    assert output.index("bertworks prepare") < output.index("bertworks pretrain") < output.index("bertworks finetune")


COMPUTING = ("tour", "pretrain", "resume", "verify-resume", "finetune", "evaluate", "predict", "embed", "fill")
COMPUTING += ("inspect", "atlas", "words", "similar")
# Reading, counting and writing; those that use several cores have --workers, or a library's own threads.
NOT_COMPUTING = {"corpus docs", "prepare", "masks", "compare", "tokenize", "info", "params", "import"}
NOT_COMPUTING |= {"vocab train", "vocab check", "vocab extend"}


def test_every_computing_command_has_the_same_options() -> None:
    options = {
        name: {opt for parameter in verb.params for opt in parameter.opts}
        for name, verb in commands_by_name(get_command(app)).items()
    }
    assert options.keys() == {*COMPUTING, *NOT_COMPUTING}, "a new verb computes, or does not"
    for verb in COMPUTING:
        assert options[verb] >= {"--device", "--threads"}, verb
        assert verb == "tour" or options[verb] >= {"--json", "--quiet"}, verb
    for verb in ("finetune", "evaluate", "predict", "embed"):
        assert options[verb] >= {"--on-long", "--skip-bad"}, verb
    for verb in ("prepare", "vocab train", "vocab check", "vocab extend"):
        assert options[verb] >= {"--skip-bad", "--json", "--quiet"}, verb


def test_quiet_prints_only_results_and_errors(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    process = run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--quiet")
    assert not process.stdout
    assert not process.stderr
    assert np.load(tmp_path / "x.npy").shape == (1, 16)
    vocab_process = run("vocab", "train", tmp_path / "in.txt", "--size", "100", "--out", tmp_path / "v", "--quiet")
    assert not vocab_process.stdout and not vocab_process.stderr
    assert (
        refusal("embed", folder, tmp_path / "none.txt", "--out", tmp_path / "y.npy", "--quiet")["code"] == "not-found"
    )
    assert run("fill", folder, "the [MASK]", "--quiet").stdout, "this is its result"


def test_import_does_not_replace_its_input(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"precious")
    assert refusal("import", tmp_path, "--out", tmp_path)["code"] == "would-replace-input"
    assert (tmp_path / "pytorch_model.bin").read_bytes() == b"precious"


def test_names_are_printed_literally(tmp_path: Path) -> None:
    name = tmp_path / "[red]x :smile:"
    bertworks.new("bert-mini", vocab_size=20, **SMALL).save(name)
    assert "[red]x :smile:" in run("params", name).stdout


@pytest.mark.parametrize("name", ["[old]/a", "x[/a]"])
def test_folders_are_no_markup(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("metric", f"runs/{name}"), [("accuracy", "0.9")])
    console(stderr=True).print(LiveView(Path("runs", name)))
    captured = capsys.readouterr()
    assert f"runs/{name}" in captured.out and f"runs/{name}" in captured.err


def test_ascii_terminal_and_closed_stdout() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = subprocess.run([BERTWORKS, "tokenize", "minilm", "thé日"], capture_output=True, env=environment)
    assert process.returncode == 0 and b"Traceback" not in process.stderr
    closed = subprocess.run(f"{BERTWORKS} params bert-base >&-", shell=True, capture_output=True)
    assert b"AttributeError" not in closed.stderr


@pytest.mark.parametrize("arguments", [["params", "bert-base"], ["params", "bert-base", "--json"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_on_a_full_disk(arguments: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [BERTWORKS, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert process.returncode == 2 and "Traceback" not in process.stderr and "Exception" not in process.stderr
    assert "output-failed" in process.stderr.splitlines()[0]


def test_a_reader_that_has_seen_enough() -> None:
    process = subprocess.run(
        f"{BERTWORKS} pretrain --help | head -1; {BERTWORKS} --version | true", shell=True, capture_output=True
    )
    assert process.stderr == b""


LONG_NAME = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["vocab", "train", "TEXT", "--size", "100", "--out", LONG_NAME],
        ["vocab", "extend", "MODEL", "TEXT", "--add", "1", "--out", LONG_NAME],
        ["prepare", "TEXT", "--tokenizer", "MODEL", "--out", LONG_NAME],
        ["embed", "MODEL", "TEXT", "--out", f"{LONG_NAME}.npy"],
        ["corpus", "docs", "--out", f"{LONG_NAME}/docs.jsonl"],
        ["tour", "--out", LONG_NAME],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_names_that_are_too_long_are_refused(arguments: list[str], folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 20)
    places = {"TEXT": str(text), "MODEL": str(folder), LONG_NAME: str(tmp_path / LONG_NAME)}
    error = refusal(*(places.get(argument, argument) for argument in arguments))
    assert error["code"] in ("save-failed", "not-writable") and LONG_NAME in error["where"]


def test_a_refused_folder_is_left_as_it_was(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 20)
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    run("prepare", text, "--tokenizer", folder, "--out", tmp_path / "shards")
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "the cat,a\nthe mat,b\n" * 20)
    for arguments in (
        ["prepare", text, "--tokenizer", folder],
        ["pretrain", tmp_path / "shards", "--preset", "bert-tiny", "--steps", "1"],
        ["finetune", "classify", "--train", table, "--model", folder, "--steps", "1"],
        ["finetune", "classify", "--train", table, "--model", folder, "--steps", "1", "--seeds", "2"],
    ):
        assert refusal(*arguments, "--out", other)["code"] == "not-empty"
        assert [path.name for path in other.iterdir()] == ["precious"], arguments
    (tmp_path / "blank.txt").write_text("\n")
    assert refusal("prepare", tmp_path / "blank.txt", "--tokenizer", folder, "--out", other)["code"] == "not-empty"


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r"


def shown_on_terminal(*arguments: str | Path) -> str:
    """What a terminal gets from a command."""
    process_id, terminal = pty.fork()
    if process_id == 0:
        os.execve(BERTWORKS, [BERTWORKS, *map(str, arguments)], {**os.environ, "TERM": "xterm", "COLUMNS": "200"})
    output = b""
    try:
        while chunk := os.read(terminal, 65536):
            output += chunk
    except OSError:  # the process has closed its side
        pass
    os.close(terminal)
    os.waitpid(process_id, 0)
    return output.decode()


def test_terminal_escapes_in_names_and_labels_are_shown_not_obeyed(tmp_path: Path) -> None:
    """Labels, file names and texts of others: in tables, remarks, errors, JSON and predictions."""
    labels = (ESCAPES, f"{ESCAPES}2")
    model = bertworks.new("bert-mini", heads=["sequence"], tokenizer=tiny_tokenizer(), labels=labels, **SMALL)
    folder = model.save(tmp_path / f"m{ESCAPES}")
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + f"the cat,{ESCAPES.strip()}\nthe mat,b\n" * 20)
    for arguments in (
        ["info", folder],
        ["info", folder, "--json"],
        ["params", folder],
        ["predict", folder, table],
        ["predict", folder, table, "--json"],
        ["finetune", "classify", "--train", table, "--model", folder, "--show"],
        ["info", tmp_path / f"none{ESCAPES}"],
    ):
        output = shown_on_terminal(*arguments)
        assert "\\u001b" in output, arguments
        for escape in ("\x1b]0;", "\x1b[2J", "\x9b", "\u202e", "evil\r\r"):
            assert escape not in output, (arguments, escape)
    assert run_json("info", folder)["labels"] == list(labels), "the same value"
    assert ESCAPES.rstrip() in run("predict", folder, table).stdout, "a program gets labels as they are"


def test_remarks_of_loading_are_harmless_and_quiet(tmp_path: Path) -> None:
    """They come by logging, from a folder of others."""
    folder = bertworks.new("bert-mini", tokenizer=tiny_tokenizer(), **SMALL).save(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, f"extra{ESCAPES}": torch.zeros(1)}, folder / "model.safetensors")
    (tmp_path / "in.txt").write_text("the cat\n")
    arguments = ["embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy"]
    remark = run(*arguments).stderr
    assert "read by no head" in remark and "\\u001b" in remark and "\x1b" not in remark
    assert not run(*arguments, "--quiet").stderr


def test_a_call_from_python_leaves_logging_alone() -> None:
    code = "import logging, bertworks.workbench, bertworks.cli.main; log = logging.getLogger('bertworks'); "
    process = subprocess.run(
        [sys.executable, "-c", code + "assert log.propagate and not log.handlers"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_an_interrupt_during_startup_is_one_plain_line(module: str) -> None:
    """Before the verbs are known, and while one imports what it needs."""
    code = f"""
import runpy, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["bertworks", "params", "bert-mini"]
runpy.run_module("bertworks", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "interrupted\n")


def test_a_stop_is_announced_in_the_panel() -> None:
    stop = StopRequest()
    view = LiveView(Path("run"), stop)

    def shown() -> str:
        with (screen := console()).capture() as capture:
            screen.print(view)
        return capture.get()

    assert STOPPING not in shown()
    stop.handle(signal.SIGINT, None)
    assert STOPPING in shown()


def test_lines_of_a_training_say_what_is_a_loss() -> None:
    one = replace(trained_event(1), terms={"class": 2.561, "class_accuracy": 0.25})
    several = replace(one, terms={"masked": 3.0, "masked_accuracy": 0.5, "pair": 0.7})
    assert "step 1: loss 2.561, class accuracy 25.0%," in str(event_line(one))
    assert "masked loss 3.000, masked accuracy 50.0%, pair loss 0.700," in str(event_line(several))
    assert metrics_line({"pearson_spearman": 0.5}) == "mean of pearson and spearman 0.500"


@pytest.mark.parametrize(
    ("threads", "processes", "shown"), [(1, 1, "1 thread x 1 process,"), (4, 2, "4 threads x 2 processes,")]
)
def test_one_is_not_several(threads: int, processes: int, shown: str) -> None:
    machine = {"device": "cpu", "threads": threads, "world_size": processes, "torch": "2"}
    assert shown in str(event_line(Started(machine=machine, peak_gflops=1.0)))


def test_an_input_that_is_needed_is_shown_so(folder: Path) -> None:
    for verb, argument in (("embed", "INPUT"), ("fill", "TEXT"), ("tokenize", "TEXT")):
        usage = next(line for line in run(verb, "--help").stdout.splitlines() if "Usage:" in line)
        assert usage.split()[-1] == f"{{{argument}}}", usage
    error = refusal("embed", folder, "a text", "--out", "z.npy")
    assert error["code"] == "not-found"
    assert error["what to do"] == f"a text itself is piped in: echo 'a text' | bertworks embed {folder} - --out z.npy"


def test_bad_options_exit_with_2() -> None:
    assert "window" in run("embed", "minilm", "x", "--out", "y", "--on-long", "guess", code=2).stderr
    run("nonsense", code=2)


def test_version_and_module() -> None:
    assert run("--version").stdout.strip() == f"bertworks {bertworks.__version__}"
    process = subprocess.run([sys.executable, "-m", "bertworks", "--version"], capture_output=True, text=True)
    assert process.stdout.strip() == f"bertworks {bertworks.__version__}"


def test_errors_are_printed_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process exits without killing the interpreter, and the message is not lost."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert refusal("info", "/nowhere")["code"] == "not-found"
