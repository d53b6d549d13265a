"""The code of the commands. Each folder, called a room, has one concern. See docs/development/house.md."""
