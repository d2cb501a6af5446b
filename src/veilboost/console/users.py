"""The users of the console: names, roles, and Argon2id hashes of their passwords, in one private file."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nacl.exceptions import CryptoError
from nacl.pwhash import argon2id

from veilboost import durable
from veilboost.crypto.csprng import Csprng
from veilboost.durable import file_stamp, keeping
from veilboost.errors import DamagedState, ExposedKey, InvalidParameter, UnreadableCertificate
from veilboost.fields import FORMS

Role = Literal["viewer", "approver"]
ROLES: tuple[Role, ...] = ("viewer", "approver")
FILE = "console.json"  # in the runs folder
FORMAT = 1
SHORTEST, LONGEST = 12, 1024  # characters of a password


@dataclass(frozen=True)
class User:
    """One person. An approver also decides, cancels, withdraws and audits."""

    role: Role
    hash: str

    @property
    def approves(self) -> bool:
        return self.role == "approver"


class Users:
    """The users file of a party. Changes count at once, also in a console that runs."""

    def __init__(self, file: Path) -> None:
        self._file, self._hashing = file, threading.Lock()
        self._known: tuple[object, Mapping[str, User]] = None, {}

    @property
    def all(self) -> Mapping[str, User]:
        stamp = file_stamp(self._file)
        if stamp is None:
            return {}
        if self._known[0] != stamp:
            self._known = stamp, self._read()
        return self._known[1]

    def add(self, name: str, role: str, password: str) -> bool:
        """Add a user, or change the role and password of one. Whether it is a new one."""
        if not FORMS["party"].fits(name):
            raise InvalidParameter(f"{name!r} is not the name of a user", f"use {FORMS['party'].text}")
        if role not in ROLES:
            raise InvalidParameter(f"{role!r} is not a role of the console", f"use one of {', '.join(ROLES)}")
        if not SHORTEST <= len(password) <= LONGEST:
            raise InvalidParameter(
                f"the password has {len(password)} characters", f"choose one of {SHORTEST} to {LONGEST} characters"
            )
        known = dict(self.all)
        new = name not in known
        self._write(known | {name: User(role, argon2id.str(password.encode()).decode())})
        return new

    def remove(self, name: str) -> None:
        known = dict(self.all)
        if known.pop(name, None) is None:
            raise InvalidParameter(f"there is no user {name!r}", "veilboost console users lists them")
        self._write(known)

    def admit(self, name: str, password: str) -> User | None:
        """The user, if the password is right. Takes as long for an unknown name, and is computed once at a time."""
        user = self.all.get(name)
        with self._hashing:  # each needs 64 MB
            try:
                argon2id.verify((_NOBODY if user is None else user.hash).encode(), password[: LONGEST + 1].encode())
            except (CryptoError, ValueError):
                return None
        return user

    def _read(self) -> dict[str, User]:
        try:
            found: Any = json.loads(durable.read_small(self._file, private=True))
            return {str(name): _user(each) for name, each in found["users"].items()}
        except ExposedKey as error:
            raise ExposedKey(error.what, f"chmod 600 {self._file}") from None
        except (UnreadableCertificate, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedState(
                f"{self._file} cannot be read", "delete it, and add the users again with veilboost console add-user"
            ) from error

    def _write(self, users: Mapping[str, User]) -> None:
        content = {"format": FORMAT, "users": {name: asdict(user) for name, user in sorted(users.items())}}
        with keeping("the users of the console cannot be written"):
            durable.make_folder(self._file.parent)
            durable.replace_file(self._file, json.dumps(content, indent=2).encode())


def _user(fields: Mapping[str, Any]) -> User:
    if fields["role"] not in ROLES or not isinstance(fields["hash"], str):
        raise ValueError("not a user")
    return User(fields["role"], fields["hash"])


def random_token() -> str:
    """A password for a program, or the key of a session: 256 random bits."""
    return Csprng().bytes(32).hex()


_NOBODY = argon2id.str(random_token().encode()).decode()
