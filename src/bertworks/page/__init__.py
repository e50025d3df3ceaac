"""Building blocks of HTML pages: self-contained, in English and Chinese, no scripts, nothing fetched."""
