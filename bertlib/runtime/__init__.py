"""Old names of modules that other rooms hold now. The next version removes them."""
