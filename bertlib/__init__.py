"""The code of the commands. docs/development/house.md describes what each package does."""
