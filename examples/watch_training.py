"""Rows from Python instead of a file, and every evaluation heard as it happens; nothing else is printed.

python examples/watch_training.py
"""

import bertworks
from bertworks.train.events import Evaluated, Event, Trained

WORDS = {"good": ["fine", "great", "lovely"], "bad": ["dull", "awful", "boring"]}
rows = [
    {"text": f"A {word} film, said viewer {number}.", "label": label}
    for number in range(20)
    for label, words in WORDS.items()
    for word in words
]


def show(event: Event) -> None:
    if isinstance(event, Trained):
        print(f"step {event.step:3}  loss {event.terms['class']:.3f}  learning rate {event.lr:.1e}")
    elif isinstance(event, Evaluated):
        print(f"step {event.step:3}  dev accuracy {event.metrics['accuracy']:.2f}")


settings = {"optim.lr": 1e-4, "train.evaluations": 3}
run = bertworks.finetune(rows, model="minilm", steps=12, out="films-run", settings=settings, on_event=show)
print(run.predict(["What an awful evening."])[0])
