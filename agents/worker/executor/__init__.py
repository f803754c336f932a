"""Runs the plan of one rank: what it computes, in which order, with which weights, over which messages."""
