"""The machine we run on: the processes we start, the files we hash, what is installed."""
