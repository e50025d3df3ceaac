"""A published head: layer 10, head 5 of RXNMapper's ALBERT looks from an atom of a product to where it comes from
(Schwaller et al. 2021). Fragments that a reaction leaves as they are were labelled by hand."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertworks.inspect.atlas import atlas
from bertworks.inspect.units import Units
from bertworks.text.backends import word_piece
from bertworks.workbench import Workbench, import_pickled

ATOMS = r"\[[^\]]+\]|Br|Cl|[BCNOSPFIbcnosp]"
SMILES = rf">>|{ATOMS}|%[0-9]{{2}}|[0-9()=#\-+/\\.:~@*$>]"
# A reaction, and its unchanged fragments: as they are written on the left and on the right.
REACTIONS: dict[str, list[tuple[str, str]]] = {
    "CC(=O)O.OCCc1ccccc1>>CC(=O)OCCc1ccccc1": [("CC(=O)", "CC(=O)"), ("OCCc1ccccc1", "OCCc1ccccc1")],
    "O=C(Cl)c1ccccc1.NCc1ccco1>>O=C(NCc1ccco1)c1ccccc1": [("NCc1ccco1", "NCc1ccco1"), ("c1ccccc1", "c1ccccc1")],
    "N#Cc1ccc(Br)cc1.OB(O)c1ccccc1F>>N#Cc1ccc(-c2ccccc2F)cc1": [
        ("N#Cc1ccc(", "N#Cc1ccc("),
        ("c1ccccc1F", "c2ccccc2F"),
    ],
    "CI.Oc1ccc(C=O)cc1>>COc1ccc(C=O)cc1": [("Oc1ccc(C=O)cc1", "Oc1ccc(C=O)cc1")],
    "CC(C)(C)OC(=O)OC(=O)OC(C)(C)C.NCCO>>CC(C)(C)OC(=O)NCCO": [("NCCO", "NCCO")],
    "O=[N+]([O-])c1ccc(Cl)cc1.[H][H]>>Nc1ccc(Cl)cc1": [("c1ccc(Cl)cc1", "c1ccc(Cl)cc1")],
    "CC(=O)c1ccc(Br)cc1.[BH4-].[Na+]>>CC(O)c1ccc(Br)cc1": [("CC(", "CC("), ("c1ccc(Br)cc1", "c1ccc(Br)cc1")],
    "COC(=O)c1ccncc1.[OH-].[Na+]>>OC(=O)c1ccncc1": [("C(=O)c1ccncc1", "C(=O)c1ccncc1")],
    "CS(=O)(=O)Cl.Nc1ccccn1>>CS(=O)(=O)Nc1ccccn1": [("CS(=O)(=O)", "CS(=O)(=O)"), ("Nc1ccccn1", "Nc1ccccn1")],
    "OCc1ccc(F)cc1.BrP(Br)Br>>BrCc1ccc(F)cc1": [("Cc1ccc(F)cc1", "Cc1ccc(F)cc1")],
    "O=Cc1ccoc1.CNC>>CN(C)Cc1ccoc1": [("Cc1ccoc1", "Cc1ccoc1")],
    "O=C(O)CCc1cccs1.O=S(Cl)Cl>>O=C(Cl)CCc1cccs1": [("CCc1cccs1", "CCc1cccs1")],
    "CS(=O)(=O)Cl.OCCC1CCCCC1>>CS(=O)(=O)OCCC1CCCCC1": [("CS(=O)(=O)", "CS(=O)(=O)"), ("OCCC1CCCCC1", "OCCC1CCCCC1")],
}


@pytest.fixture(scope="module")
def chemist(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """The shared folder has a vocabulary, and nothing that says how SMILES are split."""
    folder = tmp_path_factory.mktemp("rxn") / "model"
    shutil.copytree(shared / "weights" / "albert-rxnmapper", folder)
    lines = (folder / "vocab.txt").read_text().splitlines()
    backend = word_piece({piece: number for number, piece in enumerate(lines)}, {"do_lower_case": False})
    content = json.loads(backend.to_str())
    content["normalizer"] = None
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": SMILES},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return import_pickled(folder)


def atom_pairs(reaction: str) -> Iterator[tuple[int, int]]:
    """Atoms of the product and those of the reactants, as numbers of tokens."""
    numbers = {match.start(): number for number, match in enumerate(re.finditer(SMILES, reaction))}
    arrow = reaction.index(">>")
    for before, after in REACTIONS[reaction]:
        starts = reaction.index(before), reaction.index(after, arrow)
        assert starts[0] < arrow
        sides = [
            [start + atom.start() for atom in re.finditer(ATOMS, fragment)]
            for start, fragment in zip(starts, (before, after), strict=True)
        ]
        for reactant, product in zip(*sides, strict=True):
            assert reaction[reactant] == reaction[product]
            yield numbers[product], numbers[reactant]


@pytest.mark.slow
def test_the_published_head_and_its_rank(chemist: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    by_words = {reaction.lower(): list(atom_pairs(reaction)) for reaction in REACTIONS}
    unknown = chemist.tokenizer.id_of("unk")
    for reaction in REACTIONS:
        pieces = chemist.tokenizer.pieces(reaction)
        assert unknown not in pieces.ids
        assert [reaction[start:end] for start, end in pieces.offsets[1:-1]] == re.findall(SMILES, reaction)
    n_pairs = sum(map(len, by_words.values()))
    assert n_pairs > 100

    def where_from(units: Units) -> list[tuple[int, int]]:
        return [(1 + product, 1 + reactant) for product, reactant in by_words["".join(units.words)]]

    found = atlas(chemist, list(REACTIONS), pairs=False, relations={"where from": where_from})
    ranking = found.ranking("where from")
    places = [(layer, head) for layer, head, _ in ranking]
    offset, fixed = found.best_offsets["where from"]
    with capsys.disabled():
        print(
            f"\n{n_pairs} atoms; best offset {offset}: {fixed:.1%}; of {len(places)} heads the first are", ranking[:5]
        )
        print("L10H5 is number", places.index((10, 5)) + 1, ranking[places.index((10, 5))])
    assert len(places) == 96 and places.index((10, 5)) < 10
    assert ranking[places.index((10, 5))][2] > fixed + 0.1
