"""The code of the commands. Each package has one concern. See docs/development/house.md."""
