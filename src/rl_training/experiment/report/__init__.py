"""Pages about runs: a report in one file (``page.py``), and what it shares with the live page of ``watch``."""
