"""One program for each side: python -m workers.NAME, started by the driver in this folder's parent."""
