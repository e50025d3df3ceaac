"""Shards: the same bytes for any number of workers and after any kill; what is damaged, foreign or unfinished is
named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bertworks.data.parts
import bertworks.data.prepare
from bertworks.data.corpus import Corpus
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.errors import BadShards, BadText, NotFound, SaveFailed, Unsupported
from bertworks.files import locked
from bertworks.text.cached_encoder import CachedEncoder
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Tokenizer
from commands import run
from refusals import figures, refused
from texts import documents, make_shards, tiny_tokenizer

SCRIPT = """
import sys, bertworks.data.parts as parts
from bertworks.data.prepare import prepare
from pathlib import Path
from bertworks.data.corpus import Corpus
from bertworks.text.tokenizer import Tokenizer
if __name__ == "__main__":
    parts.BLOCK_CHARACTERS = int(sys.argv[5])
    prepare(Corpus([sys.argv[1]]), Tokenizer.load(Path(sys.argv[2])), Path(sys.argv[3]), workers=int(sys.argv[4]))
"""


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*folder.glob("*.shard"), folder / "manifest.json"]
    }


def start_prepare(file: Path, vocab: Path, out: Path, workers: int, block: int) -> subprocess.Popen[bytes]:
    script = out.parent / "run.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, script, file, vocab, out, str(workers), str(block)], stderr=subprocess.PIPE
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bertworks.data.parts, "BLOCK_CHARACTERS", 3000)


def assert_shards_contain(shards: Shards, texts: list[str]) -> None:
    """Every sentence of every text, token by token, with its word starts."""
    encoder = CachedEncoder(shards.tokenizer)
    n_tokens = 0
    documents = [
        (shards[index], document) for index in range(len(shards)) for document in range(len(shards[index].documents))
    ]
    assert len(documents) == len(texts)
    for (content, document), text in zip(documents, texts, strict=True):
        sentences = [sentence for line in text.split("\n") for sentence in split_sentences(line)]
        first = int(content.documents[document - 1]) if document else 0
        assert int(content.documents[document]) - first == len(sentences)
        for index, sentence in enumerate(sentences, start=first):
            begin = int(content.sentences[index - 1]) if index else 0
            end = int(content.sentences[index])
            encoded = encoder.encode([sentence], [index == first])
            assert content.tokens[begin:end].tolist() == encoded.ids.tolist()
            assert content.word_starts(begin, end).tolist() == encoded.word_starts.tolist()
            n_tokens += end - begin
    assert n_tokens == shards.manifest.counts.tokens == shards.token_edges[-1]


def test_shards_contain_the_text(tmp_path: Path, small_blocks: None) -> None:
    texts = documents(80, seed=2)
    texts[3] = "Bado fike.\nLumo rate! Sipa?\nTo."
    shards = make_shards(tmp_path, texts)
    assert len(shards) > 3 and shards[0].tokens.dtype == np.uint16
    assert_shards_contain(shards, texts)
    counts = shards.manifest.counts
    assert counts.characters == sum(map(len, texts)) and counts.unknown == 0
    assert counts.words == sum(int(shards[i].word_starts(0, len(shards[i].tokens)).sum()) for i in range(len(shards)))


def test_duplicates_are_dropped_and_counted(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of each is kept, across shards and across batches of digests."""
    monkeypatch.setattr(bertworks.data.prepare, "DIGESTS_AT_ONCE", 7)
    texts = documents(40, seed=4)
    doubled = [*texts, *texts[5:20], "\u200b\u200b", *documents(10, seed=9), *texts[:30], texts[0]]
    shards = make_shards(tmp_path, doubled)
    unique = [*texts, *documents(10, seed=9)]
    assert shards.manifest.duplicates == 15 + 30 + 1
    assert_shards_contain(shards, unique)
    assert shards.manifest.counts.characters == sum(map(len, unique))


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    vocab = tmp_path / "vocab"
    file.write_text("\n\n".join(documents(300, seed=6)))
    vocab.mkdir()
    tiny_tokenizer().save(vocab)
    results = []
    for workers in (1, 2, 3):
        process = start_prepare(file, vocab, tmp_path / f"out{workers}", workers, 5000)
        assert process.wait() == 0, process.stderr
        results.append(hashes(tmp_path / f"out{workers}"))
    assert len(results[0]) > 5 and results[0] == results[1] == results[2]


def test_one_worker_is_the_process_itself(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(60, seed=6)))
    monkeypatch.setattr("bertworks.data.parts.ProcessPoolExecutor", None)
    prepare(Corpus([str(tmp_path / "text.txt")]), tiny_tokenizer(), tmp_path / "shards", workers=1)
    assert len(Shards(tmp_path / "shards")) > 1


def kill_and_resume(file: Path, vocab: Path, out: Path, workers: int, block: int, n_parts: int) -> bool:
    """Killed once so many parts are finished. Returns whether that was before it had ended."""
    process = start_prepare(file, vocab, out, workers, block)
    while process.poll() is None and len(list((out / ".work").glob("*.json"))) < n_parts:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    killed = process.wait() == -signal.SIGKILL
    if killed and not (out / "manifest.json").is_file():
        with pytest.raises(NotFound):
            Shards(out)
    resumed = start_prepare(file, vocab, out, workers, block)
    assert resumed.wait() == 0, resumed.stderr
    return killed


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_is_resumed(tmp_path: Path, workers: int) -> None:
    file = tmp_path / "text.txt"
    vocab = tmp_path / "vocab"
    file.write_text("\n\n".join(documents(1500, seed=6)))
    vocab.mkdir()
    tiny_tokenizer().save(vocab)
    assert start_prepare(file, vocab, tmp_path / "uninterrupted", 1, 20_000).wait() == 0
    n_killed = 0
    for n_parts in (0, 1, 4):
        out = tmp_path / f"out{n_parts}"
        n_killed += kill_and_resume(file, vocab, out, workers, 20_000, n_parts)
        assert hashes(out) == hashes(tmp_path / "uninterrupted")
        assert not (out / ".work").exists() and not list(out.glob(".*.new"))
    assert n_killed


def test_ctrl_c_says_that_the_same_command_continues(tmp_path: Path) -> None:
    """The terminal sends SIGINT to the workers, too: at any time, also while they start."""
    file = tmp_path / "text.txt"
    vocab = tmp_path / "vocab"
    file.write_text("\n\n".join(documents(1000, seed=6) * 40))
    vocab.mkdir()
    tiny_tokenizer().save(vocab)
    script = "import bertworks.data.parts as m; m.BLOCK_CHARACTERS = 50_000\nfrom bertworks.cli.main import run; run()"
    arguments = ["prepare", str(file), "--tokenizer", str(vocab), "--out", str(tmp_path / "out"), "--workers", "2"]
    for n_parts in (0, 2):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while len(list((tmp_path / "out" / ".work").glob("*.json"))) < n_parts or not (tmp_path / "out/.work").is_dir():
            assert process.poll() is None
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in errors
        assert "the same command" in errors.splitlines()[-1]
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_cut_words_are_counted_and_said(tmp_path: Path) -> None:
    texts = ["Bado fike.", "lumo " + "x" * 25_000 + " rate. " + "y" * 10_001, "z" * 10_000, "中。" * 6000]
    shards = make_shards(tmp_path / "long", texts)
    (remark,) = shards.manifest.reading["remarks"]
    assert figures(remark) == {"2", "10,000"} and repr("x" * 20) in remark
    assert make_shards(tmp_path / "short", texts[:1]).manifest.reading["remarks"] == []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_over_the_books_is_resumed(tmp_path: Path, shared: Path, workers: int) -> None:
    file = shared / "corpora" / "en" / "books_en_00.txt"
    vocab = shared / "vocab" / "bert-base-uncased"
    assert start_prepare(file, vocab, tmp_path / "uninterrupted", workers, 2**20).wait() == 0
    n_killed = 0
    for n_parts in range(0, 50, 5):
        n_killed += kill_and_resume(file, vocab, tmp_path / "out", workers, 2**20, n_parts)
        assert hashes(tmp_path / "out") == hashes(tmp_path / "uninterrupted")
        shutil.rmtree(tmp_path / "out")
    assert n_killed >= 6


def test_parts_of_other_text_are_not_reused(tmp_path: Path, small_blocks: None) -> None:
    """What a killed run left behind is reused only for the same text and tokenizer."""
    texts = documents(40, seed=1)
    expected = hashes(make_shards(tmp_path / "a", texts).folder)
    work = tmp_path / "b" / "shards" / ".work"
    work.mkdir(parents=True)
    (work / "000000-0123456789abcdef0123456789abcdef.json").write_text("{}")
    assert hashes(make_shards(tmp_path / "b", texts).folder) == expected
    assert hashes(make_shards(tmp_path / "b", texts).folder) == expected, "finished shards are left as they are"
    with refused("different-source", place=str(tmp_path / "b" / "shards"), kind=SaveFailed):
        make_shards(tmp_path / "b", documents(40, seed=2))


@pytest.mark.parametrize("lengths", [(70_000,), (65_536,), (65_535, 1), (10, 65_536), (200_000, 3), (1, 1, 1)])
def test_paragraphs_of_any_length(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    texts = [("bado " * (length // 5 + 1))[:length].strip() + "." for length in lengths]
    assert_shards_contain(make_shards(tmp_path, [*texts, *texts[:1]]), list(dict.fromkeys(texts)))


def test_a_refused_run_changes_nothing(tmp_path: Path, shared: Path) -> None:
    shards = make_shards(tmp_path, ["Bado. Fike."])
    before = {path: path.read_bytes() for path in shards.folder.rglob("*") if path.is_file()}
    with refused("different-source", place=str(shards.folder), kind=SaveFailed):
        make_shards(tmp_path, ["Bado. Fike."], Tokenizer.load(shared / "vocab" / "gpt2"))
    assert {path: path.read_bytes() for path in shards.folder.rglob("*") if path.is_file()} == before


def test_damaged_parts_are_rebuilt(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = documents(40, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(bertworks.data.prepare, "_write_shards", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            make_shards(tmp_path / "a", texts)
    work = tmp_path / "a" / "shards" / ".work"
    first, second, third, fourth = sorted(work.glob("*.part"))[:4]
    first.write_bytes(b"\0" * first.stat().st_size)
    second.unlink()
    third.with_suffix(".documents").write_bytes(b"")
    fourth.with_suffix(".json").write_text("[]")
    assert hashes(make_shards(tmp_path / "a", texts).folder) == hashes(make_shards(tmp_path / "b", texts).folder)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "shards"), refused("in-use", place=str(tmp_path / "shards"), kind=SaveFailed):
        make_shards(tmp_path, ["Bado."])
    assert len(make_shards(tmp_path, ["Bado."])) == 1


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "thesis.tex").write_text("years of work")
    with refused("not-empty", place=str(tmp_path / "shards"), kind=SaveFailed) as error:
        make_shards(tmp_path, ["Bado."])
    assert "thesis.tex" in error.value.cause


@pytest.mark.parametrize(("text", "code"), [("", "no-text"), ("\n \n\t\n", "no-text"), ("\u200b\x07", "no-tokens")])
def test_empty_text_is_refused(tmp_path: Path, text: str, code: str) -> None:
    with refused(code, kind=BadText):
        make_shards(tmp_path, [text])
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_damaged_shards_are_named(tmp_path: Path, small_blocks: None) -> None:
    shards = make_shards(tmp_path, documents(60, seed=3))
    file = shards.folder / "000001.shard"
    content = file.read_bytes()
    for i in (0, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :])
        damaged = Shards(shards.folder)
        assert len(damaged[0].tokens)
        with refused("changed-file", place=str(file), kind=BadShards):
            damaged[1]
    for size in (0, 1, len(content) - 1):
        file.write_bytes(content[:size])
        with refused("wrong-size", place=str(file), kind=BadShards) as error:
            Shards(shards.folder)
        assert re.findall(r"\d[\d,]*\b", error.value.cause) == [f"{len(content):,}", f"{size:,}"]
    file.unlink()
    with refused("missing-file", place=str(file), kind=BadShards):
        Shards(shards.folder)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": 99}, "other-format"),
        ({"shards": 5}, "bad-manifest"),
        ({"shards": [{}]}, "bad-manifest"),
        ({"counts": {"x": 1}}, "bad-manifest"),
        ({"counts": {"tokens": "1"}}, "bad-manifest"),
        ({"words": None}, "bad-manifest"),
    ],
)
def test_damaged_manifests(tmp_path: Path, change: dict[str, object], code: str) -> None:
    path = make_shards(tmp_path, ["Bado. Fike."]).folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with refused(code, place=str(path), kind=BadShards):
        Shards(path.parent)


def test_a_tokenizer_mismatch_is_refused(tmp_path: Path, shared: Path) -> None:
    shards = make_shards(tmp_path, ["Bado. Fike."])
    other = Tokenizer.load(shared / "vocab" / "bert-base-cased")
    with refused("tokenizer-mismatch", place="here", kind=BadShards) as error:
        shards.check_tokenizer(other, "here")
    fingerprints = [shards.manifest.tokenizer[:12], other.fingerprint[:12]]
    assert re.findall(r"\b[0-9a-f]{12}\b", error.value.cause) == fingerprints, "theirs, ours"
    shutil.rmtree(shards.folder / "tokenizer")
    (shards.folder / "tokenizer").mkdir()
    other.save(shards.folder / "tokenizer")
    with refused("tokenizer-mismatch", place=str(shards.folder / "tokenizer"), kind=BadShards):
        _ = Shards(shards.folder).tokenizer


def test_a_full_disk_leaves_no_partial_manifest(tmp_path: Path, small_blocks: None) -> None:
    texts = documents(40, seed=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    with locked(tmp_path / "shards"):
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises((SaveFailed, OSError)):
            prepare(Corpus([str(tmp_path / "text.txt")]), tiny_tokenizer(), tmp_path / "shards", workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "shards" / "manifest.json").exists()
    assert not list((tmp_path / "shards").rglob("*.new"))
    assert hashes(make_shards(tmp_path, texts).folder) == hashes(make_shards(tmp_path / "other", texts).folder)


def test_chinese_without_rjieba(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    with refused("missing-extra", kind=Unsupported) as error:
        make_shards(tmp_path, ["English only.", "使用语言模型。"], tokenizer)
    assert "rjieba" in error.value.cause
    assert "pip install 'bertworks[zh]'" in str(error.value.remedy)
    shards = make_shards(tmp_path, ["English only.", "使用语言模型。"], tokenizer, words="char")
    assert shards.manifest.segmenter is None and shards.manifest.counts.han_documents == 1


def test_eight_megabytes_of_one_word(tmp_path: Path, shared: Path) -> None:
    for name in ("bert-base-uncased", "gpt2", "albert-base-v2"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "text.txt").write_text("x" * 8_000_000 + "\n\nAnd this.\n")
        prepare(
            Corpus([str(folder / "text.txt")]), Tokenizer.load(shared / "vocab" / name), folder / "shards", workers=1
        )
        assert Shards(folder / "shards").manifest.counts.documents >= 2


@pytest.mark.parametrize(
    ("option", "words"), [([], "5 documents (between blank lines)"), (["--file-docs"], "a file each")]
)
def test_the_count_says_what_a_document_is(option: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "vocab").mkdir()
    tiny_tokenizer().save(tmp_path / "vocab")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("Ba de.\n\nFi go.\n\nKu la.\n")
    (tmp_path / "texts" / "b.txt").write_text("Mo ba.\n\nDe fi.\n")
    arguments = ["prepare", tmp_path / "texts", "--tokenizer", tmp_path / "vocab", "--out", tmp_path / "out"]
    assert words in run(*arguments, "--workers", "1", *option).stdout
