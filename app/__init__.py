"""The page of RECAP Inspector: what a visitor sees and does. It imports `recap_engine`, never the other way round."""
