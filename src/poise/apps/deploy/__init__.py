"""Deployments: experiments on real nodes through Flower and poise's own engine."""
