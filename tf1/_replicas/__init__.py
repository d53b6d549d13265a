"""Scripts that run as several replicas, with Horovod or without."""
