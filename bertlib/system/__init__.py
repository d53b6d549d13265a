"""The operating system: files, locks, signals, processes, terminals, downloads and network namespaces."""
