"""The node daemon and the stage worker."""
