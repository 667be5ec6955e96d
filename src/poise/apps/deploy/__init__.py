"""Deployments: run experiments on real nodes, through Flower, with poise's engine and ledger."""
