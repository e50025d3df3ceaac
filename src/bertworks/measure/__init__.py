"""Metrics as the papers define them, their confidence intervals, and calibration. No torch in here."""
