"""Uses the operating system: files, locks, processes, terminals, downloads, network namespaces."""
