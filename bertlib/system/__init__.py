"""Uses the machine: files, locks, processes, replicas (processes that train together), downloads."""
