"""Checkpoints as they are out there: configs of before 2020, stale labels, other heads, vocabularies elsewhere, and
fairseq's own files. What is assumed is said; what cannot be known, or would run code, is refused by name."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import types
from argparse import Namespace
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import bertworks
from bertworks.errors import BadConfig, BadWeights, NotFound, SaveFailed
from bertworks.model.fairseq import import_fairseq
from bertworks.model.folder import LoadedModel, WeightsMismatch, import_folder, load_folder
from bertworks.model.weights import Inert, load_pickle
from bertworks.text.fairseq import fairseq_tokenizer
from bertworks.text.tokenizer import Tokenizer
from bertworks.workbench import import_pickled
from commands import refusal, run, run_json
from parity import TOLERANCE, difference, our_outputs, their_outputs
from refusals import refused
from texts import NASTY
from zoo import FAMILIES, VOCAB, hf_folder, hf_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "the", "cat"]


@pytest.fixture
def copy_hf_folder(root: Path, tmp_path: Path) -> Any:
    def copy(family: str = "bert", head: str = "pretraining", **config: Any) -> Path:
        folder = Path(shutil.copytree(hf_folder(family, head, root), tmp_path / f"{family}-{head}"))
        return edit_config(folder, **config)

    return copy


def edit_config(folder: Path, **changes: Any) -> Path:
    """With these values; without the keys whose value is None."""
    config = json.loads((folder / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None or key not in changes}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


def edit_tensors(folder: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    tensors = load_file(folder / "model.safetensors") | changes
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "model.safetensors")
    return folder


def codes(loaded: LoadedModel | bertworks.Workbench) -> list[str]:
    return [remark.code for remark in loaded.remarks]


def matches(loaded: LoadedModel, family: str, head: str) -> bool:
    theirs = their_outputs(hf_model(family, head), family, head)
    return difference(our_outputs(loaded.model, family, head), theirs) <= TOLERANCE


# Without a model_type.


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_is_read_off_the_architectures(family: str, copy_hf_folder: Any) -> None:
    loaded = load_folder(copy_hf_folder(family, "base", model_type=None))
    assert codes(loaded) == ["family-assumed"] and family in str(loaded.remarks[0])
    assert "model_type" in str(loaded.remarks[0])
    assert loaded.model.config.family == family and matches(loaded, family, "base")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_is_read_off_the_names_of_tensors(family: str, copy_hf_folder: Any) -> None:
    loaded = load_folder(copy_hf_folder(family, "sequence", model_type=None, architectures=None))
    # XLM-RoBERTa and CamemBERT have RoBERTa's tensors, and its numbers.
    expected = "roberta" if family in ("xlm-roberta", "camembert") else family
    assert loaded.model.config.family == expected and codes(loaded) == ["family-assumed"]
    assert matches(loaded, family, "sequence")


def test_old_names_of_tensors_tell_the_family_too(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder(model_type=None, architectures=None)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {
        re.sub(r"LayerNorm\.(weight|bias)", lambda match: old[match[0]], name): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors")
    assert load_folder(folder).model.config.family == "bert"


def test_a_family_that_cannot_be_told_has_to_be_said(copy_hf_folder: Any, tmp_path: Path) -> None:
    """BERT's, RoBERTa's and ELECTRA's encoders have the same names, where no head gives them away."""
    folder = copy_hf_folder("bert", "base", model_type=None, architectures=None)
    with refused("missing-model-type", place="config.json", kind=BadConfig) as error:
        load_folder(folder)
    assert error.value.fields == ["model_type"] and "model_type" in error.value.cause
    assert "roberta" in error.value.cause and "--family bert" in error.value.remedy
    assert matches(load_folder(folder, family="bert"), "bert", "base")
    assert codes(bertworks.load(folder, family="bert")) == []
    answer = run_json("import", folder, "--family", "bert", "--out", tmp_path / "new")
    assert answer["family"] == "bert" and matches(load_folder(tmp_path / "new"), "bert", "base")
    with refused("unknown-family"):
        load_folder(folder, family="brt")
    with refused("other-family", place="config.json"):
        load_folder(tmp_path / "new", family="roberta")


# Labels.


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize(
    ("config", "labels"),
    [
        ({"id2label": {"0": "no", "1": "yes"}, "num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": {str(i): f"old {i}" for i in range(5)}}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 2}, ("a", "b", "c")),
        ({"id2label": None, "num_labels": 7}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": None}, ("LABEL_0", "LABEL_1", "LABEL_2")),
    ],
)
def test_a_head_knows_how_many_classes_it_has(
    head: str, config: dict[str, Any], labels: tuple[str, ...], copy_hf_folder: Any, tmp_path: Path
) -> None:
    folder = copy_hf_folder("bert", head, **config)
    loaded = load_folder(folder)
    assert loaded.model.config.heads.labels == labels
    assert codes(loaded) == ["labels-assumed"] and "3" in str(loaded.remarks[0])
    assert matches(loaded, "bert", head)
    bertworks.load(folder).save(tmp_path / "saved")
    assert codes(load_folder(tmp_path / "saved")) == []
    assert transformers.AutoConfig.from_pretrained(tmp_path / "saved").num_labels == 3


def test_labels_that_agree_are_no_remark(copy_hf_folder: Any) -> None:
    config = {"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 3}
    assert codes(load_folder(copy_hf_folder("bert", "sequence", **config))) == []
    # Without a head that has classes, nobody reads them.
    assert codes(load_folder(copy_hf_folder("bert", "masked", num_labels=9))) == []


def test_a_head_of_absurd_shape_is_refused_before_labels_are_made(copy_hf_folder: Any) -> None:
    folder = edit_tensors(copy_hf_folder("bert", "sequence"), {"classifier.weight": torch.zeros(2**40, 0)})
    with pytest.raises(WeightsMismatch) as error:
        load_folder(folder)
    assert "classifier.weight" in error.value.shapes


# Other heads, buffers, heads without weights.


def test_other_heads_and_buffers_are_left_out_and_named(copy_hf_folder: Any, tmp_path: Path) -> None:
    extra = {
        "crf.transitions": torch.zeros(3, 3),
        "bert.embeddings.age_ids": torch.zeros(4, dtype=torch.long),
    }
    folder = edit_tensors(copy_hf_folder("bert", "token"), extra)
    loaded = load_folder(folder)
    assert codes(loaded) == ["unused-weights"] and all(name in str(loaded.remarks[0]) for name in extra)
    assert matches(loaded, "bert", "token")
    for load in (load_folder, bertworks.load):
        with pytest.raises(WeightsMismatch) as error:
            load(folder, strict=True)  # type: ignore[operator]
        assert error.value.unexpected == set(extra)
    assert refusal("import", folder, "--strict", "--out", tmp_path / "new")["code"] == "weights-mismatch"
    assert run_json("import", folder, "--out", tmp_path / "new")["remarks"] == [str(loaded.remarks[0])]
    assert codes(load_folder(tmp_path / "new", strict=True)) == []


def test_what_an_encoder_has_beyond_its_config_is_refused(copy_hf_folder: Any) -> None:
    """To leave it out would change the numbers."""
    name = "bert.encoder.layer.0.adapter.weight"
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit_tensors(copy_hf_folder("bert", "token"), {name: torch.zeros(3, 3)}))
    assert error.value.unexpected == {name}


@pytest.mark.parametrize(
    ("family", "head", "missing", "lost", "unused"),
    [
        ("bert", "sequence", ["classifier.weight", "classifier.bias"], "sequence", []),
        ("bert", "sequence", ["classifier.bias"], "sequence", ["classifier.weight"]),
        ("bert", "sequence", ["bert.pooler.dense.bias"], "sequence", ["bert.pooler.dense.weight", "classifier.weight"]),
        ("bert", "masked", ["cls.predictions.transform.dense.weight"], "lm", ["cls.predictions.bias"]),
        ("roberta", "sequence", ["classifier.out_proj.bias"], "sequence", ["classifier.dense.weight"]),
        ("electra", "sequence", ["classifier.out_proj.bias"], "sequence", ["classifier.dense.weight"]),
        ("xlnet", "sequence", ["logits_proj.bias"], "sequence", ["logits_proj.weight"]),
    ],
)
def test_heads_without_weights_are_said_and_left_out(
    family: str, head: str, missing: list[str], lost: str, unused: list[str], copy_hf_folder: Any
) -> None:
    folder = edit_tensors(copy_hf_folder(family, head), dict.fromkeys(missing))
    loaded = load_folder(folder)
    assert lost not in loaded.model.heads
    assert codes(loaded) == ["incomplete-head"] + ["unused-weights"] * bool(unused)
    assert lost in str(loaded.remarks[0]) and all(name in str(loaded.remarks[-1]) for name in unused)
    states = our_outputs(loaded.model, family, "base")[:1]
    with torch.no_grad():
        expected = their_outputs(hf_model(family, head).base_model, family, "base")[:1]
    assert difference(states, expected) <= TOLERANCE
    with pytest.raises(WeightsMismatch) as error:
        load_folder(folder, strict=True)
    assert error.value.missing >= set(missing) or error.value.unexpected >= set(unused)


def test_an_incomplete_encoder_is_refused(copy_hf_folder: Any) -> None:
    """With the names that are there instead."""
    name = "bert.encoder.layer.1.output.dense.weight"
    other = f"module.{name}"
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit_tensors(copy_hf_folder("bert", "token"), {name: None, other: torch.zeros(2)}))
    assert error.value.missing == {name} and error.value.unexpected == {other}


# A vocabulary elsewhere; its case.


@pytest.mark.parametrize("name", ["vocab.txt", "bert-base-uncased-vocab.txt", ""])
def test_a_vocabulary_in_another_folder(name: str, copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder("bert", "base")
    (tmp_path / "elsewhere").mkdir()
    vocab = tmp_path / "elsewhere" / (name or "vocab.txt")
    vocab.write_text("\n".join(WORDS) + "\n")
    vocab = vocab if name else vocab.parent
    bench = bertworks.load(folder, vocab=vocab)
    assert bench.tokenizer.pieces("the cat").pieces == ["[CLS]", "the", "cat", "[SEP]"]
    run("import", folder, "--vocab", vocab, "--out", tmp_path / "new")
    assert bertworks.load(tmp_path / "new").tokenizer.fingerprint == bench.tokenizer.fingerprint


def test_vocabularies_elsewhere_that_cannot_be(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder("bert", "base")
    (tmp_path / "words.csv").write_text("a")
    with refused("not-a-vocabulary", place="words.csv", kind=BadConfig):
        bertworks.load(folder, vocab=tmp_path / "words.csv")
    for name in ("vocab.txt", "x" * 300, "a\0b"):
        with refused("not-found", kind=NotFound):
            bertworks.load(folder, vocab=tmp_path / name)
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, *map(str, range(VOCAB))]))
    with refused("vocabulary-too-large", kind=BadConfig):
        bertworks.load(folder, vocab=tmp_path / "vocab.txt")


@pytest.mark.parametrize(("word", "keeps_case"), [("The", True), ("the", False)])
def test_a_guessed_case_is_said_once(word: str, keeps_case: bool, copy_hf_folder: Any, tmp_path: Path) -> None:
    """transformers lower-cases for BERT, whatever the vocabulary is."""
    folder = copy_hf_folder("bert", "base")
    (folder / "vocab.txt").write_text("\n".join([*WORDS[:5], word]) + "\n")
    bench = bertworks.load(folder)
    assert codes(bench) == ["case-assumed"] and "do_lower_case" in str(bench.remarks[0])
    assert "do_lower_case" in run("tokenize", folder, word).stderr
    assert bench.tokenizer.pieces(word.upper()).ids[1] == (1 if keeps_case else 5)
    theirs = transformers.BertTokenizer.from_pretrained(folder)(word)["input_ids"][1]
    assert (theirs != bench.tokenizer.pieces(word).ids[1]) is keeps_case
    bench.save(tmp_path / "saved")
    assert codes(bertworks.load(tmp_path / "saved")) == []
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert codes(bertworks.load(folder)) == []


# fairseq's own checkpoints.

SYMBOLS = [chr(33 + i) for i in range(94)]  # with the special tokens as many as the models have
OPTIONS = {
    "arch": "roberta_base",
    "activation_fn": "gelu",
    "pooler_activation_fn": "tanh",
    "encoder_attention_heads": 4,
    "encoder_embed_dim": 24,
    "encoder_ffn_embed_dim": 40,
    "encoder_layers": 3,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "max_positions": 30,
    "data": "/data/books",
}


@contextmanager
def stub_classes(*names: str) -> Iterator[list[type]]:
    """Classes of packages that are not installed, importable while a file is pickled."""
    modules: dict[str, types.ModuleType] = {}
    classes = []
    for full_name in names:
        module, _, name = full_name.rpartition(".")
        classes.append(type(name, (), {"__module__": module}))
        for package in accumulate(module.split("."), "{}.{}".format):
            modules.setdefault(package, types.ModuleType(package))
        setattr(modules[module], name, classes[-1])
    sys.modules.update(modules)
    try:
        yield classes
    finally:
        for module in modules:
            del sys.modules[module]


def with_state(kind: type, **state: Any) -> Any:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


def roberta(head: str) -> Any:
    """A model of transformers as fairseq's are: no segments, padding 1."""
    sizes = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0}
    model = hf_model("roberta", head, **sizes)
    with torch.no_grad():
        model.roberta.embeddings.token_type_embeddings.weight.zero_()
    return model


def fairseq_tensors(model: Any, root: str, norm: str, *, packed: bool = False) -> dict[str, torch.Tensor]:
    """The tensors of a RoBERTa under fairseq's names."""
    names = {
        "roberta.embeddings.word_embeddings": f"{root}.sentence_encoder.embed_tokens",
        "roberta.embeddings.position_embeddings": f"{root}.sentence_encoder.embed_positions",
        "roberta.embeddings.LayerNorm": f"{root}.sentence_encoder.{norm}",
        "lm_head.decoder": f"{root}.lm_head",
        "lm_head": f"{root}.lm_head",
        "classifier": "classification_heads.mnli",
    }
    layer_names = {
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
    }
    layers = range(model.config.num_hidden_layers)
    for i in layers:
        for theirs, name in layer_names.items():
            names[f"roberta.encoder.layer.{i}.{theirs}"] = f"{root}.sentence_encoder.layers.{i}.{name}"
    tensors = OrderedDict()
    for name, tensor in model.state_dict().items():
        prefix = max((old for old in names if name.startswith(old + ".")), key=len, default=None)
        if prefix is not None:
            tensors[names[prefix] + name.removeprefix(prefix)] = tensor.clone()
    tensors[f"{root}.sentence_encoder.version"] = torch.tensor([3.0])
    tensors[f"{root}.sentence_encoder.embed_positions._float_tensor"] = torch.zeros(1)
    for i in layers if packed else ():
        attention = f"{root}.sentence_encoder.layers.{i}.self_attn."
        for leaf in ("weight", "bias"):
            parts = [tensors.pop(f"{attention}{part}_proj.{leaf}") for part in "qkv"]
            tensors[f"{attention}in_proj_{leaf}"] = torch.cat(parts)
    return tensors


def save_old(path: Path, tensors: Any, options: dict[str, Any] | None = None) -> None:
    """As before version 0.10: a Namespace, meters, numbers of numpy; and as torch wrote files before 1.6."""
    with stub_classes("fairseq.meters.AverageMeter", "fairseq.meters.TimeMeter") as (average, time):
        meters = OrderedDict(train_loss=with_state(average, avg=2.5), wall=with_state(time, n=3))
        extra = {"train_meters": meters, "best": np.float64(2.5), "epoch": 3}
        content = {"args": Namespace(**(options or OPTIONS)), "model": tensors, "extra_state": extra}
        torch.save(content, path, _use_new_zipfile_serialization=False)


def save_with_namespace(path: Path, tensors: Any) -> None:
    """As version 0.10 and later: a plain cfg with a Namespace in it."""
    cfg = {"common": {"seed": 1}, "model": Namespace(**OPTIONS), "task": {"_name": "masked_lm"}}
    torch.save({"args": None, "cfg": cfg, "model": tensors, "last_optimizer_state": None}, path)


def save_with_omegaconf(path: Path, tensors: Any) -> None:
    """As a cfg of OmegaConf, with its nodes, its metadata, a dataclass and an enumeration of fairseq."""
    names = (
        *("omegaconf.dictconfig.DictConfig", "omegaconf.nodes.AnyNode", "omegaconf.base.ContainerMetadata"),
        *("fairseq.dataclass.configs.CommonConfig", "fairseq.dataclass.constants.DDP_BACKEND_CHOICES"),
    )
    with stub_classes(*names) as (dict_config, node, metadata, common, choices):
        choices.__reduce__ = lambda self: (choices, ("c10d",))  # type: ignore[attr-defined]
        choices.__new__ = lambda cls, *value: object.__new__(cls)  # type: ignore[method-assign, assignment]
        choices.__init__ = lambda self, *value: None  # type: ignore[misc]

        def container(**values: Any) -> Any:
            cache = defaultdict(dict, now={"%Y": "2021"})
            details = with_state(metadata, ref_type=Any, object_type=dict, resolver_cache=cache)
            made = with_state(dict_config, _metadata=details, _parent=None)
            content = {}
            for key, value in values.items():
                is_container = type(value) is dict_config
                content[key] = value if is_container else with_state(node, _val=value, _parent=made)
            made._content = content
            return made

        backend = choices.__new__(choices)
        shared = container(config=with_state(common, seed=1), backend=backend)
        cfg = container(common=shared, model=container(**OPTIONS))
        torch.save({"args": None, "cfg": cfg, "model": tensors}, path)


LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "old": (save_old, {"root": "decoder", "norm": "emb_layer_norm"}),
    "very old": (save_old, {"root": "decoder", "norm": "emb_layer_norm", "packed": True}),
    "namespace": (save_with_namespace, {"root": "encoder", "norm": "layernorm_embedding"}),
    "omegaconf": (save_with_omegaconf, {"root": "encoder", "norm": "layernorm_embedding"}),
}


def fairseq_folder(folder: Path, model: Any, layout: str = "old", name: str = "model.pt") -> Path:
    folder.mkdir(exist_ok=True)
    save, names = LAYOUTS[layout]
    save(folder / name, fairseq_tensors(model, **names))
    # GPT-2's ids of the pieces, the dictionary in another order, which gives the model's ids.
    (folder / "encoder.json").write_text(json.dumps({symbol: i for i, symbol in enumerate(SYMBOLS)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n")
    (folder / "dict.txt").write_text("".join(f"{i} {1000 - i}\n" for i in reversed(range(len(SYMBOLS)))))
    return folder


def nothing_stays_allowed() -> bool:
    """Of torch's own additions there may be some."""
    allowed = torch.serialization.get_safe_globals()
    return not any(isinstance(entry, tuple) and entry[0].__module__.startswith("bertworks") for entry in allowed)


def outputs_agree(ours: bertworks.Workbench, theirs: Any, head: str) -> bool:
    ids = torch.randint(4, VOCAB - 1, (1, 20), generator=torch.Generator().manual_seed(0))
    pieces = types.SimpleNamespace(ids=ids[0].tolist(), segments=[0] * 20)
    states = ours._run([pieces])  # type: ignore[list-item]
    with torch.no_grad():
        expected = theirs(ids).logits[0]
        logits = ours.model.read(head, states.last[:1] if head == "sequence" else states.last)
    return difference([logits.view(expected.shape)], [expected]) <= TOLERANCE


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("head", "ours"), [("masked", "lm"), ("sequence", "sequence")])
def test_checkpoints_of_fairseq(layout: str, head: str, ours: str, tmp_path: Path) -> None:
    model = roberta(head)
    folder = fairseq_folder(tmp_path / "theirs", model, layout, "checkpoint_best.pt" if layout == "old" else "model.pt")
    with refused("pickled-weights", place=str(folder), kind=BadWeights):
        bertworks.load(folder)
    bench = import_pickled(folder)
    assert codes(bench) == (["labels-assumed"] if head == "sequence" else [])
    assert list(bench.model.heads) == [ours] and outputs_agree(bench, model, ours)
    assert bench.config.family == "roberta" and bench.limit == 30
    assert nothing_stays_allowed()
    answer = run_json("import", folder, "--out", tmp_path / "new")
    assert answer["heads"] == [ours]
    auto = {"lm": transformers.AutoModelForMaskedLM, "sequence": transformers.AutoModelForSequenceClassification}[ours]
    assert outputs_agree(bertworks.load(tmp_path / "new"), auto.from_pretrained(tmp_path / "new").eval(), ours)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    assert tokenizer("~!", "a")["input_ids"] == bench.tokenizer.pieces("~!", "a").ids == [0, 4, 97, 2, 2, 33, 2]
    assert bench.tokenizer.id_of("mask") == VOCAB - 1 and tokenizer.mask_token_id == VOCAB - 1


def test_several_heads_of_fairseq_are_left_out_and_named(tmp_path: Path) -> None:
    model = roberta("sequence")
    tensors = fairseq_tensors(model, "encoder", "layernorm_embedding")
    tensors |= {name.replace("mnli", "rte"): tensor for name, tensor in tensors.items() if "mnli" in name}
    save_with_namespace(tmp_path / "model.pt", tensors)
    loaded = import_fairseq(tmp_path / "model.pt")
    assert codes(loaded) == ["unused-weights"] and "classification_heads.rte" in str(loaded.remarks[0])
    with pytest.raises(WeightsMismatch):
        import_fairseq(tmp_path / "model.pt", strict=True)


@pytest.mark.parametrize(
    ("changes", "code", "mentioned"),
    [
        ({"encoder_layers": 2}, "weights-mismatch", "layer.2"),
        ({"encoder_embed_dim": 48}, "weights-mismatch", "48"),
        ({"encoder_attention_heads": None}, "bad-config", "encoder_attention_heads"),
        ({"activation_fn": "relu"}, "unsupported", "activation_fn"),
    ],
)
def test_options_of_fairseq_that_do_not_fit(changes: dict[str, Any], code: str, mentioned: str, tmp_path: Path) -> None:
    tensors = fairseq_tensors(roberta("masked"), "encoder", "layernorm_embedding")
    save_old(tmp_path / "model.pt", tensors, OPTIONS | changes)
    with refused(code) as error:
        import_fairseq(tmp_path / "model.pt")
    assert mentioned in error.value.cause


def test_files_that_are_not_of_fairseq(tmp_path: Path) -> None:
    for content in ([1], {"a": 1}, {"model": {"w": torch.zeros(2)}}, {"model": {}, "args": Namespace(**OPTIONS)}):
        torch.save(content, tmp_path / "model.pt")
        with refused("not-fairseq", place="model.pt", kind=BadWeights):
            import_fairseq(tmp_path / "model.pt")
    tensors = fairseq_tensors(roberta("masked"), "encoder", "layernorm_embedding")
    prefix = "encoder.sentence_encoder."
    for name, tensor, code in (
        ("layer_norm.weight", torch.zeros(24), "unsupported"),
        ("emb_layer_norm.weight", torch.zeros(24), "stored-twice"),
        ("embed_tokens.weight", torch.tensor(1.0), "not-fairseq"),
        ("layers.0.self_attn.in_proj_weight", torch.tensor(1.0), "weights-mismatch"),
        ("layers.0.adapter.weight", torch.zeros(2, 2), "weights-mismatch"),
    ):
        save_old(tmp_path / "model.pt", tensors | {prefix + name: tensor})
        with refused(code):
            import_fairseq(tmp_path / "model.pt")


def test_which_checkpoint_of_several(tmp_path: Path) -> None:
    tensors = fairseq_tensors(roberta("masked"), "encoder", "layernorm_embedding")
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        save_old(tmp_path / name, tensors)
    with refused("several-checkpoints", place=str(tmp_path)) as error:
        import_pickled(tmp_path)
    assert "checkpoint1.pt" in error.value.cause
    (tmp_path / "checkpoint2.pt").unlink()
    assert list(import_pickled(tmp_path).model.heads) == ["lm"]


def test_bpe_files_of_fairseq_elsewhere(tmp_path: Path) -> None:
    folder = fairseq_folder(tmp_path / "theirs", roberta("masked"))
    (tmp_path / "gpt2").mkdir()
    for name in ("encoder.json", "vocab.bpe"):
        (folder / name).rename(tmp_path / "gpt2" / name)
    with refused("missing-file", place=str(folder), kind=NotFound) as error:
        import_pickled(folder)
    assert "--vocab" in error.value.remedy
    for vocab in (tmp_path / "gpt2", tmp_path / "gpt2" / "encoder.json"):
        assert import_pickled(folder, vocab=vocab).tokenizer.pieces("~!").ids == [0, 4, 97, 2]
    (folder / "dict.txt").write_text("no-count\n")
    with refused("bad-line", place="dict.txt"):
        import_pickled(folder, vocab=tmp_path / "gpt2")


def test_the_real_roberta_by_fairseqs_files(shared: Path, tmp_path: Path) -> None:
    """GPT-2's files and a dict.txt give the ids of RoBERTa's own vocabulary."""
    shutil.copy(shared / "vocab" / "gpt2" / "vocab.json", tmp_path / "encoder.json")
    shutil.copy(shared / "vocab" / "gpt2" / "merges.txt", tmp_path / "vocab.bpe")
    gpt2 = json.loads((tmp_path / "encoder.json").read_text())
    ids = json.loads((shared / "vocab" / "roberta" / "vocab.json").read_text())
    pieces = sorted(ids, key=ids.__getitem__)[4:-1]
    (tmp_path / "dict.txt").write_text("".join(f"{gpt2.get(piece, piece)} 1\n" for piece in pieces))
    ours = fairseq_tokenizer(tmp_path)
    theirs = transformers.RobertaTokenizer.from_pretrained(shared / "vocab" / "roberta")
    assert ours is not None and ours.vocab_size == 50265
    for text in NASTY:
        assert ours.pieces(text, "a pair").ids == theirs(text, "a pair")["input_ids"]
    # RoBERTa's own vocabulary has the model's ids already.
    again = fairseq_tokenizer_with(tmp_path, shared / "vocab" / "roberta")
    assert again.pieces("a <mask> b").ids == ours.pieces("a <mask> b").ids
    with (tmp_path / "dict.txt").open("a") as file:
        file.write("more 1\n")
    with refused("other-vocabulary", place="dict.txt", kind=BadConfig):
        fairseq_tokenizer_with(tmp_path, shared / "vocab" / "roberta")


def fairseq_tokenizer_with(folder: Path, vocab: Path) -> Tokenizer:
    tokenizer = fairseq_tokenizer(folder, vocab)
    assert tokenizer is not None
    return tokenizer


class Poison:
    """Leaves a trace if it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin"])
def test_a_malicious_pickle_is_refused_by_what_it_names(
    name: str, zipped: bool, copy_hf_folder: Any, tmp_path: Path
) -> None:
    folder = copy_hf_folder("bert", "base")
    if name == "model.pt":
        (folder / "config.json").unlink()
    content = {"args": Namespace(**OPTIONS), "model": {"w": torch.zeros(2)}, "extra_state": Poison(tmp_path / "ran")}
    torch.save(content, folder / name, _use_new_zipfile_serialization=zipped)
    with refused("unsafe-pickle", place=name, kind=BadWeights) as error:
        import_pickled(folder)
    assert f"{os.name}.mkdir" in error.value.cause
    assert "weights_only" not in str(error.value) and "safetensors" in error.value.remedy
    assert not (tmp_path / "ran").exists()
    assert nothing_stays_allowed()


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_of_another_library_is_refused_by_what_it_names(
    protocol: int, copy_hf_folder: Any, tmp_path: Path
) -> None:
    folder = copy_hf_folder("bert", "base")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Poison(tmp_path / "ran")}, protocol=protocol))
    with refused("unsafe-pickle", place="pytorch_model.bin") as error:
        import_folder(folder)
    assert f"{os.name}.mkdir" in error.value.cause and not (tmp_path / "ran").exists()


def test_known_names_stay_inert(tmp_path: Path) -> None:
    """A file may name a known class and give it arguments and a state: neither is used for anything."""
    state = {"__class__": int, "__dict__": 5, "__setstate__": 7, "state": 8}
    with stub_classes("fairseq.meters.AverageMeter") as (meter,):
        meter.__reduce__ = lambda self: (meter, ("x", 2), state)  # type: ignore[attr-defined]
        meter.__init__ = lambda self, *arguments: None  # type: ignore[misc]
        torch.save([meter()], tmp_path / "model.pt")
    names = {"fairseq.meters.AverageMeter", "builtins.int"}
    (made,) = load_pickle(tmp_path / "model.pt", names.__contains__)
    assert type(made) is Inert and vars(made).keys() == {"arguments", "state"} and made.arguments == ("x", 2)
    assert made.state.keys() == state.keys() and made.state["__class__"] is Inert
    with refused("unsafe-pickle") as error:
        load_pickle(tmp_path / "model.pt", "builtins.int".__eq__)
    assert "fairseq.meters.AverageMeter" in error.value.cause and "builtins.int" not in error.value.cause


def test_torchs_advice_is_not_passed_on(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder("bert", "base")
    torch.save({"w": torch.zeros(2)}, folder / "pytorch_model.bin")
    content = (folder / "pytorch_model.bin").read_bytes()
    for damaged in (content[:-50], b"text", content.replace(b"_rebuild_tensor_v2", b"_rebuild_nothing_2")):
        (folder / "pytorch_model.bin").write_bytes(damaged)
        with refused("unreadable-pickle", place="pytorch_model.bin") as error:
            import_folder(folder)
        assert "weights_only" not in str(error.value)


# Paths.


def test_weights_that_may_not_be_read(copy_hf_folder: Any) -> None:
    """As root, permissions do not apply: another user opens the files, in a folder that is open to all."""
    source = copy_hf_folder("bert", "base")
    torch.save({}, source / "pytorch_model.bin")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(source, Path(name) / "m"))
        for path in (Path(name), folder, *folder.iterdir()):
            path.chmod(0o755)
        for path in (folder / "model.safetensors", folder / "pytorch_model.bin"):
            path.chmod(0)
        as_root = os.geteuid() == 0
        if as_root:
            os.seteuid(65534)
        try:
            for load, file in ((load_folder, "model.safetensors"), (import_folder, "pytorch_model.bin")):
                with refused("unreadable", place=file, kind=NotFound):
                    load(folder)
        finally:
            if as_root:
                os.seteuid(0)


def test_a_name_that_is_too_long(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder("bert", "base")
    answer = refusal("import", folder, "--out", tmp_path / ("x" * 300))
    assert answer["code"] == "save-failed"
    with refused("save-failed", kind=SaveFailed):
        bertworks.load(folder).save(tmp_path / ("x" * 300))
