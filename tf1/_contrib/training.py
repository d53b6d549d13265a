"""tf.contrib.training: hyperparameters by name."""

import json
import numbers
import re

_ASSIGNMENT = re.compile(r"\s*([a-zA-Z][\w.]*)\s*=\s*(?:\[([^\]]*)\]|([^,\[]*))\s*(?:,|$)")


class HParams(object):
    """Named values, each of which keeps the type that it started with. They are attributes.

    A list is a value of several; its first element has the type.
    """

    def __init__(self, hparam_def=None, model_structure=None, **kwargs):
        """Creates hyperparameters.

        Args:
          hparam_def: what `to_proto` returns. A protocol buffer of TensorFlow 1 is not supported.
          model_structure: any object to keep.
          **kwargs: names and values.
        """
        if not isinstance(hparam_def, (HParams, type(None))):
            raise ValueError("HParams(hparam_def=…): TensorFlow removed that protocol buffer. Give names and "
                             "values: HParams(learning_rate=0.1, …).")
        if hparam_def is not None:
            kwargs = hparam_def.values()
        self._hparam_types = {}  # {name: (type, whether it is a list)}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        """Adds a hyperparameter.

        Raises:
          ValueError: the name is taken, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        several = isinstance(value, (list, tuple))
        if several and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}. The first "
                             "element has the type.")
        self._hparam_types[name] = (type(value[0] if several else value), several)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        """Sets a hyperparameter, as the type that it has.

        Raises:
          KeyError: there is none of that name.
          ValueError: the value is a list and the hyperparameter is none, or the other way round, or it is not
            of that type: a whole number may become a float, but a float no whole number.
        """
        if name not in self._hparam_types:
            raise KeyError(f"Unknown hyperparameter: {name}; known: "
                           f"{', '.join(sorted(self._hparam_types)) or 'none'}.")
        kind, several = self._hparam_types[name]
        if isinstance(value, list) != several:
            raise ValueError(f"Must {'pass' if several else 'not pass'} a list for the "
                             f"{'multi' if several else 'single'}-valued parameter {name}: {value!r}")
        setattr(self, name, [_cast(name, kind, one) for one in value] if several
                else _cast(name, kind, value))

    def del_hparam(self, name):
        """Removes a hyperparameter, if there is one of that name."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values):
        """Sets hyperparameters from a text "name=value,name=[value,value],…"; returns self.

        Raises:
          ValueError: the text is malformed, has a name twice or an unknown one, or a value of another type.
        """
        return self.override_from_dict(parse_values(values, {
            name: kind for name, (kind, _) in self._hparam_types.items()}))

    def override_from_dict(self, values_dict):
        """Sets hyperparameters from a dict; returns self. Errors are those of `set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    set_from_map = override_from_dict

    def parse_json(self, values_json):
        """Sets hyperparameters from a JSON object; returns self. Errors are those of `set_hparam`."""
        return self.override_from_dict(json.loads(values_json))

    def values(self):
        """Returns {name: value}."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def to_json(self, indent=None, separators=None, sort_keys=False):
        """Returns the values as JSON; functions are left out."""
        return json.dumps(_without_functions(self.values()), indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def get(self, key, default=None):
        """Returns a value; `default` if there is none of that name.

        Raises:
          ValueError: the default is not of the hyperparameter's type.
        """
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, several = self._hparam_types[key]
            if isinstance(default, list) != several:
                raise ValueError(f"Hparam {key!r}: the default {default!r} is incompatible, because the "
                                 f"value is {'a list' if several else 'no list'}.")
            for one in default if several else [default]:
                _cast(key, kind, one)
        return getattr(self, key)

    def to_proto(self, export_scope=None):
        """Returns a copy, to create other hyperparameters from; export_scope is ignored."""
        return type(self)(hparam_def=self)

    def set_model_structure(self, model_structure):
        """Keeps an object."""
        self._model_structure = model_structure

    def get_model_structure(self):
        """Returns the object that is kept."""
        return self._model_structure

    def __contains__(self, key):
        return key in self._hparam_types

    def __str__(self):
        return str(sorted(self.values().items()))

    def __repr__(self):
        return f"{type(self).__name__}({self})"


def _cast(name, kind, value):
    """A value as the type; ValueError if it is not of that kind."""
    if kind is type(None):
        return value
    both = (str, bytes), (bool,)
    wrong = any(issubclass(kind, types) != isinstance(value, types) for types in both)
    for number in (numbers.Integral, numbers.Number):
        wrong |= issubclass(kind, number) and not isinstance(value, number)
    if wrong:
        raise ValueError(f"Could not cast hparam {name!r} of type {kind.__name__!r} from value {value!r}")
    return kind(value)


def _without_functions(value):
    if isinstance(value, dict):
        return {key: _without_functions(one) for key, one in value.items() if not callable(one)}
    if isinstance(value, (list, tuple)):
        return [_without_functions(one) for one in value if not callable(one)]
    return value


def parse_values(values, type_map, ignore_unknown=False):
    """Returns {name: value or list of values} of a text "name=value,name=[value,value],…".

    Args:
      values: the text. A value ends at a comma.
      type_map: {name: type}.
      ignore_unknown: whether to leave out other names.

    Raises:
      ValueError: the text is malformed, has a name twice or an unknown one, or a value of another type.
    """
    found, position = {}, 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if not match:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = match.end()
        name, several, one = match.groups()
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}; known: "
                             f"{', '.join(sorted(type_map)) or 'none'}.")
        if name in found:
            raise ValueError(f"Multiple assignments to variable {name!r} in {values!r}")
        found[name] = _parsed(name, type_map[name], one.strip()) if several is None else [
            _parsed(name, type_map[name], part) for part in re.split(r"[ ,]", several) if part]
    return found


def _parsed(name, kind, text):
    try:
        if kind is bool:
            return {"true": True, "True": True, "false": False, "False": False}.get(text) if (
                text.isalpha()) else bool(int(text))
        return text if kind is type(None) else kind(text)
    except ValueError as error:
        raise ValueError(f"Could not parse hparam {name!r} of type {kind.__name__!r}: {text!r}") from error
