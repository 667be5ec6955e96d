"""What the theory says of a composition, before anything is trained."""
