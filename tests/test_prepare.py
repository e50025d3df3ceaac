"""Shards: the same bytes for any number of workers and after any kill; what is damaged, foreign or unfinished is
named."""

from __future__ import annotations

import hashlib
import json
import random
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

import bertworks.data.prepare
from bertworks.data.corpus import Corpus
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.errors import BadShards, BadText, NotFound, SaveFailed, Unsupported
from bertworks.files import locked
from bertworks.text.cached_encoder import CachedEncoder
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Tokenizer
from refusals import refused
from texts import documents, make_shards, tiny_tokenizer

RUN = """
import sys, bertworks.data.prepare as module
from pathlib import Path
from bertworks.data.corpus import Corpus
from bertworks.text.tokenizer import Tokenizer
if __name__ == "__main__":
    module.BLOCK_CHARACTERS = int(sys.argv[5])
    module.prepare(Corpus([sys.argv[1]]), Tokenizer.load(Path(sys.argv[2])), Path(sys.argv[3]), workers=int(sys.argv[4]))
"""


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*folder.glob("*.shard"), folder / "manifest.json"]
    }


def start(file: Path, vocab: Path, out: Path, workers: int, block: int) -> subprocess.Popen[bytes]:
    script = out.parent / "run.py"
    script.write_text(RUN)
    return subprocess.Popen(
        [sys.executable, script, file, vocab, out, str(workers), str(block)], stderr=subprocess.PIPE
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bertworks.data.prepare, "BLOCK_CHARACTERS", 3000)


def assert_shards_hold(shards: Shards, texts: list[str]) -> None:
    """Every sentence of every text, token by token, and where words begin."""
    speller, at = CachedEncoder(shards.tokenizer), 0
    edges = [
        (shards[index], document) for index in range(len(shards)) for document in range(len(shards[index].documents))
    ]
    assert len(edges) == len(texts)
    for (content, document), text in zip(edges, texts, strict=True):
        sentences = [sentence for line in text.split("\n") for sentence in split_sentences(line)]
        first = int(content.documents[document - 1]) if document else 0
        assert int(content.documents[document]) - first == len(sentences)
        for number, sentence in enumerate(sentences, start=first):
            begin, end = int(content.sentences[number - 1]) if number else 0, int(content.sentences[number])
            spelled = speller.encode([sentence], [number == first])
            assert content.tokens[begin:end].tolist() == spelled.ids.tolist()
            assert content.word_starts(begin, end).tolist() == spelled.word_starts.tolist()
            at += end - begin
    assert at == shards.manifest.counts.tokens == shards.token_edges[-1]


def test_shards_hold_the_text(tmp_path: Path, small_blocks: None) -> None:
    texts = documents(80, seed=2)
    texts[3] = "Bado fike.\nLumo rate! Sipa?\nTo."
    shards = make_shards(tmp_path, texts)
    assert len(shards) > 3 and shards[0].tokens.dtype == np.uint16
    assert_shards_hold(shards, texts)
    counts = shards.manifest.counts
    assert counts.characters == sum(map(len, texts)) and counts.unknown == 0
    assert counts.words == sum(int(shards[i].word_starts(0, len(shards[i].tokens)).sum()) for i in range(len(shards)))


def test_duplicates_are_dropped_and_counted(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of each stays, across shards and across portions of digests."""
    monkeypatch.setattr(bertworks.data.prepare, "DIGESTS_AT_ONCE", 7)
    texts = documents(40, seed=4)
    doubled = [*texts, *texts[5:20], "\u200b\u200b", *documents(10, seed=9), *texts[:30], texts[0]]
    shards = make_shards(tmp_path, doubled)
    kept = [*texts, *documents(10, seed=9)]
    assert shards.manifest.duplicates == 15 + 30 + 1
    assert_shards_hold(shards, kept)
    assert shards.manifest.counts.characters == sum(map(len, kept))


def test_any_number_of_workers(tmp_path: Path) -> None:
    file, vocab = tmp_path / "text.txt", tmp_path / "vocab"
    file.write_text("\n\n".join(documents(300, seed=6)))
    vocab.mkdir()
    tiny_tokenizer().save(vocab)
    found = []
    for workers in (1, 2, 3):
        process = start(file, vocab, tmp_path / f"out{workers}", workers, 5000)
        assert process.wait() == 0, process.stderr
        found.append(hashes(tmp_path / f"out{workers}"))
    assert len(found[0]) > 5 and found[0] == found[1] == found[2]


def kill_and_go_on(file: Path, vocab: Path, out: Path, workers: int, block: int, after: float) -> bool:
    """Whether it was killed before it had ended."""
    process = start(file, vocab, out, workers, block)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    killed = process.wait() == -signal.SIGKILL
    if killed and not (out / "manifest.json").is_file():
        with pytest.raises(NotFound):
            Shards(out)
    again = start(file, vocab, out, workers, block)
    assert again.wait() == 0, again.stderr
    return killed


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on(tmp_path: Path, workers: int) -> None:
    file, vocab = tmp_path / "text.txt", tmp_path / "vocab"
    file.write_text("\n\n".join(documents(1500, seed=6)))
    vocab.mkdir()
    tiny_tokenizer().save(vocab)
    assert start(file, vocab, tmp_path / "whole", 1, 20_000).wait() == 0
    rng, killed = random.Random(workers), 0
    for attempt in range(3):
        out = tmp_path / f"out{attempt}"
        killed += kill_and_go_on(file, vocab, out, workers, 20_000, rng.uniform(0.5, 1.5))
        assert hashes(out) == hashes(tmp_path / "whole")
        assert not (out / ".work").exists() and not list(out.glob(".*.new"))
    assert killed


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_over_the_books_goes_on(tmp_path: Path, shared: Path, workers: int) -> None:
    file, vocab = shared / "corpora" / "en" / "books_en_00.txt", shared / "vocab" / "bert-base-uncased"
    began = time.monotonic()
    assert start(file, vocab, tmp_path / "whole", workers, 2**20).wait() == 0
    seconds, rng, killed = time.monotonic() - began, random.Random(workers), 0
    for _ in range(10):
        killed += kill_and_go_on(file, vocab, tmp_path / "out", workers, 2**20, rng.uniform(0, 0.9 * seconds))
        assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")
        shutil.rmtree(tmp_path / "out")
    assert killed >= 6  # the machine is not always as slow as the first time


def test_parts_of_other_text_are_not_taken(tmp_path: Path, small_blocks: None) -> None:
    """What a killed run left behind is used only for the very same text and tokenizer."""
    texts = documents(40, seed=1)
    whole = hashes(make_shards(tmp_path / "a", texts).folder)
    work = tmp_path / "b" / "shards" / ".work"
    work.mkdir(parents=True)
    (work / "000000-0123456789abcdef0123456789abcdef.json").write_text("{}")
    assert hashes(make_shards(tmp_path / "b", texts).folder) == whole
    assert hashes(make_shards(tmp_path / "b", texts).folder) == whole, "a finished one is left as it is"
    with refused("different-source", place=str(tmp_path / "b" / "shards"), kind=SaveFailed):
        make_shards(tmp_path / "b", documents(40, seed=2))


@pytest.mark.parametrize("lengths", [(70_000,), (65_536,), (65_535, 1), (10, 65_536), (200_000, 3), (1, 1, 1)])
def test_paragraphs_of_any_length(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    texts = [("bado " * (length // 5 + 1))[:length].strip() + "." for length in lengths]
    assert_shards_hold(make_shards(tmp_path, [*texts, *texts[:1]]), list(dict.fromkeys(texts)))


def test_a_refused_run_changes_nothing(tmp_path: Path, shared: Path) -> None:
    shards = make_shards(tmp_path, ["Bado. Fike."])
    before = {path: path.read_bytes() for path in shards.folder.rglob("*") if path.is_file()}
    with refused("different-source", place=str(shards.folder), kind=SaveFailed):
        make_shards(tmp_path, ["Bado. Fike."], Tokenizer.load(shared / "vocab" / "gpt2"))
    assert {path: path.read_bytes() for path in shards.folder.rglob("*") if path.is_file()} == before


def test_damaged_parts_are_made_again(tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_two_writers(tmp_path: Path) -> None:
    with locked(tmp_path / "shards"), refused("in-use", place=str(tmp_path / "shards"), kind=SaveFailed):
        make_shards(tmp_path, ["Bado."])
    assert len(make_shards(tmp_path, ["Bado."])) == 1


def test_other_things_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "thesis.tex").write_text("years of work")
    with refused("not-empty", place=str(tmp_path / "shards"), kind=SaveFailed) as error:
        make_shards(tmp_path, ["Bado."])
    assert "thesis.tex" in error.value.cause


@pytest.mark.parametrize(("text", "code"), [("", "no-text"), ("\n \n\t\n", "no-text"), ("\u200b\x07", "no-tokens")])
def test_no_text(tmp_path: Path, text: str, code: str) -> None:
    with refused(code, kind=BadText):
        make_shards(tmp_path, [text])
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_damaged_shards_are_named(tmp_path: Path, small_blocks: None) -> None:
    shards = make_shards(tmp_path, documents(60, seed=3))
    file = shards.folder / "000001.shard"
    whole = file.read_bytes()
    for at in (0, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        changed = Shards(shards.folder)
        assert len(changed[0].tokens)
        with refused("changed-file", place=str(file), kind=BadShards):
            changed[1]
    for size in (0, 1, len(whole) - 1):
        file.write_bytes(whole[:size])
        with refused("wrong-size", place=str(file), kind=BadShards) as error:
            Shards(shards.folder)
        assert re.findall(r"\d[\d,]*\b", error.value.cause) == [f"{len(whole):,}", f"{size:,}"]
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


def test_shards_of_another_tokenizer(tmp_path: Path, shared: Path) -> None:
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


def test_a_full_disk_leaves_no_half_manifest(tmp_path: Path, small_blocks: None) -> None:
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
    assert not (tmp_path / "shards" / "manifest.json").exists() and not list((tmp_path / "shards").rglob("*.new"))
    assert hashes(make_shards(tmp_path, texts).folder) == hashes(make_shards(tmp_path / "other", texts).folder)


def test_chinese_without_rjieba(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is another process: rjieba is hidden from it by a module that cannot be imported."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "rjieba.py").write_text("raise ImportError('hidden')")
    monkeypatch.syspath_prepend(str(tmp_path / "hidden"))
    tokenizer = Tokenizer.load(shared / "vocab" / "bert-base-chinese")
    with refused("missing-extra", kind=Unsupported) as error:
        make_shards(tmp_path, ["English only.", "使用语言模型。"], tokenizer)
    assert "rjieba" in error.value.cause and "pip install 'bertworks[zh]'" in str(error.value.remedy)
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
