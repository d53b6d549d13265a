"""The code of the commands, in rooms: a folder for each concern. See docs/development/house.md."""
