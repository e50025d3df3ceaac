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
from bertworks.model.layout import Tokens
from bertworks.model.weights import read_pickle
from bertworks.presets import preset
from bertworks.workbench import import_pickled
from parity import TOLERANCE, difference, our_outputs, their_outputs
from refusals import refused
from zoo import hf_folder, hf_model

TINY = {"vocab_size": 60, "hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 2}


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Any:
    def make(family: str = "bert", job: str = "pretraining") -> Path:
        return Path(shutil.copytree(hf_folder(family, job, root), tmp_path / f"{family}-{job}"))

    return make


def rename(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {change(name): tensor for name, tensor in tensors.items()}
    save_file({name: tensor for name, tensor in renamed.items() if name}, folder / "model.safetensors")


# Old spellings.


def assert_same_as_before(folder: Path, job: str = "pretraining", family: str = "bert") -> None:
    ours = our_outputs(load_folder(folder).model, family, job)
    assert difference(ours, their_outputs(hf_model(family, job), family, job)) <= TOLERANCE


def test_gamma_and_beta(copy: Any) -> None:
    folder = copy()
    rename(
        folder,
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
    )
    assert any("gamma" in name for name in load_file(folder / "model.safetensors"))
    assert_same_as_before(folder)


def test_without_prefix(copy: Any) -> None:
    folder = copy()
    rename(folder, lambda name: name.removeprefix("bert."))
    assert_same_as_before(folder)


def test_base_with_prefix(copy: Any) -> None:
    folder = copy(job="base")
    rename(folder, lambda name: f"bert.{name}")
    assert_same_as_before(folder, "base")


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "electra", "xlnet", "distilbert", "gpt2"])
def test_headless_with_and_without_prefix(family: str, copy: Any) -> None:
    folder = copy(family, "base")
    prefix = {"xlnet": "transformer", "gpt2": "transformer"}.get(family, family)
    rename(folder, lambda name: f"{prefix}.{name}")
    assert_same_as_before(folder, "base", family)


def test_copies_of_tied_tensors(copy: Any) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    tensors["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(tensors, folder / "model.safetensors")
    assert_same_as_before(folder)


def test_an_untied_head_is_refused(copy: Any) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    with refused("untied-weights", place=str(folder)) as error:
        load_folder(folder)
    assert "cls.predictions.decoder.weight" in error.value.cause


def test_heads_are_found_by_their_weights(copy: Any) -> None:
    """bert-base-uncased on the Hub says BertForMaskedLM and holds everything: nothing is lost."""
    folder = copy()
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    assert_same_as_before(folder)
    config.pop("architectures")
    (folder / "config.json").write_text(json.dumps(config))
    assert_same_as_before(folder)


@pytest.mark.parametrize("job", ["sequence", "token", "choice"])
def test_heads_of_one_name_are_told_apart(job: str, copy: Any) -> None:
    assert list(load_folder(copy(job=job)).model.heads) == [job]


def test_half_precision_is_read(copy: Any) -> None:
    folder = copy(job="base")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, folder / "model.safetensors")
    model = load_folder(folder).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert difference(our_outputs(model, "bert", "base"), their_outputs(hf_model("bert"), "bert", "base")) < 1e-2


def test_shards(copy: Any) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, folder / f"part-{i}.safetensors")
        weight_map |= dict.fromkeys(part, f"part-{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_same_as_before(folder)
    weight_map["x"] = "../part-0.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with refused("outside-folder", place="model.safetensors.index.json") as error:
        load_folder(folder)
    assert "../part-0.safetensors" in error.value.cause


def test_pickled_weights_are_imported(copy: Any, tmp_path: Path) -> None:
    folder = copy()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with refused("pickled-weights", place=str(folder)) as error:
        load_folder(folder)
    assert f"bertworks import {folder}" in error.value.remedy
    import_pickled(folder).save(tmp_path / "imported")
    assert_same_as_before(tmp_path / "imported")
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
def test_refused_elsewhere_and_opened_here(
    name: str, changes: dict[str, Any], heads: list[str], tmp_path: Path
) -> None:
    bench = bertworks.new(name, heads=heads, **TINY, **changes)
    bench.save(tmp_path / "m")
    again = bertworks.load(tmp_path / "m")
    assert again.config == bench.config and list(again.model.heads) == list(bench.model.heads)
    state = again.model.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in bench.model.state_dict().items()) and len(state) > 5
    with pytest.raises((ValueError, KeyError), match="bertworks"):
        transformers.AutoModel.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize(
    "name", ["bert-mini", "roberta-mini", "albert-mini", "electra-mini", "xlnet-mini", "distilbert-mini", "gpt-mini"]
)
def test_new_models_open_there(name: str, tmp_path: Path) -> None:
    bench = bertworks.new(name, **TINY, dropout=0.0, ffn_dropout=0.3)
    bench.save(tmp_path / "m")
    theirs, report = transformers.AutoModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids = torch.tensor([7, 8, 9, 10])
    with torch.no_grad():
        ours = bench.model.encoder(Tokens.ragged(ids, [4])).last
        assert torch.allclose(theirs.eval()(ids[None]).last_hidden_state[0], ours, atol=1e-5)
    assert bertworks.load(tmp_path / "m").config == bench.config  # rates too that they have no word for


def test_causal_bert_is_a_decoder_there(tmp_path: Path) -> None:
    bertworks.new("bert-mini", heads=["lm"], **TINY, causal=True).save(tmp_path / "m")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "m")
    assert config.is_decoder and config.architectures == ["BertLMHeadModel"]


def test_foreign_fields_are_carried_along(copy: Any, tmp_path: Path) -> None:
    folder = copy(job="sequence")
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": "regression", "my_note": "kept"}
    config["id2label"] = {"0": "坏", "1": "好", "2": "?"}
    (folder / "config.json").write_text(json.dumps(config))
    bench = bertworks.load(folder)
    assert bench.config.heads.labels == ("坏", "好", "?")
    bench.save(tmp_path / "m")
    saved = json.loads((tmp_path / "m" / "config.json").read_text())
    assert saved["my_note"] == "kept" and saved["id2label"] == config["id2label"]


# Bad folders.


def edit(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_missing_things_are_named(tmp_path: Path, copy: Any) -> None:
    with refused("missing-file", place=str(tmp_path), kind=NotFound) as error:
        bertworks.load(tmp_path)
    assert "config.json" in error.value.cause
    with refused("not-found", place="./nowhere"):
        bertworks.load("./nowhere")
    folder = copy()
    (folder / "model.safetensors").unlink()
    with refused("missing-file", place=str(folder), kind=NotFound) as error:
        bertworks.load(folder)
    assert "model.safetensors" in error.value.cause
    with refused("not-a-folder", place=str(folder / "config.json"), kind=NotFound):
        bertworks.load(folder / "config.json")


def test_weights_that_do_not_fit(copy: Any) -> None:
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit(copy(), hidden_size=36))
    assert error.value.code == "weights-mismatch" and error.value.shapes["bert.embeddings.LayerNorm.bias"] == (
        (24,),
        (36,),
    )
    assert not error.value.missing | error.value.unexpected | error.value.not_float
    assert all(said in error.value.cause for said in ("bert.embeddings.LayerNorm.bias", "[24]", "[36]"))
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit(copy("bert", "base"), num_hidden_layers=4))
    assert error.value.missing and all("encoder.layer.3." in name for name in error.value.missing)
    assert "encoder.layer.3." in error.value.cause and not error.value.unexpected and not error.value.shapes
    with pytest.raises(WeightsMismatch) as error:
        load_folder(edit(copy("bert", "masked"), num_hidden_layers=2))
    assert error.value.unexpected and all("encoder.layer.2." in name for name in error.value.unexpected)
    assert "encoder.layer.2." in error.value.cause and not error.value.missing and not error.value.shapes


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
def test_hostile_configs_are_refused_before_allocation(copy: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        load_folder(edit(copy(), **changes))


def test_a_giant_within_the_bounds_is_refused_by_its_header(copy: Any) -> None:
    with pytest.raises(WeightsMismatch):
        load_folder(edit(copy(), hidden_size=131072, intermediate_size=131072, num_attention_heads=1024))


@pytest.mark.parametrize(
    "changes", [{"model_type": "llama"}, {"model_type": None}, {"hidden_act": "mish"}, {"tie_word_embeddings": False}]
)
def test_what_is_not_built_is_said(copy: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        load_folder(edit(copy(), **changes))


def test_remote_code_is_ignored_and_said(copy: Any, tmp_path: Path) -> None:
    folder = edit(copy("bert", "base"), auto_map={"AutoModel": "evil.Model"}, trust_remote_code=True)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    bench = bertworks.load(folder)
    assert [remark.code for remark in bench.remarks] == ["remote-code-ignored"] and "auto_map" in str(bench.remarks[0])
    assert not (tmp_path / "ran").exists()
    bench.save(tmp_path / "m")
    assert "auto_map" not in json.loads((tmp_path / "m" / "config.json").read_text())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"model_type": ' + "[" * 100_000, "\ud800".encode("utf-16", "surrogatepass")]
)
def test_config_that_is_no_config(copy: Any, text: str | bytes) -> None:
    folder = copy()
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((BadConfig, Unsupported)):
        load_folder(folder)


def header(entries: dict[str, Any], size: int | None = None) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text


HOSTILE = {
    "empty": b"",
    "one byte": b"x",
    "header length 2^63": header({}, 2**63),
    "header length beyond the file": header({}, 10**6),
    "header over the library's limit": header({}, 100_000_001),
    "not json": struct.pack("<Q", 3) + b"abc",
    "offsets beyond the file": header({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}),
    "shape that overflows": header({"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]}}) + bytes(16),
    "a hole": header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}) + bytes(8),
    "overlap": header(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        }
    )
    + bytes(12),
    "unknown dtype": header({"w": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}) + bytes(4),
    "integers": header({"embeddings.word_embeddings.weight": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]}})
    + bytes(4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors(copy: Any, name: str) -> None:
    folder = copy()
    (folder / "model.safetensors").write_bytes(HOSTILE[name])
    with pytest.raises(BadWeights):
        load_folder(folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, "half", -1])
def test_truncated_safetensors(copy: Any, keep: int | str) -> None:
    folder = copy()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2 if keep == "half" else keep])  # type: ignore[misc]
    with refused("damaged-file", place="model.safetensors", kind=BadWeights):
        load_folder(folder)


class Poison:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def test_a_poisoned_pickle_never_runs(copy: Any, tmp_path: Path) -> None:
    folder, trace = copy(), tmp_path / "ran"
    poison = pickle.dumps({"w": Poison(trace)})
    (folder / "model.safetensors").write_bytes(poison)
    with refused("pickled-weights", place="model.safetensors"):
        load_folder(folder)
    (folder / "model.safetensors").unlink()
    for name, content in (("raw", poison), ("zip", None)):
        if content is None:
            torch.save({"w": Poison(trace)}, folder / "pytorch_model.bin")
        else:
            (folder / "pytorch_model.bin").write_bytes(content)
        with refused("unreadable-pickle", place="pytorch_model.bin"):
            import_folder(folder)
        assert not trace.exists(), name
    torch.save([1, 2], folder / "pytorch_model.bin")
    with refused("not-a-state-dict", place="pytorch_model.bin"):
        read_pickle(folder / "pytorch_model.bin")


def test_a_pooler_that_nothing_reads(copy: Any) -> None:
    """Old files of RobertaForSequenceClassification have one beside their classifier."""
    folder = copy("roberta", "sequence")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"roberta.pooler.dense.weight": torch.zeros(24, 24), "roberta.pooler.dense.bias": torch.zeros(24)}
    save_file(tensors, folder / "model.safetensors")
    assert_same_as_before(folder, "sequence", "roberta")
    (remark,) = load_folder(folder).remarks
    assert remark.code == "unused-weights" and all(
        f"roberta.pooler.dense.{part}" in str(remark) for part in ("weight", "bias")
    )


def test_two_names_for_one_tensor(copy: Any) -> None:
    folder = copy()
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
def test_fields_of_the_wrong_kind(copy: Any, changes: dict[str, Any]) -> None:
    with pytest.raises((BadConfig, Unsupported)):
        load_folder(edit(copy(), **changes))


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
def test_fields_that_change_the_numbers_are_not_passed_over(copy: Any, family: str, field: str, value: Any) -> None:
    with refused("unsupported", place="config.json") as error:
        load_folder(edit(copy(family, "base"), **{field: value}))
    assert field in error.value.cause


@pytest.mark.parametrize(
    "labels", [[1], ["a", "b"], {"0": "a", "7": "b"}, {"-1": "a", "0": "b"}, {"0": "a", "00": "b"}, {"0": 5}, "ab"]
)
def test_labels_are_numbered_from_zero(copy: Any, labels: Any) -> None:
    with refused("bad-config", place="config.json", kind=BadConfig) as error:
        load_folder(edit(copy(job="sequence"), id2label=labels))
    assert error.value.fields == ["id2label"] and "id2label" in error.value.cause


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "pytorch_model.bin"])
def test_a_pipe_is_not_waited_for(copy: Any, name: str) -> None:
    folder = copy()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises((BadConfig, BadWeights, NotFound)):
        (import_folder if name.endswith(".bin") else load_folder)(folder)


def test_an_endless_config(copy: Any) -> None:
    folder = copy()
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with refused("not-a-file", place="config.json", kind=BadConfig):
        load_folder(folder)
    (folder / "config.json").unlink()
    with (folder / "config.json").open("wb") as file:
        file.truncate(20 * 2**30)
    with refused("file-too-large", place="config.json"):
        load_folder(folder)


def test_tensors_larger_than_their_file(copy: Any) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(1).expand(10**6, 24)
    torch.save(tensors, folder / "pytorch_model.bin")
    with refused("not-a-plain-tensor", place="pytorch_model.bin") as error:
        import_folder(edit(folder, vocab_size=10**6))
    assert "bert.embeddings.word_embeddings.weight" in error.value.cause


def test_tensors_that_share_a_storage(copy: Any, tmp_path: Path) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    whole = torch.randn(2, 24)
    tensors["bert.embeddings.LayerNorm.weight"], tensors["bert.embeddings.LayerNorm.bias"] = whole
    torch.save(tensors, folder / "pytorch_model.bin")
    import_pickled(folder).save(tmp_path / "m")
    assert torch.equal(load_folder(tmp_path / "m").model.encoder.embed.norm.bias, whole[1])


def test_a_model_larger_than_the_machine() -> None:
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
def test_parts_that_would_not_fit_together(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        preset(name).override(**changes)


def test_half_characters_in_a_config(copy: Any) -> None:
    folder = copy(job="sequence")
    text = (folder / "config.json").read_text().replace("LABEL_1", "\\ud800")
    (folder / "config.json").write_text(text)
    with refused("not-json", place="config.json"):
        load_folder(folder)


def test_damaged_pickles(tmp_path: Path, copy: Any) -> None:
    folder = copy()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    whole = (folder / "pytorch_model.bin").read_bytes()
    for keep in (0, 1, 10, 1000, len(whole) // 2, len(whole) - 1):
        (folder / "pytorch_model.bin").write_bytes(whole[:keep])
        with pytest.raises(BadWeights):
            import_folder(folder)
    for at in range(0, 2000, 37):
        (folder / "pytorch_model.bin").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            # A flipped byte in a number is a number; everything else is noticed.
            assert import_folder(folder).model.config == load_folder(folder).model.config
        except BadWeights as error:
            assert error.cause


# Saving.


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_saving_replaces_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    (folder / "README.md").write_text("mine")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("mine too")
    (folder / "pytorch_model.bin").write_bytes(b"stale")
    second = bertworks.new("bert-mini", **TINY, seed=2)
    second.save(folder)
    assert (folder / "README.md").read_text() == "mine" and (folder / "notes" / "a.txt").read_text() == "mine too"
    assert not (folder / "pytorch_model.bin").exists()
    loaded = bertworks.load(folder).model.state_dict()
    assert torch.equal(loaded["encoder.embed.tokens.weight"], second.model.encoder.embed.tokens.weight)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"], "temporary folders stayed behind"


def test_saving_takes_the_old_models_files_away(tmp_path: Path) -> None:
    """A tokenizer, a limit or a pooling of the model that was there before would be wrong for the new one."""
    folder = tmp_path / "m"
    bertworks.load("minilm").save(folder)
    save_file({"x": torch.zeros(1)}, folder / "adapter_model.safetensors")
    bertworks.new("bert-mini", **TINY).save(folder)
    again = bertworks.load(folder)
    assert not again.has_tokenizer and again.limit == 512 and not again.pooling.stated and not again.pooling.normalise
    assert (folder / "adapter_model.safetensors").exists()


def test_what_cannot_be_kept_is_not_overwritten(tmp_path: Path) -> None:
    """A folder with a module that is not built here: saving would turn its vectors into others."""
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


def test_saving_keeps_modes_and_strangers_config(tmp_path: Path) -> None:
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


def test_saving_over_shards(copy: Any) -> None:
    folder = copy()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "part-0.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(tensors, "part-0.safetensors")})
    )
    bench = bertworks.load(folder)
    bench.save(folder)
    assert sorted(path.name for path in folder.iterdir() if "safetensors" in path.name) == ["model.safetensors"]
    assert_same_as_before(folder)


def test_saving_through_a_link(tmp_path: Path) -> None:
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

        def fail(self: Path, target: Path) -> Path:
            if self.suffix == ".new" and target == folder:
                raise interrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail)
        with pytest.raises((SaveFailed, KeyboardInterrupt)):
            second.save(folder)
        assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize("where", ["write_weights", "sync_tree", "exchange"])
def test_a_failed_save_leaves_the_old_folder_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    before = snapshot(folder)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"bertworks.model.folder.{where}", fail)
    with refused("save-failed", place=str(folder)) as error:
        bertworks.new("bert-mini", **TINY, seed=2).save(folder)
    assert "No space left on device" in error.value.cause, "what the system says"
    assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_a_full_disk_leaves_the_old_folder_whole(tmp_path: Path) -> None:
    """The real thing: a limit on file size in a process of its own."""
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
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert snapshot(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_killed_while_saving(tmp_path: Path) -> None:
    """SIGKILL at many moments of a loop of saves: at each, the folder is one of the two models, whole."""
    folder = tmp_path / "m"
    bertworks.new("bert-mini", **TINY, seed=1).save(folder)
    code = (
        "import sys, bertworks\n"
        f"a, b = (bertworks.new('bert-mini', seed=s, **{TINY!r}) for s in (1, 2))\n"
        "print('ready', flush=True)\n"
        "while True:\n    b.save(sys.argv[1]); a.save(sys.argv[1])\n"
    )
    models = [bertworks.new("bert-mini", seed=seed, **TINY).model.state_dict() for seed in (1, 2)]
    for moment in range(6):
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        try:
            process.wait(0.05 + 0.013 * moment)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() == -9
        state = load_folder(folder).model.state_dict()
        assert any(all(torch.equal(state[name], tensor) for name, tensor in model.items()) for model in models)


def test_saving_does_not_overwrite_strangers(tmp_path: Path) -> None:
    bench = bertworks.new("bert-mini", **TINY)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with refused("not-a-model-folder", place=str(tmp_path / "thesis")):
        bench.save(tmp_path / "thesis")
    (tmp_path / "file").write_text("x")
    with refused("not-a-folder", place=str(tmp_path / "file"), kind=SaveFailed):
        bench.save(tmp_path / "file")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused("save-failed", place=str(tmp_path / "file" / "m")):
        bertworks.new("bert-mini", **TINY).save(tmp_path / "file" / "m")


def test_strange_paths(tmp_path: Path) -> None:
    for name in ("with space", "näme 模型", "new\nline", "x" * 200):
        bertworks.new("bert-mini", **TINY).save(tmp_path / name)
        assert bertworks.load(tmp_path / name).config == preset("bert-mini").override(**TINY)


@pytest.mark.parametrize("values", [["x"], "x", None, 5, {"family": "bert", "encoder": {"kind": ["transformer"]}}])
def test_what_is_no_config_of_ours_is_refused(values: object) -> None:
    with pytest.raises(BadConfig):
        from_hf({"model_type": "bertworks", "bertworks": values})
