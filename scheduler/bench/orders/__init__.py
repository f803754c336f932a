"""Orders by local search beside the published ones of CrossPipe (arXiv 2507.00217)."""
