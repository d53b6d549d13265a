"""Defines tf.contrib.training: named hyperparameters."""

import json
import numbers
import re

_ASSIGNMENT = re.compile(r"\s*([a-zA-Z][\w.]*)\s*=\s*(?:\[([^\]]*)\]|([^,\[]*))\s*(?:,|$)")


class HParams:
    """Holds named values as attributes. A name keeps the type of its first value.

    A value can be a list. The type of its elements is the type of the first element.
    """

    def __init__(self, hparam_def=None, model_structure=None, **kwargs):
        """Creates hyperparameters.

        Args:
          hparam_def: hyperparameters to copy, in the form that `to_proto` returns. A protocol buffer of
            TensorFlow 1 is not supported.
          model_structure: ignored.
          **kwargs: names and values.

        Raises:
          ValueError: hparam_def is a protocol buffer, or `add_hparam` refuses a value.
        """
        if not isinstance(hparam_def, (HParams, type(None))):
            raise ValueError("HParams(hparam_def=…): TensorFlow removed the protocol buffer of "
                             "hyperparameters. Pass names and values instead: HParams(learning_rate=0.1, …).")
        if hparam_def is not None:
            kwargs = hparam_def.values()
        self._hparam_types = {}  # {name: (type, whether it is a list)}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        """Adds a hyperparameter.

        Raises:
          ValueError: the object already has an attribute with this name, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"HParams already has an attribute {name}. Choose a different name for the "
                             "hyperparameter.")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"The hyperparameter {name} is an empty list. Pass at least one element, "
                             "because the first element defines the type.")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        """Sets a hyperparameter. The value is converted to the type of the hyperparameter.

        Raises:
          KeyError: no hyperparameter has this name.
          ValueError: only one of the hyperparameter and the value is a list, or the value cannot be
            converted. For example, an integer can become a float, but a float cannot become an integer.
        """
        if name not in self._hparam_types:
            raise KeyError(_unknown(name, self._hparam_types))
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list) != is_list:
            raise ValueError(f"Must {'pass' if is_list else 'not pass'} a list for the "
                             f"{'multi' if is_list else 'single'}-valued parameter {name}: {value!r}")
        setattr(self, name, [_cast(name, kind, element) for element in value] if is_list else (
            _cast(name, kind, value)))

    def del_hparam(self, name):
        """Removes a hyperparameter, if it exists."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values):
        """Sets hyperparameters from a text such as "name=value,name=[value,value]". Returns self.

        Raises:
          ValueError: the text is malformed, a name is unknown or occurs twice, or a value does not have the
            type of its hyperparameter.
        """
        return self.override_from_dict(parse_values(values, {
            name: kind for name, (kind, _) in self._hparam_types.items()}))

    def override_from_dict(self, values_dict):
        """Sets hyperparameters from a dict; returns self. Raises the same errors as `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json):
        """Sets hyperparameters from a JSON object; returns self. Raises the same errors as `set_hparam`."""
        return self.override_from_dict(json.loads(values_json))

    def values(self):
        """Returns the hyperparameters as a dict: {name: value}."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def to_json(self, indent=None, separators=None, sort_keys=False):
        """Returns the values as JSON. Values that are functions are left out."""
        values = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(values, indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key, default=None):
        """Returns the value of a hyperparameter; `default` if it does not exist."""
        return getattr(self, key) if key in self._hparam_types else default

    def to_proto(self, export_scope=None):
        """Returns a copy of the hyperparameters, which can be passed as the argument hparam_def. The argument
        export_scope is ignored."""
        return type(self)(hparam_def=self)

    def __contains__(self, key):
        return key in self._hparam_types

    def __str__(self):
        return str(sorted(self.values().items()))

    def __repr__(self):
        return f"{type(self).__name__}({self})"


def _unknown(name, known):
    return f"Unknown hyperparameter {name}; the known ones are {', '.join(sorted(known)) or 'none'}."


def _cast(name, kind, value):
    """Converts a value to a type. Raises ValueError if the value has an incompatible type."""
    if kind is type(None):
        return value
    # A hyperparameter that is a text takes only a text, and one that is a bool takes only a bool. No other
    # hyperparameter takes a text or a bool.
    wrong = any(issubclass(kind, types) != isinstance(value, types) for types in ((str, bytes), (bool,)))
    for number in (numbers.Integral, numbers.Number):
        wrong |= issubclass(kind, number) and not isinstance(value, number)
    if wrong:
        raise ValueError(f"The hyperparameter {name!r} must have the type {kind.__name__}; the value "
                         f"{value!r} cannot be converted")
    return kind(value)


def parse_values(values, type_map):
    """Parses a text such as "name=value,name=[value,value]".

    Args:
      values: the text. A value ends at a comma.
      type_map: {name: type}.

    Returns:
      {name: value or list of values}.

    Raises:
      ValueError: the text is malformed, a name is unknown or occurs twice, or a value does not have the type
        that type_map gives for its name.
    """
    parsed, position = {}, 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if not match:
            raise ValueError(f"The hyperparameters cannot be read: {values[position:]!r} does not begin with "
                             "name=value or name=[value,value]. Separate several hyperparameters by commas.")
        position = match.end()
        name, elements, single = match.groups()
        if name not in type_map:
            raise ValueError(_unknown(name, type_map))
        if name in parsed:
            raise ValueError(f"The hyperparameter {name!r} occurs more than once in {values!r}")
        parsed[name] = _parsed(name, type_map[name], single.strip()) if elements is None else [
            _parsed(name, type_map[name], part) for part in re.split(r"[ ,]", elements) if part]
    return parsed


def _parsed(name, kind, text):
    try:
        if kind is bool:
            return {"true": True, "True": True, "false": False, "False": False}.get(text) if (
                text.isalpha()) else bool(int(text))
        return text if kind is type(None) else kind(text)
    except ValueError as error:
        raise ValueError(f"The hyperparameter {name!r} must have the type {kind.__name__}; found "
                         f"{text!r}") from error
