"""`aiokafkawire demo`: a cluster, a producer, a group of workers, and failures half way.

`inputs` reads the lines and counts their words without Kafka; `cluster` and `worker` run as
separate processes, which `children` manages; `results` is the workers' store; `demo_run` runs the
demo, `view` shows it, `comparison` compares the counts.
"""
