"""Extension of griffe for the API reference: the values of defaults, and docstrings that are put together at import."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

from veilboost.config import DEFAULTS

PREFIX = "DEFAULTS."


class Imported(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if (source := str(attr.value)).startswith(PREFIX):
            attr.value = repr(getattr(DEFAULTS, source.removeprefix(PREFIX)))

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if "__doc__" in cls.members:
            made = inspect.getdoc(getattr(import_module(cls.module.path), cls.name)) or ""
            cls.docstring = griffe.Docstring(_with_notes(made), parent=cls)


def _with_notes(text: str) -> str:
    """A paragraph after the parameters, which would be read as one of them, becomes the section Notes."""
    before, title, after = text.partition("Parameters\n----------\n")
    after = re.sub(r"\n\n(?=\S)(?!\w+ : |\w+\n-)", "\n\nNotes\n-----\n", after, count=1)
    return before + title + after
