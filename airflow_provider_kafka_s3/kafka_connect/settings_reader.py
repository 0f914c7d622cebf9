"""Reads the settings of one configuration, and collects what is wrong with them: all of it is one error."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka_connect.settings import CONFLUENT, DEVIANTART, Sink, Use, is_secret, replaces
from airflow_provider_kafka_s3.messages import count, either, nearest

__all__ = ["Note", "SettingsReader", "own_class"]

T = TypeVar("T")

_REFERENCE: Final = re.compile(r"\$\{[^{}]*:[^{}]*\}")


@dataclass(frozen=True)
class Note:
    """What became of a setting.

    Attributes:
        name: of the setting.
        use: a parameter, a field of a connection, nothing, or a warning.
        text: in words; never with the value of a secret.
    """

    name: str
    use: Use
    text: str


class SettingsReader:
    """Settings by their names. A wrong one is collected, and its default is returned."""

    def __init__(self, settings: Mapping[str, str], given: Collection[str] = (), sink: Sink = CONFLUENT) -> None:
        """Sort out settings that are unknown, refused, or replaced by a parameter.

        Args:
            settings: of the connector.
            given: parameters of the operator that replace settings.
            sink: kind of the connector.
        """
        self.sink = sink
        self._settings: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._notes: dict[str, Note] = {}
        for name, value in settings.items():
            setting = self.sink.find(name)
            if setting is None:
                self._unknown(name)
            elif setting.parameter in given:
                self.note(name, f"replaced by the parameter {setting.parameter}", use="none")
            elif setting.use in ("warning", "refused") and not value.strip():
                self.note(name, "no effect: it is empty", use="none")
            elif setting.use == "refused":
                self.refuse(name, setting.here)
            elif setting.use == "warning":
                is_class = name.endswith(".type") and name.count(".") == 2
                self.note(name, f"{value.strip()} is left out: {replaces(value)}" if is_class else setting.here)
            elif setting.use != "none" and not is_secret(setting) and _REFERENCE.search(value):
                self.refuse(name, f"{value!r} is resolved by a worker of Connect; write the value itself")
            else:
                self._settings[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def _unknown(self, name: str) -> None:
        """Refuse a name that looks misspelt, or is one of another sink; Connect ignores others, which may be newer."""
        flaw = f"is not a setting of {self.sink.name}"
        if near := self.sink.misspelt(name):
            self.refuse(name, f"{flaw}; did you mean {near!r}?")
        elif any(sink.find(name) for sink in (CONFLUENT, DEVIANTART)):
            near = nearest(name, self.sink.known_names)
            self.refuse(name, f"{flaw}; " + (f"did you mean {near!r}?" if near else "remove it"))
        else:
            self.note(name, f"{flaw} that is known, and looks like none: Connect ignores such settings", use="warning")

    def refuse(self, name: str, reason: str) -> None:
        """Collect what is wrong with a setting, and what to do."""
        self._problems.setdefault(name, reason)

    def note(self, name: str, text: str, *, use: Use | None = None) -> None:
        """Set what became of a setting, in place of what the table says."""
        setting = self.sink.find(name)
        self._notes[name] = Note(name, use or (setting.use if setting else "none"), text)

    def without_effect(self, names: Iterable[str], reason: str) -> None:
        """Note that settings have no effect in Connect either."""
        for name in names:
            if name in self:
                self.note(name, f"no effect: {reason}", use="none")

    def attempt(self, name: str, make: Callable[[], T]) -> T | None:
        """A value that checks itself; None if it is wrong, which is collected."""
        try:
            return make()
        except ConfigurationError as e:
            self.refuse(name, str(e))
            return None

    # -- values -------------------------------------------------------------------------------------------------------

    def required(self, name: str, why: str) -> str | None:
        """A text that there has to be."""
        text = self.text(name)
        if not text and name not in self._problems:
            self.refuse(name, f"is missing: {why}")
        return text or None

    def raw(self, name: str, default: str) -> str:
        """A text with the blanks around it."""
        return self._settings.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """A text; Connect removes blanks around it."""
        return self._settings.get(name, default).strip()

    def names(self, name: str) -> tuple[str, ...]:
        """A list, separated by commas."""
        text = self.text(name)
        return tuple(part.strip() for part in text.split(",")) if text else ()

    def number(self, name: str, default: int) -> int:
        """A whole number."""
        text = self.text(name, str(default))
        if re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII) is None:
            self.refuse(name, f"{text!r} must be a whole number")
            return default
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return self.choice(name, {"true": True, "false": False}, str(default).lower())

    def choice(self, name: str, choices: Mapping[str, T], default: str) -> T:
        """One of several words, whatever their case."""
        text = self.text(name) or default
        by_lower = {word.lower(): value for word, value in choices.items()}
        if text.lower() not in by_lower:
            near = nearest(text, choices)
            self.refuse(name, f"{text!r} must be {either(choices)}" + (f"; did you mean {near!r}?" if near else ""))
            return by_lower[default.lower()]
        return by_lower[text.lower()]

    def one_class(self, name: str, classes: Mapping[str, T], default: str, remedy: str) -> T | None:
        """What stands for a Java class, which is named in full, or without its package.

        Args:
            name: of the setting.
            classes: what stands for each class, by full names.
            default: full name.
            remedy: for a class that is none of them.
        """
        text = self.text(name) or default
        by_short = {full.rpartition(".")[2]: value for full, value in classes.items()}
        if text in classes:
            return classes[text]
        if text in by_short:
            return by_short[text]
        near = nearest(text, classes)
        self.refuse(name, f"{text!r} is not supported; {remedy}" + (f". Did you mean {near!r}?" if near else ""))
        return None

    # -- results ------------------------------------------------------------------------------------------------------

    def notes(self) -> tuple[Note, ...]:
        """What became of each setting, in their order in the configuration."""
        for name in self._settings:
            setting = self.sink.find(name)
            if name not in self._notes and setting is not None:
                text = setting.here.removeprefix("secret: ")
                self.note(name, f"{text}. It is a secret, so it is not shown" if is_secret(setting) else text)
        return tuple(self._notes.values())

    def require_no_problems(self) -> None:
        """Raise all that is wrong as one error.

        Raises:
            ConfigurationError: a setting is unknown, refused, missing or wrong.
        """
        if self._problems:
            lines = "\n".join(f"  {name}: {reason}" for name, reason in self._problems.items())
            number = count(len(self._problems), "setting")
            raise ConfigurationError(f"the connector cannot be converted, because of {number}:\n{lines}")


def own_class(parameter: str) -> str:
    """The parameter that replaces a class in Java by one in Python."""
    kind = {"partitioner": "CustomPartitioner", "format": "CustomFormat"}[parameter]
    return f"from_connect_config(..., {parameter}={kind}(import_path='mypackage.module:MyClass'))"
