"""Every query. Functions over a session: records out, plain values in."""
