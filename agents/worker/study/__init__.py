"""What the weight rules do to what is learned: all stages in one process, on a model of a few thousand weights."""
