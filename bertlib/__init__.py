"""What the commands are made of: a room for each concern. `docs/house.md` says which imports which."""
