"""poise's parts for apps of Flower: `poise.flower.strategies` (needs ``pip install
'poise[flower]'``).
"""
