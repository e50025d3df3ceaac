"""A classifier from a table with a dozen rows, and what it says to new texts.

python examples/finetune_csv.py [TABLE.csv]
"""

import sys
from pathlib import Path

import bertworks

table = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("tickets.csv")
run = bertworks.finetune(table, task="classify", model="minilm", epochs=40, out="tickets-run")
print(run.metrics)
print(run.results["intervals"]["accuracy"], "is what two dev examples can tell")  # honest: from 0 to 1
for text in ("My card was charged again", "Nothing happens when I click send"):
    prediction = run.predict([text])[0]
    print(f"{prediction.label:8} {prediction.confidence:.2f}  {text}")
print(f"report: {run.report}")
