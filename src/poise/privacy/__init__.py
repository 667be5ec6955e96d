"""The (epsilon, delta) guarantee of a request to forget: the Gaussian mechanism, and the budget
that it spends.
"""
