"""`aiokafkawire demo`: a cluster, a producer, a group of workers, and bad luck half way.

`inputs` reads the lines and counts them straight; `cluster` and `worker` are processes of their
own (`children` keeps them); `results` is the workers' store; `play` tells the story, `view` shows
it, `verdict` compares.
"""
