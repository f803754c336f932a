"""Low-rank codecs of the boundaries between stages, learned while the model is (MAPL, arXiv 2606.05484)."""
