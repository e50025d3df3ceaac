"""Which of these sentences is closest to a question: vectors and cosines.

python examples/embed.py ["your question"]
"""

import sys

import numpy as np

import bertworks

SENTENCES = [
    "Passwords are changed under Settings, Security.",
    "The invoice is sent at the end of each month.",
    "Photos are kept for thirty days after you delete them.",
]
question = sys.argv[1] if len(sys.argv) > 1 else "How do I reset my password?"
model = bertworks.load("minilm")
ledger = bertworks.Ledger()
vectors = model.encode([question, *SENTENCES], ledger=ledger)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
for cosine, sentence in sorted(zip(vectors[1:] @ vectors[0], SENTENCES, strict=True), reverse=True):
    print(f"{cosine:5.2f}  {sentence}")
print(ledger)
