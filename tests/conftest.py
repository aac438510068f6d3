"""Settings of every test."""

import os

# Tiny models gain nothing from more threads, which wait for each other where other work runs; see recap_engine.threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
