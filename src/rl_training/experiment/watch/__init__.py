"""Looking at runs while they go: a page on this machine (``server.py``), or a terminal (``text.py``)."""
