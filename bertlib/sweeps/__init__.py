"""Contains the code of sweep.py: many runs of one training command, with the settings of a grid."""
