"""Fine-tuning tasks. Each shape is one file: classify.py, regress.py, multilabel.py, tag.py, span.py, choice.py.

`shapes.py` is the table of them. docs/develop/add-a-task.md describes how to add one.
"""
