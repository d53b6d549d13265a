"""A run from its settings to its results: the layer that all commands share.

`Settings` are the values of a command's flags. This layer checks them, compares them with the record of a
training (`run_record`), reads the data, and trains, evaluates, predicts and exports. It does not read the
command line, and importing its modules does not change the process (`bertlib.command_line` does both).
"""
