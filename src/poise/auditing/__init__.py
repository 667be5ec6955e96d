"""Who only pretends to work: what the server reads of every update, detectors, and one score per client."""
