"""Text to tokens and back. No torch in here."""
