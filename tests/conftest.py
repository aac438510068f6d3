"""Settings of every test."""

import os

# One thread for tiny models: more gain nothing and, where other work runs, wait for each other; see recap_engine.threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
