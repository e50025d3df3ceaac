"""Files of every supported type become documents; damage is counted or refused with its place, and nothing is dropped
silently."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.errors import BadText, BertworksError, NotFound, Unsupported
from refusals import refused

TEXTS = ["First line.\nSecond line.", "Über 中国, naïve.", "Third."]


SKIP_BAD = ReadOptions(skip_bad=True)


def read(*paths: Path, **options: object) -> list[str]:
    return list(Corpus([str(path) for path in paths], ReadOptions(**options)))  # type: ignore[arg-type]


def write_all(folder: Path) -> dict[str, Path]:
    """Write the same documents in every file type."""
    plain = ("\n\n".join(TEXTS) + "\n").encode()
    rows = [{"id": number, "title": "t", "text": text} for number, text in enumerate(TEXTS)]
    files = {
        "a.txt": plain,
        "b.txt.gz": gzip.compress(plain),
        "c.txt.xz": lzma.compress(plain),
        "d.txt.zst": zstandard.compress(plain),
        "e.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "f.txt": b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"),
        "g.txt": b"\n \n\t\n" + plain.replace(b"\n\n", b"\n\n\n \n"),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for name, delimiter in (("h.csv", ","), ("i.tsv", "\t")):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["id", "title", "text"], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), folder / "j.parquet")
    return {path.name: path for path in folder.iterdir()}


def test_every_file_type_gives_the_same_documents(tmp_path: Path) -> None:
    for name, path in write_all(tmp_path).items():
        corpus = Corpus([str(path)])
        assert list(corpus) == TEXTS, name
        assert corpus.position == corpus.total == path.stat().st_size
        assert (corpus.stats.documents, corpus.stats.replaced, corpus.stats.bad_rows) == (3, 0, 0)
        assert list(corpus) == TEXTS, "a second time"
    (tmp_path / "notes.pdf").write_bytes(b"%PDF")
    (tmp_path / ".hidden.txt").write_text("no")
    folder = Corpus([str(tmp_path)])
    assert list(folder) == TEXTS * 10
    remarks = folder.stats.remarks()
    assert folder.stats.skipped_files == 1
    assert [remark.code for remark in remarks] == [
        *["text-column"] * 4,
        "other-files",
    ]
    assert any("e.jsonl" in remark.text and "'text'" in remark.text for remark in remarks[:4])
    assert "1" in remarks[4].text


def test_lines_as_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\n")
    assert read(tmp_path / "a.txt", line_docs=True) == ["one", "two", "three"]
    assert read(tmp_path / "a.txt") == ["one", "two\nthree"]


def test_files_as_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n \nthree\n")
    (tmp_path / "b.txt").write_text("four\n")
    (tmp_path / "c.jsonl").write_text('{"text": "five"}\n{"text": "six"}\n')
    assert read(tmp_path, file_docs=True) == ["one\ntwo\nthree", "four", "five", "six"]
    for options, rules in (
        ({"file_docs": True}, {"file": 2, "row": 2}),
        ({"line_docs": True}, {"line": 4, "row": 2}),
        ({}, {"blank-lines": 4, "row": 2}),
    ):
        corpus = Corpus([str(tmp_path)], ReadOptions(**options))
        assert len(list(corpus)) == sum(rules.values()) and corpus.stats.rules == rules
    with refused("given-twice") as error:
        ReadOptions(line_docs=True, file_docs=True)
    assert error.value.fields == ["line_docs", "file_docs"]


def test_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,short,long\n1,ab,a much longer text\n2,cd,another long text\n")
    corpus = Corpus([str(tmp_path / "a.csv")])
    assert list(corpus) == ["a much longer text", "another long text"]
    (remark,) = corpus.stats.remarks()
    assert remark.code == "text-column"
    assert str(tmp_path / "a.csv") in remark.text
    assert "'long'" in remark.text
    assert corpus.stats.columns == {str(tmp_path / "a.csv"): "long"}
    assert read(tmp_path / "a.csv", column="short") == ["ab", "cd"]
    with refused("missing-column", place="a.csv", kind=BadText) as error:
        read(tmp_path / "a.csv", column="txt")
    assert "'txt'" in error.value.cause and "id, short, long" in str(error.value.remedy)
    pq.write_table(pa.table({"id": ["a", "b"], "story": ["once upon a time", "the end"]}), tmp_path / "c.parquet")
    assert read(tmp_path / "c.parquet") == ["once upon a time", "the end"], "the column with the longest texts"
    (tmp_path / "b.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    with refused("no-text-column", place="b.jsonl", kind=BadText) as error:
        read(tmp_path / "b.jsonl")
    assert re.search(r"\bn\b", error.value.cause)


def test_bad_rows_are_counted_or_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "good"}\n{bad\n[1]\n{"text": 5}\n\n{"text": "half \\ud83d"}\n' + "[" * 5000 + "\n"
    )
    corpus = Corpus([str(tmp_path / "a.jsonl")], SKIP_BAD)
    assert list(corpus) == ["good", "half \ufffd"] and corpus.stats.replaced == 1
    assert corpus.stats.bad_rows == 4
    assert [remark.code for remark in corpus.stats.remarks()] == ["text-column", "replaced-characters", "bad-rows"]
    assert "4" in corpus.stats.remarks()[-1].text
    with refused("not-json", kind=BadText) as error:
        read(tmp_path / "a.jsonl")
    assert error.value.place == f"{tmp_path / 'a.jsonl'}, line 2"
    for number, (row, code) in enumerate(
        (("[1]", "not-an-object"), ('{"text": 5}', "no-text"), ('{"text": "\\ud83d"}', "lone-surrogate"))
    ):
        (tmp_path / f"{number}.jsonl").write_text('{"text": "good"}\n' + row + "\n")
        with refused(code, place=f"{number}.jsonl, line 2", kind=BadText):
            read(tmp_path / f"{number}.jsonl")
    (tmp_path / "b.csv").write_text('text,n\n"two\nlines",1\nshort\na,b,c\nlast,2\n')
    ragged = Corpus([str(tmp_path / "b.csv")], SKIP_BAD)
    assert list(ragged) == ["two\nlines", "last"] and ragged.stats.bad_rows == 2
    with refused("wrong-field-count", place="b.csv, line 4", kind=BadText) as error:
        read(tmp_path / "b.csv")
    assert re.findall(r"\d+", error.value.cause) == ["1", "2"]
    pq.write_table(pa.table({"text": ["a", None, "b"]}), tmp_path / "c.parquet")
    nulls = Corpus([str(tmp_path / "c.parquet")], SKIP_BAD)
    assert list(nulls) == ["a", "b"] and nulls.stats.bad_rows == 1


def test_bad_utf8_is_counted_or_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("good \ufffd\n".encode() + b"bad \xff\xfe here\n\nlast \xe4\xb8\n")
    corpus = Corpus([str(tmp_path / "a.txt")], SKIP_BAD)
    assert list(corpus) == ["good \ufffd\nbad \ufffd\ufffd here", "last \ufffd"]
    assert corpus.stats.replaced == 3
    assert [remark.code for remark in corpus.stats.remarks()] == ["replaced-characters"]
    with refused("not-utf8", kind=BadText) as error:
        read(tmp_path / "a.txt")
    assert error.value.place == f"{tmp_path / 'a.txt'}, line 2"
    assert re.search(r"\b4\b", error.value.cause), "the position of the byte"


@pytest.mark.parametrize(
    ("name", "content", "kind", "code"),
    [
        ("a.txt", b"\x7fELF\0\0\0", BadText, "binary-file"),
        ("a.txt", "text".encode("utf-16"), BadText, "utf16"),
        ("a.txt.gz", b"not gzip at all", NotFound, "unreadable"),
        ("a.txt.gz", gzip.compress(os.urandom(5000).hex().encode())[:-2000], NotFound, "truncated-file"),
        ("a.txt.xz", b"not xz", NotFound, "unreadable"),
        ("a.txt.zst", b"not zstd", NotFound, "unreadable"),
        ("a.txt.zst", zstandard.compress(os.urandom(500_000).hex().encode())[:-3], NotFound, "truncated-file"),
        ("a.csv", b"text,text\n1,2\n", BadText, "duplicate-column"),
        ("a.parquet", b"PAR1 not really", BadText, "not-parquet"),
    ],
)
def test_files_that_are_not_text_are_refused(
    tmp_path: Path, name: str, content: bytes, kind: type[BertworksError], code: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(code, place=name, kind=kind) as error:
        read(tmp_path / name)
    assert code != "duplicate-column" or "'text'" in error.value.cause


def test_a_line_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertworks.data.tables.MAX_LINE_BYTES", 1000)
    (tmp_path / "a.txt").write_text("short\n" + "x" * 5000 + "\n")
    with refused("line-too-long", kind=BadText) as error:
        read(tmp_path / "a.txt")
    assert error.value.place == f"{tmp_path / 'a.txt'}, line 2"


def test_long_documents_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertworks.data.corpus.MAX_DOCUMENT_CHARACTERS", 100)
    text = " ".join(f"word{number}" for number in range(100))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / "b.txt").write_text(text.replace(" ", "\n"))
    for name in ("a.jsonl", "b.txt"):
        corpus = Corpus([str(tmp_path / name)])
        parts = list(corpus)
        assert 8 <= len(parts) <= 12
        assert " ".join(parts).split() == text.split()
        assert corpus.stats.split_documents
        assert corpus.stats.remarks()[-1].code == "split-documents"


def test_missing_files_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("not-found", place="none.txt", kind=NotFound):
        Corpus([str(tmp_path / "none.txt")])
    with refused("no-text-files", place=str(tmp_path), kind=NotFound):
        Corpus([str(tmp_path)])
    with refused("not-a-file", place="/dev/zero", kind=NotFound):
        read(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe.txt")
    with refused("not-a-file", place="pipe.txt", kind=NotFound):
        read(tmp_path / "pipe.txt")
    (tmp_path / "pipe.txt").unlink()
    for path, code in (("", "not-found"), ("x" * 300, "unreadable")):
        with refused(code, kind=NotFound):
            Corpus([path])
    import sys

    files = write_all(tmp_path)
    for name, module in (("d.txt.zst", "zstandard"), ("j.parquet", "pyarrow.parquet")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with refused("missing-extra", place=name, kind=Unsupported) as error:
                read(files[name])
            assert error.value.remedy == "pip install 'bertworks[data]'"


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl"))
    path.write_text('{"te\\ud800xt": "a longer text", "n": 1}\n')
    corpus = Corpus([str(path)], SKIP_BAD)
    assert list(corpus) == ["a longer text"]
    "".join(map(str, corpus.stats.remarks())).encode()
    with refused("lone-surrogate", kind=BadText):
        read(path)
