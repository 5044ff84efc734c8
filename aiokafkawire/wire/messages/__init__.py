"""The messages of Kafka's protocol, one module an API, imported when first needed."""
