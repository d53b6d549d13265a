"""Contains functions for files, locks, processes, terminals, downloads and network namespaces."""
