"""Parts of pages: one file each, in two languages, with nothing fetched from anywhere."""
