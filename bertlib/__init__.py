"""The code of the commands. docs/development/packages.md describes what each package does."""
