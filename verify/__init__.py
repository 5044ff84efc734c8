"""Tools that judge a Kafka client by what its applications and its brokers observe."""
