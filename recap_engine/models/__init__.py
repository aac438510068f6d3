"""Loading: which transformers models are known, on what device and in what precision, and how they are asked."""
