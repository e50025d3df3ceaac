"""Shapes of tasks (code), data sets (rows of a table), and how both are measured."""
