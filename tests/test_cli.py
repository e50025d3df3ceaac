"""The command line as a user meets it: real processes, real exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from typer.main import get_command

import bertworks
from bertworks.cli.main import app
from bertworks.runs.tour import BLANKS
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import Tokenizer
from commands import refusal, run, run_json

BERTWORKS = str(Path(sys.executable).parent / "bertworks")
FIELDS = {
    "code": "code",
    "cause": "cause",
    "where": "place",
    "what to do": "remedy",
}  # of an error: as people see it, in JSON
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
    assert run_json("info", folder)["heads"] == ["lm"]


def test_info_says_what_others_refuse(tmp_path: Path) -> None:
    bertworks.new("albert-mini", vocab_size=20, sharing="attention", **SMALL).save(tmp_path / "m")
    assert run_json("info", tmp_path / "m")["opens_in_transformers_as"] is None
    said = re.search(r"^opens in transformers as +(.+)$", run("info", tmp_path / "m").stdout, re.MULTILINE)
    assert said is not None and "model_type" in said[1] and "'bertworks'" in said[1]


def test_embed(folder: Path, tmp_path: Path) -> None:
    lines = ["the cat", "the cat sat on the mat " * 4, "mats"]
    (tmp_path / "in.txt").write_bytes("\r\n".join(lines).encode())
    done = run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")
    vectors = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert np.allclose(vectors, bertworks.load(folder).encode(lines), atol=1e-6)
    assert re.match(r"3\D+16\D", done.stdout) and str(tmp_path / "x.npy") in done.stdout.splitlines()[0]
    assert done.stderr == "", "a progress bar where there is no terminal"
    ledger = run_json("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy")["ledger"]
    assert (ledger["windowed_texts"], ledger["windowed_tokens"], ledger["limit"], ledger["cut_texts"]) == (1, 24, 10, 0)
    assert done.stdout.splitlines()[1] == str(Ledger(**ledger))
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


def test_embed_draws_progress_on_a_terminal(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n" * 300)
    main, second = pty.openpty()
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
    assert b"texts" in drawn and b"/300" in drawn


def test_fill(folder: Path) -> None:
    asked = ["fill", folder, "the [MASK] sat on [MASK]", "--top-k", "3"]
    out = run_json(*asked)
    assert [len(blank) for blank in out["blanks"]] == [3, 3]
    *blanks, independent, joint = run(*asked).stdout.splitlines()
    assert len(blanks) == 2, "a line for each blank"
    for line, candidates in zip(blanks, out["blanks"], strict=True):
        assert line.endswith("  ".join(f"{one['piece']} {one['probability']:.1%}" for one in candidates))
    assert independent.endswith(f" {out['independent']}") and joint.endswith(f" {out['joint']}")


def test_tokenize(folder: Path) -> None:
    out = run_json("tokenize", folder, "The cats", "--text2", "on mats")
    assert out["pieces"] == ["[CLS]", "the", "cat", "##s", "[SEP]", "on", "mat", "##s", "[SEP]"]
    table = run("tokenize", folder, "The CATs", "--text2", "on MATs").stdout
    assert "CAT" in table and "MAT" in table, "slices of the user's own texts"


def test_import(tmp_path: Path, shared: Path) -> None:
    out = run_json("import", shared / "weights" / "albert-rxnmapper", "--out", tmp_path / "rxn")
    assert out["heads"] == ["lm"]
    assert run_json("info", tmp_path / "rxn")["opens_in_transformers_as"] == "AlbertForMaskedLM"


def left_out(first: str, second: str) -> list[str]:
    """What the second output lacks, where it is otherwise the same."""
    lines, others = first.splitlines(), second.splitlines()
    changes = SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
    assert {kind for kind, *_ in changes} <= {"equal", "delete"}, second
    return [line for kind, begin, end, _, _ in changes if kind == "delete" for line in lines[begin:end]]


def test_tour(tmp_path: Path) -> None:
    """Through the user's own text, which has no labels: whether a sentence follows another is the classifier's task."""
    (tmp_path / "own.txt").write_text(
        "The cat sat on the mat. The dog saw the cat.\n\nA dog ran to the mat. It sat.\n\n" * 120
    )
    out = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    assert "cat" in (tmp_path / "tour" / "masks.html").read_text()
    assert "bertworks prepare" in out and "[MASK]" in out
    again = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--budget", "4s").stdout
    reports = [
        str(tmp_path / "tour" / name / "report.html")
        for name in ("run", "task/pretrained", "task/random", "task/minilm")
    ]
    endings = left_out(out, again)
    assert [line.split()[-1] for line in endings if line.endswith("report.html")] == reports, (
        "the second time uses what is there"
    )
    assert len(endings) <= 5 * len(reports), "and lacks only what a training says at its end"
    resumed = run("tour", "--text", tmp_path / "own.txt", "--out", tmp_path / "tour", "--resume").stdout
    assert (
        all(sentence in resumed for sentence in BLANKS)
        and "bertworks prepare" not in resumed
        and "report.html" in resumed
    )
    for folder in ("pretrained", "random", "minilm"):
        low, high = json.loads((tmp_path / "tour/task" / folder / "results.json").read_text())["intervals"]["accuracy"]
        assert f"{low:.1%} to {high:.1%}" in out
    page = (tmp_path / "tour/report.html").read_text()
    made, others = (
        json.loads((tmp_path / "tour/task" / name / "results.json").read_text()) for name in ("pretrained", "random")
    )
    too_short = made["metrics"]["accuracy"] <= others["intervals"]["accuracy"][1]
    assert page.count("<code>bertworks tour --out NEW ") == (2 if too_short else 0), "in both languages"
    assert page.count('<h2><span lang="en">') == page.count("<h2>") >= 5 and "<script" not in page
    assert len(re.findall(r'<span lang="en">[^<]', page)) == len(re.findall(r'<span lang="zh">[^<]', page)) > 20
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) > 5 and all((tmp_path / "tour" / link).is_file() for link in links)
    assert refusal("tour", "--out", tmp_path / "tour")["code"] == "different-source"
    assert "109,482,240" in out
    rows = dict(re.findall(r"^ (\d)  .*?\.  +(.*?) *$", out, re.MULTILINE))
    cosines = {number: [float(value) for value in row.replace("·", "1").split()] for number, row in rows.items()}
    assert len(cosines) == 6 and cosines["1"][1] > 0.4 > cosines["1"][2], "the two cats are closer than cat and bank"


def test_from_text_to_masks(tmp_path: Path) -> None:
    """Each verb on the one before it, as programs read them."""
    text = tmp_path / "text.jsonl"
    text.write_text(
        "".join(
            json.dumps({"n": n, "body": f"The cat number {n} sat. It saw a dog. The dog saw it."}) + "\n"
            for n in range(60)
        )
    )
    made = run_json("vocab", "train", text, "--size", "150", "--out", tmp_path / "v")
    assert made["size"] <= 150 and made["kind"] == "wordpiece"
    out = run_json("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s", "--workers", "1")
    assert (
        out["counts"]["documents"] == 60
        and out["counts"]["sentences"] == 180
        and out["reading"]["columns"] == {str(text): "body"}
    )
    said = run("prepare", text, "--tokenizer", tmp_path / "v", "--out", tmp_path / "s").stdout
    assert re.match(r"60\D+180\D", said) and out["reading"]["remarks"][0] in said.splitlines()
    assert (
        len(out["reading"]["remarks"]) == 1
        and str(text) in out["reading"]["remarks"][0]
        and "'body'" in out["reading"]["remarks"][0]
    )
    page = tmp_path / "[bold]page.html"
    shown = run("masks", tmp_path / "s", "--pairs", "nsp", "--masking", "word", "--lines", "5", "--html", page).stdout
    assert shown.count("[CLS]") == 5 and str(page) in shown.splitlines()[-1] and page.is_file()
    checked = run_json("vocab", "check", tmp_path / "v", text)
    assert checked["scripts"]["latin"]["occurrences"] == 60 * 12
    grown = run_json("vocab", "extend", tmp_path / "v", text, "--add", "2", "--out", tmp_path / "w")
    assert grown["words"] <= 2 and (tmp_path / "w" / "tokenizer.json").is_file()
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


def test_bad_things_said_to_the_data_verbs(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "some.txt").write_text("the cat sat\n")
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    vocab, aliases = ["--tokenizer", folder], ["--aliases", tmp_path / "none.tsv"]
    for args, code, where in (
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
        assert (error["code"], error.get("where")) == (code, where and str(where)), (args, error)
        assert code != "missing-file" or "none.tsv" in error["cause"]


@pytest.mark.parametrize(
    ("args", "code", "names"),
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
def test_errors_are_plain_and_exit_with_2(args: list[str], code: str, names: str) -> None:
    plain = refusal(*args)
    told = json.loads(run(*args, "--json", code=2).stderr)["error"]
    assert plain == {key: told[name] for key, name in FIELDS.items() if told[name]}
    assert told["code"] == code and told["cause"] and any(names in (text or "") for text in told.values()), told


FAILING = {  # every verb with --json, and what it cannot do
    "corpus docs": ["--out", "."],
    "vocab train": ["./nowhere", "--out", "x"],
    "vocab check": ["./nowhere", "./nowhere"],
    "vocab extend": ["./nowhere", "./nowhere", "--add", "1", "--out", "x"],
    "prepare": ["./nowhere", "--tokenizer", "./nowhere", "--out", "x"],
    "pretrain": ["./nowhere", "--preset", "bert-tiny", "--out", "x"],
    "resume": ["./nowhere"],
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
}


def verbs(command: Any, *path: str) -> dict[str, Any]:
    """All commands by what a user types."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {" ".join(path): command}
    return {name: verb for key, one in inner.items() for name, verb in verbs(one, *path, key).items()}


def test_json_is_wanted_by_every_verb_that_has_it() -> None:
    takers = {
        name for name, verb in verbs(get_command(app)).items() if any("--json" in option.opts for option in verb.params)
    }
    assert takers == set(FAILING)


@pytest.mark.parametrize("verb", FAILING)
def test_errors_are_json_where_json_is_wanted(verb: str) -> None:
    plain = refusal(*verb.split(), *FAILING[verb])
    for args in (["--json", *FAILING[verb]], [*FAILING[verb], "--json"]):
        told = json.loads(run(*verb.split(), *args, code=2).stderr)["error"]
        assert plain == {key: told[name] for key, name in FIELDS.items() if told[name]}


def test_errors_are_plain_where_json_is_a_text() -> None:
    for args in (["./nowhere", "--", "--json"], ["./nowhere", "text", "--text2", "--json"]):
        assert refusal("tokenize", *args) == {"code": "not-found", "cause": ANY, "where": "./nowhere"}
    told = json.loads(run("tokenize", "--json", "./nowhere", "--", "--json", code=2).stderr)["error"]
    assert told["code"] == "not-found"


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
def test_old_spellings_work_and_say_the_new_one(old: list[str], new: list[str], folder: Path) -> None:
    def put(args: list[str]) -> list[str]:
        return [str(folder) if arg == "FOLDER" else arg for arg in args]

    before, now = run(*put(old)), run(*put(new))
    assert before.stdout == now.stdout and not now.stderr
    assert before.stderr.startswith("old spelling; since version 0.2")


def test_a_model_is_named_once(folder: Path) -> None:
    assert refusal("fill", folder, "the [MASK]", "--model", folder)["code"] == "given-twice"
    error = refusal("fill", "the [MASK]")
    assert error["code"] == "missing-argument" and error["what to do"] == "bertworks fill MODEL TEXT"


def test_bertworks_alone_shows_the_chain() -> None:
    said = run().stdout
    for verb in verbs(get_command(app)):
        assert f"bertworks {verb.split()[0]} " in f"{said} ".replace("\n", " \n"), verb
    assert said.index("bertworks prepare") < said.index("bertworks pretrain") < said.index("bertworks finetune")


COMPUTING = ("tour", "pretrain", "resume", "finetune", "evaluate", "predict", "embed", "fill")


def test_every_verb_that_computes_has_the_same_options() -> None:
    options = {name: {opt for one in verb.params for opt in one.opts} for name, verb in verbs(get_command(app)).items()}
    for verb in COMPUTING:
        assert options[verb] >= {"--device", "--threads"}, verb
        assert verb == "tour" or options[verb] >= {"--json", "--quiet"}, verb
    for verb in ("finetune", "evaluate", "predict", "embed"):
        assert options[verb] >= {"--on-long", "--skip-bad"}, verb
    for verb in ("prepare", "vocab train", "vocab check", "vocab extend"):
        assert options[verb] >= {"--skip-bad", "--json", "--quiet"}, verb


def test_quiet_says_nothing_but_results_and_errors(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n")
    done = run("embed", folder, tmp_path / "in.txt", "--out", tmp_path / "x.npy", "--quiet")
    assert not done.stdout and not done.stderr and np.load(tmp_path / "x.npy").shape == (1, 16)
    made = run("vocab", "train", tmp_path / "in.txt", "--size", "100", "--out", tmp_path / "v", "--quiet")
    assert not made.stdout and not made.stderr
    assert (
        refusal("embed", folder, tmp_path / "none.txt", "--out", tmp_path / "y.npy", "--quiet")["code"] == "not-found"
    )
    assert run("fill", folder, "the [MASK]", "--quiet").stdout, "this is its result"


def test_import_onto_itself(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"precious")
    assert refusal("import", tmp_path, "--out", tmp_path)["code"] == "would-replace-input"
    assert (tmp_path / "pytorch_model.bin").read_bytes() == b"precious"


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    name = tmp_path / "[red]x :smile:"
    bertworks.new("bert-mini", vocab_size=20, **SMALL).save(name)
    assert "[red]x :smile:" in run("params", name).stdout


def test_a_plain_terminal() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([BERTWORKS, "tokenize", "minilm", "thé日"], capture_output=True, env=environment)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    closed = subprocess.run(f"{BERTWORKS} params bert-base >&-", shell=True, capture_output=True)
    assert b"AttributeError" not in closed.stderr


def test_bad_options_exit_with_2() -> None:
    assert "window" in run("embed", "minilm", "x", "--out", "y", "--on-long", "guess", code=2).stderr
    run("nonsense", code=2)


def test_version_and_module() -> None:
    assert run("--version").stdout.strip() == f"bertworks {bertworks.__version__}"
    done = subprocess.run([sys.executable, "-m", "bertworks", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == f"bertworks {bertworks.__version__}"


def test_a_process_of_torchrun_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops without taking the interpreter down; nothing that was to be said is lost."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert refusal("info", "/nowhere")["code"] == "not-found"
