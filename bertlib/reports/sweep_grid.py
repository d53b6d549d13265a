"""Makes the runs of a sweep from --grid: all combinations of the values, or a random sample of them."""

import hashlib
import itertools
import math

from bertlib.reports.sweep_runs import Run

_MAX_RUNS = 10_000


def parse(texts, parse_value):
    """Returns the grid, {flag: list of values as text}.

    Args:
      texts: list of str, the values of --grid, such as "seed=0,1".
      parse_value: function that takes the name of a flag and a text. It returns the value in one standard
        notation, so that equal values, such as 5e-5 and 0.00005, have equal texts. It raises a ValueError if
        the command does not accept the value.

    Raises:
      ValueError: the grid is empty, a part of it cannot be read, or a value occurs twice.
    """
    if not texts:
        raise ValueError("--grid is missing. Pass a flag of the training command and its values, such as "
                         "--grid=learning_rate=5e-5,3e-5.")
    grid = {}
    for text in texts:
        name, has_values, values = text.partition("=")
        name = name.strip().removeprefix("--")
        if not (name and has_values):
            raise ValueError(f"--grid={text}: write the name of a flag of the training command, an equals "
                             "sign, and the values with commas between them. Example: --grid=seed=0,1")
        if name in grid:
            raise ValueError(f"--grid={text}: an earlier --grid already lists values of {name}. Write all "
                             "values of a flag in one --grid.")
        parsed_values = []
        for value in map(str.strip, values.split(",")):
            if not value:
                raise ValueError(f"--grid={text}: a value is empty. Remove the comma, or fill in the value.")
            try:
                parsed_values.append(parse_value(name, value))
            except ValueError as error:
                raise ValueError(f"--grid={text}: {error}") from error
            if parsed_values[-1] in parsed_values[:-1]:
                raise ValueError(f"--grid={text}: the value {value} occurs twice. Write this value only "
                                 "once.")
        grid[name] = parsed_values
    return grid


def list_runs(grid, samples, sample_seed):
    """Returns the `Run`s of a grid, in the order of the grid. The value of the last flag changes fastest.

    Args:
      grid: the result of `parse`.
      samples: number of runs to draw from the grid; None for all runs. A larger sample contains all runs of a
        smaller sample. The order of the flags and of the values in the grid does not change the sample.
      sample_seed: seed of the draw.

    Raises:
      ValueError: the grid has fewer runs than `samples`, or more runs than `_MAX_RUNS`.
    """
    number = math.prod(map(len, grid.values()))
    if number > _MAX_RUNS:
        raise ValueError(f"The grid has {number:,} runs. A sweep can have at most {_MAX_RUNS:,}. Remove some "
                         "values.")
    runs = [Run(dict(zip(grid, values))) for values in itertools.product(*grid.values())]
    if samples is None:
        return runs
    if samples > len(runs):
        raise ValueError(f"--samples={samples}: the grid has only {len(runs)} runs. Pass a smaller number, "
                         "or leave --samples out to run the whole grid.")
    def drawn(run):
        content = f"{sample_seed} {sorted(run.settings.items())}"
        return hashlib.blake2b(content.encode(), digest_size=16).digest()

    sample = {run.name for run in sorted(runs, key=drawn)[:samples]}
    return [run for run in runs if run.name in sample]
