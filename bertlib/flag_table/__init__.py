"""Contains the table of flags. Definition, help, bounds, record and documentation follow from an entry."""
