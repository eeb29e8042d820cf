"""A tuning: what was measured about a workload, and what follows for the index.

`nearcast pipeline tune` writes one as JSON; `Matcher(tuning=…)` takes it. The fields are
described in docs/pipeline.md. A tuning that no longer fits costs speed, never answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from nearcast.errors import ValidationError
from nearcast.index import registry
from nearcast.model.letters import letters_of, prefix_span
from nearcast.model.schema import Schema

__all__ = ["FORMAT", "GivenTuning", "Tuning", "coded_options", "read_tuning"]

#: The version of the format, in the field `nearcast_tuning`.
FORMAT = 1

GivenTuning: TypeAlias = "Tuning | Mapping[str, Any] | str | os.PathLike[str]"
"""A tuning, its JSON value, or the path of a file that holds it."""


@dataclass(frozen=True)
class Tuning:
    """The JSON value of a tuning, checked."""

    value: Mapping[str, Any]

    @property
    def index(self) -> str:
        """The index that suits the workload."""
        return str(self.value["index"])

    def options(self, index: str) -> dict[str, Any]:
        """What the tuning says for this index, as its options; attributes still by name."""
        found = self.value.get("options", {}).get(registry.entry(index).name, {})
        return dict(found)

    def settle(self, index: str, schema: Schema) -> tuple[str, dict[str, Any]]:
        """The index to take where `index` was asked for, and its options in a schema's codes."""
        chosen = self.index if index == "auto" else index
        options = self.options(chosen)
        return chosen, coded_options(options, schema)


def coded_options(options: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Options of an index with attributes by name in a schema's codes.

    An attribute is `{"name", "low", "high"}` or (name, low, high); "@x" and "@y" are the place.
    With ends that are strings it is the first letters of a string attribute.
    """
    given = options.get("attributes")
    if not isinstance(given, list | tuple):
        return dict(options)
    return {**options, "attributes": [_coded(attribute, schema) for attribute in given]}


def _coded(attribute: Any, schema: Schema) -> Any:
    if isinstance(attribute, Mapping):
        try:
            attribute = attribute["name"], attribute["low"], attribute["high"]
        except KeyError:
            raise ValidationError(
                "attributes", dict(attribute), "give name, low and high of each"
            ) from None
    if not isinstance(attribute, list | tuple) or not attribute:
        return attribute
    name, *ends = attribute
    if not isinstance(name, str):
        return attribute  # a column; the index looks at it
    if len(ends) == 2 and all(isinstance(end, str) for end in ends):
        if not schema.letters:
            raise ValidationError(
                "attributes", attribute, "strings are indexed with Matcher(letters=True)"
            )
        return (schema.letters_column(name), letters_of(ends[0]), prefix_span(ends[1])[1])
    place = {"@x": 0, "@y": 1}
    try:
        ends = [float(end) for end in ends]
    except (TypeError, ValueError, OverflowError):
        raise ValidationError(
            "attributes", attribute, "give (name, low, high) in numbers"
        ) from None
    return (place[name] if name in place else schema.column(name, "number"), *ends)


def read_tuning(given: GivenTuning) -> Tuning:
    """A tuning from what stands for it; ValidationError says what is wrong with it."""
    if isinstance(given, Tuning):
        return given
    value = _loaded(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(value, Mapping) or value.get("nearcast_tuning") != FORMAT:
        raise ValidationError(
            "tuning", given, f"give what `nearcast pipeline tune` writes, of version {FORMAT}"
        )
    index, options = value.get("index"), value.get("options", {})
    if not isinstance(index, str):
        raise ValidationError("tuning.index", index, "give the name of an index")
    registry.entry(index)
    if not isinstance(options, Mapping) or not all(
        isinstance(each, Mapping) for each in options.values()
    ):
        raise ValidationError("tuning.options", options, "give an object of options by index")
    for name, each in options.items():
        _check_attributes(name, each.get("attributes", []))
    return Tuning(value)


def _check_attributes(index: str, attributes: Any) -> None:
    field = f"tuning.options.{index}.attributes"
    if not isinstance(attributes, list):
        raise ValidationError(field, attributes, "give a list of {name, low, high}")
    for attribute in attributes:
        try:
            fits = isinstance(attribute["name"], str) and (
                float(attribute["low"]) <= float(attribute["high"])
            )
        except (KeyError, TypeError, ValueError):
            fits = False
        if not fits:
            raise ValidationError(field, attribute, "give {name, low, high} with low ≤ high")


def _loaded(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValidationError("tuning", os.fspath(path), f"it cannot be read ({error})") from None
