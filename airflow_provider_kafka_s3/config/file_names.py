"""Templates of file names, with the variables of Aiven's connector: ``{{topic}}-{{partition}}-{{start_offset}}``.

Names are also parsed: partition and offset of an object are those of its name. So both have to be in it, once, and
apart from each other.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from airflow_provider_kafka_s3.config.values import reject_control_characters, require
from airflow_provider_kafka_s3.messages import or_nearest

__all__ = ["Part", "Variable", "parse_file_name_template"]

_Name = Literal["topic", "partition", "start_offset"]


class Variable(NamedTuple):
    """A variable of a template.

    Attributes:
        name: of it.
        width: numbers are zero-padded to so many digits.
    """

    name: _Name
    width: int


Part: TypeAlias = "str | Variable"

_VARIABLE: Final = re.compile(r"\{\{\s*([^{}:]*?)\s*(?::([^{}]*?))?\s*\}\}")
_NUMBERS: Final = ("partition", "start_offset")
_PADDED: Final = {"partition": 10, "start_offset": 20}
_EXAMPLE: Final = "'{{topic}}-{{partition}}-{{start_offset}}'"
_NOT_HERE: Final = {
    "timestamp": "names do not depend on the clock; use a partitioner by time, which makes folders",
    "key": "an object holds records of many keys; use partitioner='key', which makes folders",
}


def parse_file_name_template(template: str) -> tuple[Part, ...]:
    """The texts and variables of a template.

    Raises:
        ConfigurationError: it lacks partition or offset, has another variable, or two objects could have one name.
    """
    label = f"file_name_template={template!r}"
    reject_control_characters("file_name_template", template)
    parts: list[Part] = []
    end = 0
    for match in _VARIABLE.finditer(template):
        parts += [template[end : match.start()], _variable(label, match[1], match[2])]
        end = match.end()
    parts = [part for part in (*parts, template[end:]) if part != ""]
    text = "\0".join(part for part in parts if isinstance(part, str))
    require("{{" not in text and "}}" not in text, f"{label} has braces that do not belong together; use {_EXAMPLE}")
    require("/" not in text, f"{label} has '/', which makes folders; folders are those of the partitioner")
    require(
        not template.startswith(("_", ".")),
        f"{label} begins with '_' or '.': readers skip files with such names; begin with another character",
    )
    names = [part.name for part in parts if isinstance(part, Variable)]
    missing = [f"{{{{{name}}}}}" for name in _NUMBERS if name not in names]
    require(
        not missing, f"{label} has no {' and no '.join(missing)}, so objects would have the same name; use {_EXAMPLE}"
    )
    require(
        all(names.count(name) == 1 for name in _NUMBERS), f"{label} has a number twice; use each of its variables once"
    )
    first, second = (i for i, part in enumerate(parts) if isinstance(part, Variable) and part.name in _NUMBERS)
    between = "".join(part for part in parts[first:second] if isinstance(part, str))
    require(
        re.search("[^0-9]", between) is not None,
        f"{label} has nothing but digits between partition and offset, so they would be ambiguous; use {_EXAMPLE}",
    )
    return tuple(parts)


def _variable(given: str, name: str, option: str | None) -> Variable:
    known = get_args(_Name)
    require(name not in _NOT_HERE, f"{given} has the variable {name!r}: {_NOT_HERE.get(name)}")
    use = f"use {', '.join(known)}"
    require(name in known, f"{given} has the unknown variable {name!r}{or_nearest(name, known, use)}")
    require(
        option is None or (name in _NUMBERS and option in ("padding=true", "padding=false")),
        f"{given} has the unknown option {option!r} of {name}; partition and start_offset have padding=true",
    )
    return Variable(cast("_Name", name), _PADDED[name] if option == "padding=true" else 0)
