"""Pages that need nothing else, in two languages: what a run came to, what the tour saw, what a model is trained on."""
