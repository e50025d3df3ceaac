"""Building blocks of HTML pages: self-contained, in English and Chinese, one script that draws, nothing fetched."""
