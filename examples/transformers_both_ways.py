"""A model made here opens in transformers with the same numbers, and the other way round.

python examples/transformers_both_ways.py
"""

import numpy as np
import torch
import transformers

import bertworks

TEXT = "The same numbers on both sides."
ours = bertworks.load("minilm")
folder = ours.save("minilm-copy")

tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
theirs = transformers.AutoModel.from_pretrained(folder).eval()
with torch.no_grad():
    their_states = theirs(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0].numpy()
print("largest difference:", float(np.abs(their_states - ours.states(TEXT)).max()))

theirs.save_pretrained("from-transformers")
tokenizer.save_pretrained("from-transformers")
back = bertworks.load("from-transformers")
print("and back:", float(np.abs(back.states(TEXT) - ours.states(TEXT)).max()))
