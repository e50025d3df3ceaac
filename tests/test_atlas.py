"""An atlas of models whose heads are known: planted ones are named, random ones never."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
import commands
from bertworks.inspect import passages, preparing, running
from bertworks.inspect.atlas import Atlas, atlas
from bertworks.inspect.naming import NAMES, Thresholds
from bertworks.inspect.units import Units
from bertworks.model.init import LOCAL_OFFSETS, init_local_attention
from bertworks.text.tokenizer import Tokenizer
from refusals import refused
from texts import chinese_documents

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from atlas_recall import N_WORDS, SPECIAL, make_documents, make_tokenizer

OF_OFFSET = {1: "next", -1: "previous", 2: "next2", -2: "previous2"}
ENOUGH = Thresholds(min_types=40, min_documents=40)
ALWAYS_UNSEEN = {"first", "predicts"}  # of a model that is not causal, has no language head, and little text


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="module")
def documents() -> list[str]:
    return make_documents(60, 138)


def small_model(tokenizer: Tokenizer, preset: str = "bert-mini", seed: int = 0, **changes: Any) -> bertworks.Workbench:
    sizes = {"hidden_size": 128, "n_heads": 4, "n_layers": 2, "ffn_size": 64, "n_positions": 128, **changes}
    return bertworks.new(preset, tokenizer=tokenizer, seed=seed, **sizes)


def tiny_model(tokenizer: Tokenizer, preset: str = "bert-mini", **changes: Any) -> bertworks.Workbench:
    return small_model(tokenizer, preset, **{"hidden_size": 32, "n_heads": 2, "n_layers": 1, "ffn_size": 32, **changes})


def named(found: Atlas) -> dict[tuple[int, int], list[str]]:
    return {(row["layer"], row["head"]): row["names"] for row in found.rows if row["names"]}


# ---------------------------------------------------------------------- planted weights, random ones


@pytest.fixture(scope="module")
def planted(tokenizer: Tokenizer) -> Atlas:
    """On words of one piece: positions are those of pieces."""
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    return atlas(model, plain_documents(), sentences=50, thresholds=ENOUGH)


def plain_documents() -> list[str]:
    return [document.replace("q", "") for document in make_documents(50, 138)]


def test_planted_weights_are_read_back(planted: Atlas) -> None:
    """Three heads of four look at neighbours, one after the other."""
    expected = iter(LOCAL_OFFSETS * 2)
    names = {(layer, head): [OF_OFFSET[next(expected)]] for layer in range(2) for head in range(3)}
    assert named(planted) == names
    for row in planted.rows:
        for evidence in row["evidence"].values():
            assert evidence["confirmed"] and evidence["numbers"]["kept when shuffled"] > 0.95


def test_evidence_for_people(planted: Atlas) -> None:
    row = planted.rows[0]
    assert row["names"] == ["previous"]
    evidence = row["evidence"]["previous"]
    assert evidence["grade"] == "strong" and evidence["types"] >= 40 and evidence["documents"] == 50
    assert [condition["what"] for condition in evidence["conditions"]] == ["share", "hit", "times any other offset"]
    for condition in evidence["conditions"]:
        assert condition["needs"] <= condition["lower"] <= condition["value"]
    assert evidence["null"]["other offset"] in (-3, -2, 1, 2, 3) and evidence["null"]["mass there"] < 0.25
    profile = row["profile"]
    assert list(map(int, profile)) == [*range(-10, 0), *range(1, 11)] and max(profile, key=profile.get) == "-1"
    examples = evidence["examples"]
    assert len(examples) == 3 == len({example["document"] for example in examples})
    for example in examples:
        assert example["weight"] > 0.5
        assert example["query"]["before"].rstrip().endswith(example["key"]["word"].strip())
    free = planted.rows[3]
    assert free["names"] == [] and "broad" in free["descriptions"]


def random_model(tokenizer: Tokenizer, gain: float, seed: int) -> bertworks.Workbench:
    model = small_model(tokenizer, seed=seed)
    with torch.no_grad():
        for layer in model.model.encoder.layers():  # type: ignore[operator]
            for part in (layer.attention.attn.q, layer.attention.attn.k):
                part.weight.mul_(gain)
    return model


@pytest.mark.parametrize("gain", [1.0, 4.0, 8.0, 16.0])
def test_random_models_get_no_name(gain: float, tokenizer: Tokenizer, documents: list[str]) -> None:
    """Also peaked ones, on text where planted heads of strength 0.5 are named."""
    found = atlas(random_model(tokenizer, gain, int(gain)), documents, sentences=50, thresholds=ENOUGH)
    assert named(found) == {} and found.naming.unseen.keys() == ALWAYS_UNSEEN
    assert found.naming.null_names == 0 < found.naming.null_tests


@pytest.mark.slow
@pytest.mark.parametrize("gain", [1.0, 2.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("seed", range(4))
def test_twenty_random_models(gain: float, seed: int, tokenizer: Tokenizer) -> None:
    found = atlas(random_model(tokenizer, gain, 100 + seed), make_documents(120, 138), sentences=120)
    assert named(found) == {} and found.naming.unseen.keys() == ALWAYS_UNSEEN


@pytest.fixture(scope="module")
def twin_model(tokenizer: Tokenizer) -> bertworks.Workbench:
    """Queries and keys of the first head are the embedding itself."""
    model = small_model(tokenizer, hidden_size=64, n_heads=2, n_layers=1)
    encoder: Any = model.model.encoder
    with torch.no_grad():
        encoder.embed.positions.weight.zero_()
        encoder.embed.segments.weight.zero_()
        encoder.embed.tokens.weight.normal_(0, 1, generator=torch.Generator().manual_seed(1))
        attention = encoder.attentions[0].attn
        for part in (attention.q, attention.k):
            part.weight.zero_()
            part.weight[:32, :32] = torch.eye(32) * 1.5
    return model


def test_a_head_that_looks_at_the_same_word(twin_model: bertworks.Workbench) -> None:
    found = atlas(twin_model, plain_documents(), sentences=50, thresholds=ENOUGH)
    assert found.names(0, 0) == ["same", "related"] and found.names(0, 1) == []
    assert found.rows[0]["evidence"]["related"]["by"] == "by the model's own vectors"  # which it compares, indeed
    evidence = found.rows[0]["evidence"]["same"]
    assert evidence["confirmed"] and evidence["numbers"]["planted twin"] > 20
    assert evidence["numbers"]["lift in a foreign text"] > 5 and evidence["notes"] == ["also across"]
    assert found.naming.null_names == 0 < found.naming.null_tests
    for example in evidence["examples"]:
        assert example["query"]["word"].lower() == example["key"]["word"].lower()


# ---------------------------------------------------------------------- the same for the same


def test_the_same_input_gives_the_same_bytes(planted: Atlas, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    again = atlas(model, plain_documents(), sentences=50, thresholds=ENOUGH)
    assert again.save(tmp_path / "a.json").read_bytes() == planted.save(tmp_path / "b.json").read_bytes()
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["heads"][0]["names"] == ["previous"] and content["thresholds"]["z"] == 4.0
    assert content["passages"] == 50 and len(content["model"]) == len(content["corpus"]) == 64


def test_batches_change_nothing(twin_model: bertworks.Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for budget in (150, 4096):
        monkeypatch.setattr(running, "BATCH_TOKENS", budget)
        rows.append(atlas(twin_model, plain_documents(), sentences=45, thresholds=ENOUGH).rows)
    for one, other in zip(*rows, strict=True):
        assert one["names"] == other["names"]
        assert one["profile"] == pytest.approx(other["profile"], abs=2e-6)
        assert one["description"] == pytest.approx(other["description"], abs=2e-5)


MEMORY = """
import resource, sys
import torch
sys.path[:0] = sys.argv[1:]
from test_atlas import atlas, make_documents, make_tokenizer, small_model
torch.set_num_threads(1)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
model = small_model(make_tokenizer(), n_layers=12, n_heads=8, hidden_size=64)
documents = make_documents(60, 138)
atlas(model, documents, sentences=16)
before = peak()
atlas(model, documents, sentences=60)
print(peak() - before)
"""


def test_one_layer_of_one_batch_is_in_memory() -> None:
    """All of it would be 60 passages x 12 layers x 8 heads x 128 x 128 weights: 377 MB."""
    folders = [str(Path(__file__).parent), str(Path(bertworks.__file__).parents[1])]
    result = subprocess.run([sys.executable, "-c", MEMORY, *folders], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 120


# ---------------------------------------------------------------------- what cannot be seen


def test_too_little_text_is_said(tokenizer: Tokenizer, documents: list[str]) -> None:
    model = tiny_model(tokenizer)
    found = atlas(model, documents[:5], sentences=5)
    assert named(found) == {} and found.naming.unseen["next"] == "not enough text"
    for texts in ([], [""], ["  \n "], [" ".join(["w1"] * 500)]):
        with refused("no-passages"):
            atlas(model, texts)


FRAMES = {  # as the families put special tokens around a text and a pair
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
    "xlnet": ("$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2"),
    "gpt": ("$A", "$A $B"),
}


def framed(frame: str) -> Tokenizer:
    from tokenizers import processors

    backend = make_tokenizer().backend
    single, pair = FRAMES[frame]
    ids = [(token, SPECIAL.index(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


@pytest.mark.parametrize(
    ("preset", "frame", "unseen"),
    [
        ("bert-mini", "bert", {"first"}),
        ("roberta-mini", "roberta", {"first"}),
        ("albert-mini", "bert", {"first"}),
        ("electra-mini", "bert", {"first"}),
        ("xlnet-mini", "xlnet", {"first"}),
        ("distilbert-mini", "bert", {"first"}),
        ("gpt-mini", "gpt", {"next", "next2", "across", "cls", "sep"}),
    ],
)
def test_every_family_says_what_it_cannot_see(
    preset: str, frame: str, unseen: set[str], documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random ones with a language head do not predict; sinks are found by the frame, wherever it puts them."""
    tokenizer = framed(frame)
    changes = {} if preset == "xlnet-mini" else {"n_positions": 130}
    sizes = {"hidden_size": 32, "n_heads": 2, "n_layers": 2, "ffn_size": 32, **changes}
    heads = [] if preset == "electra-mini" else ["lm"]
    model = bertworks.new(preset, tokenizer=tokenizer, heads=heads, **sizes)
    monkeypatch.setattr(passages, "MAX_SENTENCE_WORDS", 12)
    found = atlas(model, documents, sentences=42, thresholds=ENOUGH)
    reasons = found.naming.unseen
    assert named(found) == {}
    assert {name for name, reason in reasons.items() if "cannot be seen" in reason} == unseen | {"predicts"}
    assert reasons.keys() <= set(NAMES)
    assert ("frequencies" if heads else "language head") in reasons["predicts"]
    first = found.rows[0]["description"]
    assert (first["cls"] > 0.005) == (frame != "gpt") == (first["sep"] > 0.01)
    assert (first["first"] > 0.01) == (frame == "gpt")


@pytest.mark.parametrize("has_rjieba", [True, False])
def test_chinese_characters_and_words(has_rjieba: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a tokenizer each character is a word; words of several need rjieba."""
    pytest.importorskip("rjieba")
    if not has_rjieba:
        monkeypatch.setattr(passages, "can_segment_chinese", lambda: False)
        monkeypatch.setattr(preparing, "can_segment_chinese", lambda: False)
    from bertworks.text.backends import word_piece

    characters = sorted({character for document in chinese_documents() for character in document})
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *characters])}
    tokenizer = Tokenizer.from_json(json.loads(word_piece(vocabulary, {}).to_str()), {})
    few = replace(ENOUGH, min_types=5, min_piece_types=5)
    found = atlas(tiny_model(tokenizer), chinese_documents(), sentences=45, thresholds=few)
    assert named(found) == {}
    if has_rjieba:
        assert "pieces" not in found.naming.unseen
    else:
        assert "rjieba" in found.naming.unseen["pieces"]
    read = passages.read_passages(chinese_documents(), tokenizer, n=3, pairs=True)
    owners, words = passages.piece_words(read.passages[0])
    assert (max(map(len, words)) > 1) == has_rjieba
    assert all(len(word) == 1 for word in read.passages[0].units.words if word)
    for word in set(owners[owners >= 0].tolist()):
        assert (owners == word).sum() == len(words[word])


# ---------------------------------------------------------------------- relations of one's own


def test_a_relation_of_ones_own(tokenizer: Tokenizer) -> None:
    """A function; the head that looks one word back finds it, and the best fixed offset is -1, too."""
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    twice = {f"w{number}" for number in range(0, N_WORDS, 2)}

    def back(units: Units) -> list[tuple[int, int]]:
        return [(at, at - 1) for at in range(2, len(units)) if units.texts[at] == units.texts[at - 1] == 0]

    def one_or_two(units: Units) -> list[tuple[int, int]]:
        """To the left of even words, to the right of others: no fixed offset has more than half."""
        found = []
        for at in range(2, len(units) - 1):
            other = at - 1 if units.words[at] in twice else at + 1
            if units.texts[at] == 0 == units.texts[other]:
                found.append((at, other))
        return found

    found = atlas(
        model, plain_documents(), sentences=50, thresholds=ENOUGH, relations={"back": back, "by parity": one_or_two}
    )
    assert found.best_offsets["back"] == (-1, 1.0)
    assert all("back" not in row["names"] and "by parity" not in row["names"] for row in found.rows)
    assert found.ranking("back")[0][2] > 0.7 and found.ranking("back")[0][0:2] in [(0, 0), (1, 1)]
    assert 0.3 < found.best_offsets["by parity"][1] < 0.7
    assert found.rows[0]["own"]["back"] > 0.7 > 0.3 > found.rows[1]["own"]["back"]


def test_relations_from_files(twin_model: bertworks.Workbench, tmp_path: Path) -> None:
    """Word pairs: every word with itself; a treebank: every word depends on its twin."""
    table = tmp_path / "twins.tsv"
    table.write_text("".join(f"w{number}\tW{number}\n" for number in range(N_WORDS)))
    found = atlas(twin_model, plain_documents(), sentences=50, thresholds=ENOUGH, relations_file=table)
    assert found.names(0, 0) == ["same", "related", "twins"] and found.names(0, 1) == []
    evidence = found.rows[0]["evidence"]["twins"]
    (condition,) = evidence["conditions"]
    assert condition["lower"] >= 0.1 and len(evidence["examples"]) == 3
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        numbers = rng.choice(np.arange(60, N_WORDS), 6, replace=False).tolist()
        order = rng.permutation(6) + 1
        words = [f"w{number}" for number in numbers]
        words += [words[place - 1] for place in order]
        for at, word in enumerate(words, 1):
            head, relation = (0, "root") if at <= 6 else (order[at - 7], "twin")
            lines.append(f"{at}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n")
        lines.append("\n")
    treebank = tmp_path / "trees.conllu"
    treebank.write_text("# a comment\n" + "".join(lines))
    found = atlas(twin_model, plain_documents(), sentences=50, thresholds=ENOUGH, relations_file=treebank)
    assert found.names(0, 0) == ["same", "related", "twin"] and found.names(0, 1) == []
    assert found.naming.head(0, 0).own["twin"] > 0.9 > 0.5 > found.best_offsets["twin"][1]
    rare = "1\tw60\t_\t_\t_\t_\t0\troot\t_\t_\n2\tw61\t_\t_\t_\t_\t1\tdet\t_\t_\n\n"
    treebank.write_text(rare + "".join(f"{at}\tw{at}\t_\t_\t_\t_\t{at - 1}\tfar\t_\t_\n" for at in range(1, 100)))
    found = atlas(twin_model, plain_documents(), sentences=50, thresholds=ENOUGH, relations_file=treebank)
    assert found.naming.unseen["det"] == "not enough text", "and a sentence that is too long for the model is left out"


def test_relations_that_are_refused(tokenizer: Tokenizer, documents: list[str], tmp_path: Path) -> None:
    model = tiny_model(tokenizer)
    for name in ("next", "related across", "null: same", " "):
        with refused("name-taken"):
            atlas(model, documents, relations={name: lambda units: []})
    with refused("out-of-range"):
        atlas(model, documents, sentences=5, relations={"mine": lambda units: [(0, 10_000)]})
    with refused("not-found"):
        atlas(model, documents, relations_file=tmp_path / "nowhere.tsv")
    for name, content, code in (
        ("a.tsv", "one\n", "bad-row"),
        ("a.tsv", "# nothing\n", "no-pairs"),
        ("a.conllu", "1\tword\n", "bad-row"),
        ("a.conllu", "\n", "no-sentences"),
    ):
        (tmp_path / name).write_text(content)
        with refused(code):
            atlas(model, documents, relations_file=tmp_path / name)


def test_thresholds_from_the_command_line(tokenizer: Tokenizer, documents: list[str], tmp_path: Path) -> None:
    assert Thresholds().changed(["same_lift = 7", "min_types=9"]) == Thresholds(same_lift=7.0, min_types=9)
    with refused("unknown-key"):
        Thresholds().changed(["same_lifts=7"])
    with refused("bad-config"):
        Thresholds().changed(["same_lift=much"])
    model = small_model(tokenizer)
    init_local_attention(model.model.encoder)
    model.save(tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("\n\n".join(plain_documents()))
    (tmp_path / "pairs.tsv").write_text("w60\tw61\n")
    result = commands.run(
        "atlas", tmp_path / "model", "--corpus", tmp_path / "corpus.txt", "--sentences", "45", "--json",
        "--set", "min_types=40", "--set", "min_documents=40", "--relations", tmp_path / "pairs.tsv",
    )  # fmt: skip
    content = json.loads(result.stdout)
    assert content["heads"][0]["names"] == ["previous"] and content["thresholds"]["min_types"] == 40
    assert content["unseen"]["pairs"] == "not enough text"
