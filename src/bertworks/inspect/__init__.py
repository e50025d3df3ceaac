"""Looking inside a model: attention of a text, and what the heads of a model do over a corpus."""
