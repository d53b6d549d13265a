"""Implements a run from its settings to its results. All commands share this layer.

`Settings` are the values of a command's flags. This layer checks the settings, compares them with the record
of a training (`run_record`), reads the data, and trains, evaluates, predicts and exports. This layer does not
read the command line, and importing its modules does not change the process, for example its environment
variables. The package `bertlib.command_line` reads the command line and sets environment variables.
"""
