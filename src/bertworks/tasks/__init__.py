"""What a fine-tuned model can be asked. A shape is one file: classify.py, regress.py, multilabel.py, tag.py, span.py,
choice.py.

`shapes.py` is the one table of them. docs/develop/add-a-task.md says what another shape takes.
"""
