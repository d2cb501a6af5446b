"""Coded errors for a wrong command line: an unknown option or command, a missing or malformed value."""

from __future__ import annotations

import re
from typing import Any

import typer

from veilboost.errors import InvalidParameter
from veilboost.fields import closest, renamed

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # Typer brings its own copy of Click and does not export it


def coded(error: Any) -> InvalidParameter:
    """The error that Typer raised as one of ours."""
    context: Any = error.ctx
    command = "veilboost" if context is None else str(context.command_path)
    see = f"`{command} --help` lists the options"
    kind, message = type(error).__name__, str(error.message).rstrip(".")
    if kind == "NoSuchOption":
        return _unknown_option(str(error.option_name), command, context, see)
    if context is not None and "o such command" in message:
        return _unknown_command(message, command, context)
    parameter = getattr(error, "param", None)
    if parameter is None:
        return InvalidParameter(f"{command}: {message[:1].lower()}{message[1:]}", see)
    name = _name(parameter)
    if kind == "MissingParameter":
        return InvalidParameter(f"{command} needs {name}", f"add {name}; {see}")
    return InvalidParameter(f"{name}: {message}", f"`{command} --help` shows what {name} accepts")


def _unknown_option(option: str, command: str, context: Any, see: str) -> InvalidParameter:
    known = (
        []
        if context is None
        else [
            name
            for item in context.command.params
            for name in (*item.opts, *item.secondary_opts)
            if name.startswith("--")
        ]
    )
    new = renamed(option, known)
    if new is not None:
        return InvalidParameter(f"the option {option} was renamed to {new}", f"use {new}")
    close = closest(option, known)
    return InvalidParameter(f"{command} has no option {option}", f"did you mean {close}?" if close else see)


def _unknown_command(message: str, command: str, context: Any) -> InvalidParameter:
    found = re.search(r"'(.*?)'", message)
    name, known = "" if found is None else found[1], list(context.command.commands)
    close = closest(name, known)
    see = f"`{command} --help` lists the commands"
    return InvalidParameter(f"{command} has no command {name!r}", f"did you mean {command} {close}?" if close else see)


def _name(parameter: Any) -> str:
    """`--to FILE` for an option, `MODEL` for an argument."""
    metavar = str(parameter.metavar or "")
    if parameter.param_type_name != "option":
        return metavar or str(parameter.name).upper()
    return " ".join(filter(None, (str(parameter.opts[0]), metavar)))
