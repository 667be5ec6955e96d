"""poise's parts for existing Flower apps (``pip install 'poise[flower]'``)."""
