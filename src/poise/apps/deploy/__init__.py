"""The same experiment on real nodes: Flower carries it, the engine and the ledger are those of
every run.
"""
