"""FedAvg in Flower, without poise."""
