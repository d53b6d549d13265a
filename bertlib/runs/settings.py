"""Stores the values of a command's flags, and completes them with defaults. The flags of absl stay unchanged.
"""

from collections.abc import Callable
import functools

from absl import logging

from bertlib.runs.output_directory import OutputDirectory, find_training

# Flags of the phases of a run. If none of these flags is given, a command trains and evaluates.
PHASES = ("do_train", "do_eval", "do_predict")


class Settings:
    """Stores the values of all flags of a command. They are read and set like attributes. Each command
    creates one such object when it starts. A task sets missing flags in `Task.resolve`,
    `Task.load_config_and_tokenizer` and `Task.read`. Then `driver.run` calls `freeze`, and no flag changes
    after that.

    Attributes:
      open_directory: function that takes a path and returns its `OutputDirectory`.
      mapped_labels: {label in the files: label of the model}, the content of --label_map; {} without it. It
        is stored like the value of a flag, because run.json contains it.
    """

    _values: dict  # {name of a flag: its value}
    _is_frozen: bool  # see `freeze`
    _entries: dict
    _given: set
    _taken: set  # names of the flags whose values are from the record of a training
    _find_training: Callable

    def __init__(self, values, given=(), entries=None):
        """Stores the values of flags.

        Args:
          values: {name of a flag: its value}.
          given: names of the flags that the command line contains.
          entries: {name of a flag: its `entries.Flag`}, the flags that this project defines.
        """
        vars(self).update(  # attributes that are set otherwise are flags, see `__setattr__`
            _values={**values, "mapped_labels": {}}, _is_frozen=False,
            _entries=dict(entries or {}), _given=set(given), _taken=set(),
            # All calls with the same path return the same object; see `reopen`.
            open_directory=functools.cache(OutputDirectory), _find_training=functools.cache(find_training))

    def freeze(self):
        """Makes the values final. From now on, setting one is an error in the code: the record of the run and
        the Estimator already contain them."""
        vars(self)["_is_frozen"] = True

    def __getattr__(self, name):
        """Returns the value of a flag."""
        if hasattr(type(self), name):  # a property that has raised an AttributeError; this call repeats it
            return super().__getattribute__(name)
        values = vars(self).get("_values", {})
        if name not in values:
            raise AttributeError(f"{name}: the command has no flag of this name.")
        return values[name]

    def __setattr__(self, name, value):
        """Sets the value of a flag. Raises an AttributeError after `freeze`."""
        if self._is_frozen:
            raise AttributeError(f"{name}: the flags of this run are final, see `Settings.freeze`.")
        if hasattr(type(self), name):  # raises an error for a property
            super().__setattr__(name, value)
        self._values[name] = value

    def __copy__(self):
        """Returns an object whose flags can be changed without a change of these flags."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), _values=dict(self._values))
        return other

    def __contains__(self, name):
        """Returns whether the command has a flag of this name."""
        return name in self._values

    def get(self, name, default=None):
        """Returns the value of a flag; `default` if the command has no flag of this name."""
        return self._values.get(name, default)

    def entries(self, *classes):
        """Returns the entries of the command's flags that belong to one of the given classes. Without
        classes, returns all entries. The flags of absl are left out."""
        return [entry for entry in self._entries.values() if not classes or entry.category in classes]

    def is_given(self, name):
        """Returns whether the flag was on the command line."""
        return name in self._given

    def is_fixed(self, name):
        """Returns whether no default may replace the value of a flag: it was on the command line, or comes
        from the record of a training."""
        return name in self._given or name in self._taken

    def inherit(self, values):
        """Sets flags that are not on the command line to their values in the record of a training. The caller
        has to log these values.

        Args:
          values: {name of a flag: its value}.
        """
        for name, value in values.items():
            setattr(self, name, value)
        self._taken.update(values)

    @property
    def output_directory(self):
        """The `OutputDirectory` of --output_dir, as it was when the run read it; see `reopen`."""
        return self.open_directory(self.get("output_dir"))

    @property
    def results_directory(self):
        """The `OutputDirectory` of --results_dir. This is `output_directory` if the paths are equal."""
        return self.open_directory(self.results_dir)

    def reopen(self):
        """Makes the directories and the trainings below read the files again.

        Call this method if the files may have changed: when the directory was locked, and when a training
        has ended.
        """
        self.open_directory.cache_clear()
        self._find_training.cache_clear()

    # --- The trainings to which a run refers, each an `OutputDirectory` or None
    #
    #                        --output_dir has     otherwise, a training     otherwise
    #                        a checkpoint         saved --init_checkpoint
    #   earlier_training     --output_dir         that training             None
    #   reused_training      --output_dir         None if the run trains,   None
    #                                             otherwise that training
    #   evaluated_training   `earlier_training`; always None if the run trains

    @property
    def earlier_training(self):
        """The training that this run continues or evaluates, or that saved its starting weights."""
        return self.output_directory if self.output_directory.latest_checkpoint else self._find_training(
            self.get("init_checkpoint"))

    @property
    def evaluated_training(self):
        """The training whose weights this run evaluates. None if the run trains."""
        return None if self.get("do_train") else self.earlier_training

    @property
    def reused_training(self):
        """The training that this run continues or evaluates. None if the run begins a new training."""
        return self.output_directory if self.output_directory.latest_checkpoint else self.evaluated_training

    # --- Defaults

    def choose_phases(self):
        """Sets --do_train and --do_eval to true if none of the flags in `PHASES` was given.

        Raises:
          ValueError: such flags were given, but none of them is true.
        """
        phases = [name for name in PHASES if name in self]
        if any(getattr(self, name) for name in phases):
            return
        given = [name for name in phases if self.is_given(name)]
        if given:
            raise ValueError(f"Nothing to do: --{given[0]} is on the command line, so all other phases are "
                             f"false. At least one of {', '.join(f'--{name}' for name in phases)} must be "
                             "true.")
        self.set_default("do_train", True)
        self.set_default("do_eval", True)

    def resolve_results_dir(self):
        """Sets --results_dir to --output_dir if it was not given."""
        if self.results_dir is None:
            self.results_dir = self.output_dir

    def set_default(self, name, value, why=""):
        """Sets a flag that was not given, and logs its value.

        Args:
          name: the flag.
          value: its value.
          why: the reason for this value, for the log.
        """
        setattr(self, name, value)
        logging.info("--%s not given: using %s%s", name, value, f" ({why})" if why else "")
