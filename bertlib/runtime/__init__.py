"""Old names of modules that moved to other packages. The next version removes them."""
