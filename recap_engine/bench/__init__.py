"""Measures the lanes side by side on fresh pictures: `python -m recap_engine.bench`."""
