"""A model is a Hugging Face folder: old ones are understood, hostile ones refused, and saving cannot lose what was
there."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import bertworks
from bertworks.errors import BadConfig, BadWeights, NotFound, SaveFailed, Unsupported
from bertworks.model.folder import WeightsMismatch, import_folder, load_folder
from bertworks.model.hf_config import from_hf
from bertworks.model.hf_names import HF_NAMES
from bertworks.model.layout import Tokens
from bertworks.model.weights import read_pickle
from bertworks.presets import preset
from bertworks.workbench import import_pickled
from parity import TOLERANCE, difference, our_outputs, their_outputs
from refusals import refused
from zoo import FAMILIES, hf_folder, hf_model

TINY = {"vocab_size": 60, "hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 2}


@pytest.fixture
def copy_hf_folder(root: Path, tmp_path: Path) -> Any:
    def copy(family: str = "bert", head: str = "pretraining") -> Path:
        return Path(shutil.copytree(hf_folder(family, head, root), tmp_path / f"{family}-{head}"))

    return copy


def rename_tensors(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {change(name): tensor for name, tensor in tensors.items()}
    save_file({name: tensor for name, tensor in renamed.items() if name}, folder / "model.safetensors")


# Old tensor names.


def assert_matches_transformers(folder: Path, head: str = "pretraining", family: str = "bert") -> None:
    ours = our_outputs(load_folder(folder).model, family, head)
    assert difference(ours, their_outputs(hf_model(family, head), family, head)) <= TOLERANCE


def test_gamma_and_beta(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    rename_tensors(
        folder,
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
    )
    assert any("gamma" in name for name in load_file(folder / "model.safetensors"))
    assert_matches_transformers(folder)


def test_without_prefix(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    rename_tensors(folder, lambda name: name.removeprefix("bert."))
    assert_matches_transformers(folder)


def test_base_with_prefix(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder(head="base")
    rename_tensors(folder, lambda name: f"bert.{name}")
    assert_matches_transformers(folder, "base")


@pytest.mark.parametrize("family", FAMILIES)
def test_headless_with_and_without_prefix(family: str, copy_hf_folder: Any) -> None:
    folder = copy_hf_folder(family, "base")
    prefix = HF_NAMES[family].prefix
    rename_tensors(folder, lambda name: f"{prefix}.{name}")
    assert_matches_transformers(folder, "base", family)


def test_copies_of_tied_tensors(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    tensors["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(tensors, folder / "model.safetensors")
    assert_matches_transformers(folder)


def test_an_untied_head_is_refused(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    with refused("untied-weights", place=str(folder)) as error:
        load_folder(folder)
    assert "cls.predictions.decoder.weight" in error.value.cause


def test_heads_are_detected_by_their_weights(copy_hf_folder: Any) -> None:
    """bert-base-uncased on the Hub says BertForMaskedLM and holds everything: nothing is lost."""
    folder = copy_hf_folder()
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    assert_matches_transformers(folder)
    config.pop("architectures")
    (folder / "config.json").write_text(json.dumps(config))
    assert_matches_transformers(folder)


@pytest.mark.parametrize("head", ["sequence", "token", "choice"])
def test_heads_with_equal_tensor_names_are_told_apart(head: str, copy_hf_folder: Any) -> None:
    assert list(load_folder(copy_hf_folder(head=head)).model.heads) == [head]


def test_half_precision_is_read_as_float32(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder(head="base")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, folder / "model.safetensors")
    model = load_folder(folder).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert difference(our_outputs(model, "bert", "base"), their_outputs(hf_model("bert"), "bert", "base")) < 1e-2


def test_sharded_weights(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, folder / f"part-{i}.safetensors")
        weight_map |= dict.fromkeys(part, f"part-{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_matches_transformers(folder)
    weight_map["x"] = "../part-0.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with refused("outside-folder", place="model.safetensors.index.json") as error:
        load_folder(folder)
    assert "../part-0.safetensors" in error.value.cause


def test_pickled_weights_are_imported(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with refused("pickled-weights", place=str(folder)) as error:
        load_folder(folder)
    assert f"bertworks import {folder}" in error.value.remedy
    import_pickled(folder).save(tmp_path / "imported")
    assert_matches_transformers(tmp_path / "imported")
    assert not (tmp_path / "imported" / "pytorch_model.bin").exists()


# What Hugging Face cannot express.


@pytest.mark.parametrize(
    ("name", "changes", "heads"),
    [
        ("albert-mini", {"sharing": "attention"}, ["lm"]),
        ("albert-mini", {"sharing": "ffn"}, []),
        ("albert-mini", {"sharing": "none"}, ["lm", "pair"]),
        ("bert-mini", {"attention": "additive"}, ["sequence"]),
        ("bert-mini", {"positions": "sinusoidal"}, ["lm"]),
        ("distilbert-mini", {"causal": True}, ["lm"]),
        ("roberta-mini", {}, ["pair"]),
        ("bert-mini", {}, ["lm", "token"]),
        ("bert-mini", {"norm_order": "pre"}, []),
        ("electra-mini", {}, ["lm", "replaced"]),
        ("bert-mini", {"labels": ("a", "b", "c")}, ["span"]),
    ],
)
def test_models_that_transformers_cannot_express_round_trip_here(
    name: str, changes: dict[str, Any], heads: list[str], tmp_path: Path
) -> None:
    bench = bertworks.new(name, heads=heads, **TINY, **changes)
    bench.save(tmp_path / "m")
    loaded = bertworks.load(tmp_path / "m")
    assert loaded.config == bench.config and list(loaded.model.heads) == list(bench.model.heads)
    state = loaded.model.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in bench.model.state_dict().items())
    assert len(state) > 5
    with pytest.raises((ValueError, KeyError), match="bertworks"):
        transformers.AutoModel.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize(
    "name",
    [
        *("bert-mini", "roberta-mini", "xlm-roberta-mini", "camembert-mini", "albert-mini", "electra-mini"),
        *("xlnet-mini", "distilbert-mini", "gpt-mini"),
    ],
)
def test_new_models_open_in_transformers(name: str, tmp_path: Path) -> None:
    bench = bertworks.new(name, **TINY, dropout=0.0, ffn_dropout=0.3)
    bench.save(tmp_path / "m")
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids = torch.tensor([7, 8, 9, 10])
    with torch.no_grad():
        ours = bench.model.encoder(Tokens.ragged(ids, [4])).last
        assert torch.allclose(theirs.eval()(ids[None]).last_hidden_state[0], ours, atol=1e-5)
    assert (
        bertworks.load(tmp_path / "m").config == bench.config
    )  # also dropout rates that transformers has no field for


def test_causal_bert_is_a_decoder_in_transformers(tmp_path: Path) -> None:
    bertworks.new("bert-mini", heads=["lm"], **TINY, causal=True).save(tmp_path / "m")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "m")
    assert config.is_decoder and config.architectures == ["BertLMHeadModel"]


def test_unknown_config_fields_are_kept(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder(head="sequence")
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": "regression", "my_note": "kept"}
    config["id2label"] = {"0": "坏", "1": "好", "2": "?"}
    (folder / "config.json").write_text(json.dumps(config))
    bench = bertworks.load(folder)
    assert bench.config.heads.labels == ("坏", "好", "?")
    bench.save(tmp_path / "m")
    saved = json.loads((tmp_path / "m" / "config.json").read_text())
    assert saved["my_note"] == "kept" and saved["id2label"] == config["id2label"]


# Bad folders.


def edit_config(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_missing_files_are_named(tmp_path: Path, copy_hf_folder: Any) -> None:
    with refused("missing-file", place=str(tmp_path), kind=NotFound) as error:
        bertworks.load(tmp_path)
    assert "config.json" in error.value.cause
    with refused("not-found", place="./nowhere"):
        bertworks.load("./nowhere")
    folder = copy_hf_folder()
    (folder / "model.safetensors").unlink()
    with refused("missing-file", place=str(folder), kind=NotFound) as error:
        bertworks.load(folder)
    assert "model.safetensors" in error.value.cause
    with refused("not-a-folder", place=str(folder / "config.json"), kind=NotFound):
        bertworks.load(folder / "config.json")


def test_weights_of_other_shapes_are_refused(copy_hf_folder: Any) -> None:
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit_config(copy_hf_folder(), hidden_size=36))
    assert error.value.code == "weights-mismatch"
    assert error.value.shapes["bert.embeddings.LayerNorm.bias"] == (
        (24,),
        (36,),
    )
    assert not error.value.missing | error.value.unexpected | error.value.not_float
    assert all(part in error.value.cause for part in ("bert.embeddings.LayerNorm.bias", "[24]", "[36]"))
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit_config(copy_hf_folder("bert", "base"), num_hidden_layers=4))
    assert error.value.missing and all("encoder.layer.3." in name for name in error.value.missing)
    assert "encoder.layer.3." in error.value.cause
    assert not error.value.unexpected
    assert not error.value.shapes
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit_config(copy_hf_folder("bert", "masked"), num_hidden_layers=2))
    assert error.value.unexpected
    assert all("encoder.layer.2." in name for name in error.value.unexpected)
    assert "encoder.layer.2." in error.value.cause
    assert not error.value.missing
    assert not error.value.shapes


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 10**9},
        {"num_attention_heads": 0},
        {"num_attention_heads": 7},
        {"num_hidden_layers": 10**6},
        {"num_hidden_layers": "three"},
        {"hidden_size": None},
        {"vocab_size": -5},
        {"id2label": ["a", "b"]},
        {"layer_norm_eps": "nan"},
    ],
)
def test_hostile_configs_are_refused_before_allocation(copy_hf_folder: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        load_folder(edit_config(copy_hf_folder(), **changes))


def test_a_huge_config_is_refused_by_the_safetensors_header(copy_hf_folder: Any) -> None:
    with pytest.raises(WeightsMismatch):
        load_folder(
            edit_config(copy_hf_folder(), hidden_size=131072, intermediate_size=131072, num_attention_heads=1024)
        )


@pytest.mark.parametrize("changes", [{"model_type": "llama"}, {"hidden_act": "mish"}, {"tie_word_embeddings": False}])
def test_unsupported_configs_are_refused(copy_hf_folder: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        load_folder(edit_config(copy_hf_folder(), **changes))


def test_remote_code_is_ignored_and_reported(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = edit_config(copy_hf_folder("bert", "base"), auto_map={"AutoModel": "evil.Model"}, trust_remote_code=True)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    bench = bertworks.load(folder)
    assert [remark.code for remark in bench.remarks] == ["remote-code-ignored"]
    assert "auto_map" in str(bench.remarks[0])
    assert not (tmp_path / "ran").exists()
    bench.save(tmp_path / "m")
    assert "auto_map" not in json.loads((tmp_path / "m" / "config.json").read_text())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"model_type": ' + "[" * 100_000, "\ud800".encode("utf-16", "surrogatepass")]
)
def test_malformed_configs_are_refused(copy_hf_folder: Any, text: str | bytes) -> None:
    folder = copy_hf_folder()
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((BadConfig, Unsupported)):
        load_folder(folder)


def safetensors_header(entries: dict[str, Any], size: int | None = None) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text


HOSTILE = {
    "empty": b"",
    "one byte": b"x",
    "header length 2^63": safetensors_header({}, 2**63),
    "header length beyond the file": safetensors_header({}, 10**6),
    "header over the library's limit": safetensors_header({}, 100_000_001),
    "not json": struct.pack("<Q", 3) + b"abc",
    "offsets beyond the file": safetensors_header({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}),
    "shape that overflows": safetensors_header({"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]}})
    + bytes(16),
    "a hole": safetensors_header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}) + bytes(8),
    "overlap": safetensors_header(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        }
    )
    + bytes(12),
    "unknown dtype": safetensors_header({"w": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}) + bytes(4),
    "integers": safetensors_header(
        {"embeddings.word_embeddings.weight": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}}
    )
    + bytes(4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors(copy_hf_folder: Any, name: str) -> None:
    folder = copy_hf_folder()
    (folder / "model.safetensors").write_bytes(HOSTILE[name])
    with pytest.raises(BadWeights):
        load_folder(folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, "half", -1])
def test_truncated_safetensors(copy_hf_folder: Any, keep: int | str) -> None:
    folder = copy_hf_folder()
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2 if keep == "half" else keep])  # type: ignore[misc]
    with refused("damaged-file", place="model.safetensors", kind=BadWeights):
        load_folder(folder)


class Poison:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def test_a_malicious_pickle_is_never_executed(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder()
    trace = tmp_path / "ran"
    malicious = pickle.dumps({"w": Poison(trace)})
    (folder / "model.safetensors").write_bytes(malicious)
    with refused("pickled-weights", place="model.safetensors"):
        load_folder(folder)
    (folder / "model.safetensors").unlink()
    for name, content in (("raw", malicious), ("zip", None)):
        if content is None:
            torch.save({"w": Poison(trace)}, folder / "pytorch_model.bin")
        else:
            (folder / "pytorch_model.bin").write_bytes(content)
        with refused("unsafe-pickle", place="pytorch_model.bin") as error:
            import_folder(folder)
        assert "pathlib.Path" in error.value.cause
        assert not trace.exists(), name
    torch.save([1, 2], folder / "pytorch_model.bin")
    with refused("not-a-state-dict", place="pytorch_model.bin"):
        read_pickle(folder / "pytorch_model.bin")


def test_an_unused_pooler_is_reported(copy_hf_folder: Any) -> None:
    """Old files of RobertaForSequenceClassification have a pooler beside their classifier."""
    folder = copy_hf_folder("roberta", "sequence")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"roberta.pooler.dense.weight": torch.zeros(24, 24), "roberta.pooler.dense.bias": torch.zeros(24)}
    save_file(tensors, folder / "model.safetensors")
    assert_matches_transformers(folder, "sequence", "roberta")
    (remark,) = load_folder(folder).remarks
    assert remark.code == "unused-weights"
    assert all(f"roberta.pooler.dense.{part}" in str(remark) for part in ("weight", "bias"))


def test_two_names_for_one_tensor(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    with refused("stored-twice", place=str(folder)) as error:
        load_folder(folder)
    assert "embeddings.word_embeddings.weight" in error.value.cause


@pytest.mark.parametrize(
    "changes",
    [
        {"num_labels": "abc", "id2label": None},
        {"num_labels": 10**9, "id2label": None},
        {"architectures": 5},
        {"architectures": [["x"]]},
        {"model_type": ["bert"]},
        {"model_type": {}},
        {"hidden_act": ["gelu"]},
        {"is_decoder": "perhaps"},
        {"layer_norm_eps": None},
    ],
)
def test_config_fields_of_the_wrong_type_are_refused(copy_hf_folder: Any, changes: dict[str, Any]) -> None:
    with pytest.raises((BadConfig, Unsupported)):
        load_folder(edit_config(copy_hf_folder(), **changes))


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("bert", "add_cross_attention", True),
        ("bert", "position_embedding_type", "relative_key"),
        ("xlnet", "clamp_len", 5),
        ("xlnet", "same_length", True),
        ("xlnet", "bi_data", True),
        ("xlnet", "summary_type", "first"),
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("electra", "summary_type", "last"),
        ("distilbert", "tie_word_embeddings", False),
    ],
)
def test_config_fields_that_change_the_outputs_are_refused(
    copy_hf_folder: Any, family: str, field: str, value: Any
) -> None:
    with refused("unsupported", place="config.json") as error:
        load_folder(edit_config(copy_hf_folder(family, "base"), **{field: value}))
    assert field in error.value.cause


@pytest.mark.parametrize(
    "labels", [[1], ["a", "b"], {"0": "a", "7": "b"}, {"-1": "a", "0": "b"}, {"0": "a", "00": "b"}, {"0": 5}, "ab"]
)
def test_label_ids_must_be_numbered_from_zero(copy_hf_folder: Any, labels: Any) -> None:
    with refused("bad-config", place="config.json", kind=BadConfig) as error:
        load_folder(edit_config(copy_hf_folder(head="sequence"), id2label=labels))
    assert error.value.fields == ["id2label"] and "id2label" in error.value.cause


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "pytorch_model.bin"])
def test_a_named_pipe_is_refused_without_waiting(copy_hf_folder: Any, name: str) -> None:
    folder = copy_hf_folder()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises((BadConfig, BadWeights, NotFound)):
        (import_folder if name.endswith(".bin") else load_folder)(folder)


def test_an_endless_config_file_is_refused(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with refused("not-a-file", place="config.json", kind=BadConfig):
        load_folder(folder)
    (folder / "config.json").unlink()
    with (folder / "config.json").open("wb") as file:
        file.truncate(20 * 2**30)
    with refused("file-too-large", place="config.json"):
        load_folder(folder)


def test_pickled_tensors_larger_than_their_file_are_refused(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(1).expand(10**6, 24)
    torch.save(tensors, folder / "pytorch_model.bin")
    with refused("not-a-plain-tensor", place="pytorch_model.bin") as error:
        import_folder(edit_config(folder, vocab_size=10**6))
    assert "bert.embeddings.word_embeddings.weight" in error.value.cause


def test_pickled_tensors_may_share_a_storage(copy_hf_folder: Any, tmp_path: Path) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    storage = torch.randn(2, 24)
    tensors["bert.embeddings.LayerNorm.weight"], tensors["bert.embeddings.LayerNorm.bias"] = storage
    torch.save(tensors, folder / "pytorch_model.bin")
    import_pickled(folder).save(tmp_path / "m")
    assert torch.equal(load_folder(tmp_path / "m").model.encoder.embed.norm.bias, storage[1])


def test_a_model_larger_than_memory_is_refused() -> None:
    with refused("model-too-large"):
        bertworks.new("bert-base", hidden_size=2**17, n_heads=1, ffn_size=2**17, n_layers=200)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert-mini", {"positions": "sinusoidal", "hidden_size": 15, "n_heads": 3}),
        ("xlnet-mini", {"hidden_size": 15, "n_heads": 3}),
        ("albert-mini", {"lm_transform": False}),
    ],
)
def test_incompatible_overrides_are_refused(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        preset(name).override(**changes)


def test_lone_surrogates_in_a_config_are_refused(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder(head="sequence")
    text = (folder / "config.json").read_text().replace("LABEL_1", "\\ud800")
    (folder / "config.json").write_text(text)
    with refused("not-json", place="config.json"):
        load_folder(folder)


def test_a_key_that_occurs_twice_in_a_config_is_refused(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    text = (folder / "config.json").read_text().replace('"hidden_size":', '"hidden_size": 4, "hidden_size":')
    (folder / "config.json").write_text(text)
    with refused("duplicate-key", place="config.json") as error:
        load_folder(folder)
    assert "'hidden_size'" in error.value.cause


def test_damaged_pickles(tmp_path: Path, copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    content = (folder / "pytorch_model.bin").read_bytes()
    for keep in (0, 1, 10, 1000, len(content) // 2, len(content) - 1):
        (folder / "pytorch_model.bin").write_bytes(content[:keep])
        with pytest.raises(BadWeights):
            import_folder(folder)
    for i in range(0, 2000, 37):
        (folder / "pytorch_model.bin").write_bytes(content[:i] + bytes([content[i] ^ 255]) + content[i + 1 :])
        try:
            # A flipped byte in a number is a number; everything else is noticed.
            assert import_folder(folder).model.config == load_folder(folder).model.config
        except BadWeights as error:
            assert error.cause


# Saving.


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_saving_replaces_the_model_and_keeps_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    (folder / "README.md").write_text("mine")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("mine too")
    (folder / "pytorch_model.bin").write_bytes(b"stale")
    second = bertworks.new("bert-mini", **TINY, seed=2)
    second.save(folder)
    assert (folder / "README.md").read_text() == "mine"
    assert (folder / "notes" / "a.txt").read_text() == "mine too"
    assert not (folder / "pytorch_model.bin").exists()
    loaded = bertworks.load(folder).model.state_dict()
    assert torch.equal(loaded["encoder.embed.tokens.weight"], second.model.encoder.embed.tokens.weight)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"], "no temporary folders are left behind"


def test_saving_removes_the_files_of_the_old_model(tmp_path: Path) -> None:
    """The tokenizer, limit or pooling of the old model would be wrong for the new one."""
    folder = tmp_path / "m"
    bertworks.load("minilm").save(folder)
    save_file({"x": torch.zeros(1)}, folder / "adapter_model.safetensors")
    bertworks.new("bert-mini", **TINY).save(folder)
    loaded = bertworks.load(folder)
    assert not loaded.has_tokenizer
    assert loaded.limit == 512
    assert not loaded.pooling.stated
    assert not loaded.pooling.normalise
    assert (folder / "adapter_model.safetensors").exists()


def test_saving_refuses_to_drop_unsupported_modules(tmp_path: Path) -> None:
    """A folder with a module that we do not support: saving without it would change its vectors."""
    folder = tmp_path / "m"
    bertworks.load("minilm").save(folder)
    modules = [
        *json.loads((folder / "modules.json").read_text()),
        {"path": "3_Dense", "type": "sentence_transformers.models.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    before = snapshot(folder)
    with refused("pooling-would-be-lost"):
        bertworks.load(folder).save(folder)
    assert snapshot(folder) == before and sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_saving_keeps_file_modes_and_refuses_other_config_files(tmp_path: Path) -> None:
    bench = bertworks.new("bert-mini", **TINY)
    bench.save(tmp_path / "m")
    (tmp_path / "m").chmod(0o700)
    bench.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "m" / "model.safetensors").stat().st_mode == (tmp_path / "m" / "config.json").stat().st_mode
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "config.json").write_text('{"name": "my app"}')
    with refused("not-a-model-folder", place=str(tmp_path / "app")):
        bench.save(tmp_path / "app")


def test_saving_over_shards(copy_hf_folder: Any) -> None:
    folder = copy_hf_folder()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "part-0.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(tensors, "part-0.safetensors")})
    )
    bench = bertworks.load(folder)
    bench.save(folder)
    assert sorted(path.name for path in folder.iterdir() if "safetensors" in path.name) == ["model.safetensors"]
    assert_matches_transformers(folder)


def test_saving_through_a_symlink(tmp_path: Path) -> None:
    bertworks.new("bert-mini", **TINY, seed=1).save(tmp_path / "real")
    (tmp_path / "latest").symlink_to(tmp_path / "real")
    second = bertworks.new("bert-mini", **TINY, seed=2)
    second.save(tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    state = bertworks.load(tmp_path / "real").model.state_dict()
    assert torch.equal(state["encoder.embed.tokens.weight"], second.model.encoder.embed.tokens.weight)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "real"]


@pytest.mark.parametrize("interrupt", [None, OSError, KeyboardInterrupt])
def test_without_an_atomic_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException] | None
) -> None:
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    before = snapshot(folder)
    monkeypatch.setattr("bertworks.files._swap", lambda a, b: False)
    second = bertworks.new("bert-mini", **TINY, seed=2)
    if interrupt is None:
        second.save(folder)
        assert torch.equal(
            load_folder(folder).model.encoder.embed.tokens.weight, second.model.encoder.embed.tokens.weight
        )
    else:
        rename = Path.rename

        def fail_on_exchange(self: Path, target: Path) -> Path:
            if self.suffix == ".new" and target == folder:
                raise interrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail_on_exchange)
        with pytest.raises((SaveFailed, KeyboardInterrupt)):
            second.save(folder)
        assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize("function", ["write_weights", "sync_tree", "exchange"])
def test_a_failed_save_leaves_the_old_folder_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    before = snapshot(folder)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"bertworks.model.folder.{function}", fail)
    with refused("save-failed", place=str(folder)) as error:
        bertworks.new("bert-mini", **TINY, seed=2).save(folder)
    assert "No space left on device" in error.value.cause, "the message of the operating system"
    assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_a_full_disk_leaves_the_old_folder_unchanged(tmp_path: Path) -> None:
    """With a real limit on file size, in a process of its own."""
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    before = snapshot(folder)
    code = (
        "import resource, signal, sys, bertworks\n"
        "from bertworks.errors import SaveFailed\n"
        f"bench = bertworks.new('bert-mini', seed=2, **{TINY!r})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n    bench.save(sys.argv[1])\nexcept SaveFailed:\n    sys.exit(7)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert process.returncode == 7, process.stderr
    assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_killed_while_saving(tmp_path: Path) -> None:
    """SIGKILL at several times in a loop of saves: the folder always holds one of the two models, complete."""
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    code = (
        "import sys, bertworks\n"
        f"a, b = (bertworks.new('bert-mini', seed=s, **{TINY!r}) for s in (1, 2))\n"
        "print('ready', flush=True)\n"
        "while True:\n    b.save(sys.argv[1]); a.save(sys.argv[1])\n"
    )
    models = [bertworks.new("bert-mini", seed=seed, **TINY).model.state_dict() for seed in (1, 2)]
    for attempt in range(6):
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            process.wait(0.05 + 0.013 * attempt)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() == -9
        state = load_folder(folder).model.state_dict()
        assert any(all(torch.equal(state[name], tensor) for name, tensor in model.items()) for model in models)


def test_saving_does_not_overwrite_other_folders(tmp_path: Path) -> None:
    bench = bertworks.new("bert-mini", **TINY)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with refused("not-a-model-folder", place=str(tmp_path / "thesis")):
        bench.save(tmp_path / "thesis")
    (tmp_path / "file").write_text("x")
    with refused("not-a-folder", place=str(tmp_path / "file"), kind=SaveFailed):
        bench.save(tmp_path / "file")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused("save-failed", place=str(tmp_path / "file" / "m")):
        bertworks.new("bert-mini", **TINY).save(tmp_path / "file" / "m")


def test_strange_paths(tmp_path: Path) -> None:
    for name in ("with space", "näme 模型", "new\nline", "x" * 200):
        bertworks.new("bert-mini", **TINY).save(tmp_path / name)
        assert bertworks.load(tmp_path / name).config == preset("bert-mini").override(**TINY)


@pytest.mark.parametrize("values", [["x"], "x", None, 5, {"family": "bert", "encoder": {"kind": ["transformer"]}}])
def test_malformed_bertworks_configs_are_refused(values: object) -> None:
    with pytest.raises(BadConfig):
        from_hf({"model_type": "bertworks", "bertworks": values})
