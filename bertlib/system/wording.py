"""Words of log lines and error messages."""


def counted(number, noun):
    """Returns a number with its noun, such as "1 run" or "8 runs".

    Args:
      number: int.
      noun: the noun in singular. Its plural ends with "s".
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
