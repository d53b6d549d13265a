"""Multiple choice: chooses the most plausible ending of a text, as in SWAG."""
