"""From files of text to training examples. No torch in here."""
