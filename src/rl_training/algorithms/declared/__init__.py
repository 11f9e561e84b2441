"""One file for each algorithm: its options, how it is built, and what it is called. None of them imports torch."""
