"""The (epsilon, delta) guarantee of unlearning: the Gaussian mechanism and its budget."""
