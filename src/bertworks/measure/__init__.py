"""How good predictions are: metrics as the papers have them, their intervals, and confidence that is what it says. No
torch in here."""
