"""The one room that reads users' files: tables, their columns, other formats, inputs for a trained model, and what is
wrong with them.

No torch in here. How a row becomes an example is said by a `Schema`; each shape of task brings its own
(`tasks/<shape>.py`).
"""
