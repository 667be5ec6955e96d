"""A Flower app on scikit-learn's digits."""
