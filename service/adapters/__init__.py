"""The ports' adapters: the only place that knows the wall clock, randomness, threads and Redis."""
