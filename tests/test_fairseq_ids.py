"""XLM-RoBERTa and CamemBERT: a `sentencepiece.bpe.model` with fairseq's ids, from text to a trained model, as in
transformers."""

from __future__ import annotations

import io
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers

import bertworks
from bertworks.errors import BadConfig, Unsupported
from bertworks.text.fairseq import fairseq_tokenizer
from bertworks.text.tokenizer import Tokenizer
from refusals import refused
from texts import NASTY, documents

MODEL = "sentencepiece.bpe.model"
CLASSES = {"xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}
SIZES = {"hidden_size": 32, "n_layers": 2, "n_heads": 4, "ffn_size": 64, "n_positions": 64, "init_range": 0.1}
SPECIALS = [
    "a <mask> b",
    "un<mask>,<mask> deux",
    "</s><s> <pad> <unk>",
    "<s>NOTUSED </s>NOTUSED <unk>NOTUSED",
    "l'été où ça naît",
]
every_family = pytest.mark.parametrize("family", CLASSES)


@pytest.fixture(scope="module")
def trained_pieces() -> bytes:
    """Trained as the published ones: unigram, NFKC, <unk> <s> </s> first and no padding."""
    lines = [*documents(300, seed=4), *NASTY * 3, *SPECIALS * 3]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        vocab_size=400,
        character_coverage=0.9995,
        normalization_rule_name="nmt_nfkc",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def folder_of(folder: Path, pieces: bytes, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / MODEL).write_bytes(pieces)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def assert_ids_match_transformers(folder: Path, family: str, texts: list[str]) -> Tokenizer:
    """Our ids, those of transformers from the same file, and those of AutoTokenizer from what we saved."""
    theirs = getattr(transformers, CLASSES[family]).from_pretrained(folder)
    ours = Tokenizer.load(folder)
    (folder / "saved").mkdir()
    ours.save(folder / "saved")
    saved = transformers.AutoTokenizer.from_pretrained(folder / "saved")
    assert len(theirs) == len(saved) == ours.vocab_size
    for text in texts:
        for pair in (None, "and a pair"):
            ids = ours.pieces(text, pair).ids
            assert ids == theirs(text, pair)["input_ids"] == saved(text, pair)["input_ids"], text
            assert not any(ours.pieces(text, pair).segments)
    for kind in ("unk", "pad", "cls", "sep", "mask"):
        assert ours.id_of(kind) == getattr(theirs, f"{kind}_token_id") == getattr(saved, f"{kind}_token_id")
    return ours


@every_family
def test_ids_match_transformers(family: str, trained_pieces: bytes, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", trained_pieces, model_type=family)
    ours = assert_ids_match_transformers(folder, family, [*NASTY, *SPECIALS, *documents(20, seed=9)])
    assert ours.remarks == []
    ids = [ours.id_of(kind) for kind in ("cls", "pad", "sep", "unk", "mask")]
    assert ids == {"xlm-roberta": [0, 1, 2, 3, 401], "camembert": [5, 1, 6, 3, 404]}[family]
    start, between, end = (part.tolist() for part, _ in ours.pair_template.parts)
    assert (start, between, end) == ([ids[0]], [ids[2]] * 2, [ids[2]])
    reloaded = Tokenizer.load(folder / "saved")
    assert reloaded.fingerprint == ours.fingerprint
    assert (folder / "saved" / MODEL).read_bytes() == trained_pieces


@every_family
def test_a_real_model_of_sentencepiece(family: str, shared: Path, tmp_path: Path) -> None:
    """XLNet's begins with <unk>, <s> and </s> too; it has control and user-defined pieces."""
    pieces = (shared / "vocab" / "xlnet" / "spiece.model").read_bytes()
    with (shared / "corpora/en/books_en_00.txt").open(encoding="utf-8") as file:
        lines = list(islice((line for line in file if line.strip()), 200))
    folder = folder_of(tmp_path / "m", pieces, model_type=family)
    ours = assert_ids_match_transformers(folder, family, [*NASTY, *lines])
    assert ours.vocab_size == 32000 + {"xlm-roberta": 2, "camembert": 5}[family]


@pytest.mark.parametrize(
    ("config", "tokenizer_config", "family", "cls"),
    [
        ({}, {}, None, 0),
        ({"model_type": "camembert"}, {}, None, 5),
        ({"model_type": "xlm-roberta"}, {}, "camembert", 5),
        ({"model_type": "camembert"}, {"tokenizer_class": "XLMRobertaTokenizer"}, None, 0),
        ({"model_type": "xlm-roberta"}, {"tokenizer_class": "CamembertTokenizerFast"}, "xlm-roberta", 5),
    ],
)
def test_which_of_the_two_layouts(
    config: Any, tokenizer_config: Any, family: str | None, cls: int, trained_pieces: bytes, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", trained_pieces, **config)
    if tokenizer_config:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    assert Tokenizer.load(folder, family).id_of("cls") == cls
    assert Tokenizer.load_vocabulary(folder / MODEL, family).id_of("cls") == cls


def test_pieces_in_another_order_are_refused(shared: Path, tmp_path: Path) -> None:
    """ALBERT's begins with <pad>: which ids fairseq would have given is not known."""
    folder = folder_of(tmp_path / "m", (shared / "vocab" / "albert-base-v2" / "spiece.model").read_bytes())
    with refused("unsupported", place=MODEL, kind=Unsupported):
        Tokenizer.load(folder)


@every_family
def test_fairseqs_dictionary_must_have_the_pieces(family: str, trained_pieces: bytes, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", trained_pieces, model_type=family)
    expected = Tokenizer.load(folder)
    symbols = [expected.piece(id) for id in range(4, expected.vocab_size - 1)]
    (folder / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    tokenizer = fairseq_tokenizer(folder, family=family)
    assert tokenizer is not None and tokenizer.fingerprint == expected.fingerprint
    (folder / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in reversed(symbols)))
    with refused("other-vocabulary", place="dict.txt", kind=BadConfig):
        fairseq_tokenizer(folder, family=family)


@pytest.fixture(scope="module", params=CLASSES)
def model_folder(request: Any, trained_pieces: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    tokenizer = Tokenizer.load(folder_of(root / "pieces", trained_pieces), request.param)
    bench = bertworks.new(f"{request.param}-mini", heads=["lm"], tokenizer=tokenizer, seed=3, **SIZES)
    return bench.save(root / "model")


def test_blanks_are_filled_as_transformers_fills_them(model_folder: Path) -> None:
    bench = bertworks.load(model_folder)
    assert bench.config.encoder.n_positions == 64 and bench.limit == 64 and bench.remarks == []
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(model_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    text = "Bado <mask> fike <mask>."
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        probabilities = theirs(**encoded).logits[0].softmax(-1)
    positions = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    filled = bench.fill(text, top_k=3)
    assert len(filled.blanks) == len(positions) == 2
    for candidates, position in zip(filled.blanks, positions, strict=True):
        best = probabilities[position].topk(3)
        assert np.allclose([candidate.probability for candidate in candidates], best.values, atol=1e-5)
    assert filled.independent.startswith("Bado") and "<mask>" not in filled.independent


def test_a_trained_classifier_of_pairs_agrees_with_transformers(model_folder: Path, tmp_path: Path) -> None:
    rows = [
        {"sentence1": f"{word} ba", "sentence2": f"ku {word * (i % 2)}x", "label": "ab"[i % 2]}
        for i, word in enumerate(["de", "fi", "go", "la"] * 6)
    ]
    run = bertworks.finetune(rows, model=model_folder, out=tmp_path / "run", steps=2, settings={"train.batch_size": 8})
    bench = run.model
    assert bench.config.family == json.loads((model_folder / "config.json").read_text())["model_type"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    with torch.no_grad():
        logits = theirs(**tokenizer("de ba", "ku x", return_tensors="pt")).logits[0]
    (prediction,) = bench.predict([("de ba", "ku x")])
    expected = logits.softmax(-1)  # the temperature is in the weights
    assert np.allclose(list(prediction.scores.values()), expected, atol=1e-5)


def test_pretraining_goes_on(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(documents(60, seed=5)))
    bertworks.prepare(tmp_path / "text.txt", tokenizer=model_folder, out=tmp_path / "shards", workers=1)
    settings = {"train.batch_tokens": 256, "train.evaluate_tokens": 256, "data.max_length": 48}
    run = bertworks.pretrain(tmp_path / "shards", model=model_folder, out=tmp_path / "run", steps=2, settings=settings)
    theirs, report = transformers.AutoModelForMaskedLM.from_pretrained(run.folder / "model", output_loading_info=True)
    assert not report["missing_keys"] and type(theirs).__name__ in ("XLMRobertaForMaskedLM", "CamembertForMaskedLM")
    assert run.model.tokenizer.fingerprint == bertworks.load(model_folder).tokenizer.fingerprint
