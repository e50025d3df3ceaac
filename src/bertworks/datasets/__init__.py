"""Reads users' files: tables and their columns, other formats, inputs for a trained model; reports invalid rows.

No torch in here. A `Schema` defines how a row becomes an example; each task shape has its own (`tasks/<shape>.py`).
"""
