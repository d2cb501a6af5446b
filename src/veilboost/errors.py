"""Every error a person can meet, one stable code each.

The text is always `VB-nnnn: what is wrong; what to do`. `docs/reference/errors/` has a page per code.
That text is for the owner of the data it speaks of: it may name columns, files and tables. A peer is told the code and
the fixed `summary` of the class, unless whoever raises the error says that its text is public.
Errors about what was put in are also `ValueError`, so that scikit-learn and callers who never heard of us
treat them as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class VeilBoostError(Exception):
    """The root of the tree. Subclasses that can be raised carry a `code`, a `summary` and a default `fix`.

    Parameters
    ----------
    what
        What is wrong.
    fix
        What to do; the default of the class where it is not given.
    public
        Whether `what` and `fix` may be sent to a peer, or a text to send in their place. It must hold nothing of the
        owner: no name of a column, table, file or class, no value, no id, no count that the job does not reveal.
    """

    code: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    fix: ClassVar[str] = ""

    def __init__(self, what: str, fix: str | None = None, public: bool | str = False) -> None:
        self.what = what
        self.remedy = fix or self.fix
        self.public = public
        super().__init__(f"{self.code}: {what}; {self.remedy}")

    def __reduce__(self) -> tuple[type[VeilBoostError], tuple[str, str, bool | str]]:
        return type(self), (self.what, self.remedy, self.public)  # so that an error of a worker arrives as it left

    def for_peer(self) -> tuple[str, str]:
        """What is wrong and what to do, as a peer may read it; the second is empty where only the owner can act."""
        if isinstance(self.public, str):
            return self.public, ""
        return (self.what, self.remedy) if self.public else (self.summary, "")


def coded_errors() -> Iterator[type[VeilBoostError]]:
    """All error classes that carry a code, in order of their codes."""

    def walk(cls: type[VeilBoostError]) -> Iterator[type[VeilBoostError]]:
        if cls.code:
            yield cls
        for child in cls.__subclasses__():
            yield from walk(child)

    return iter(sorted(set(walk(VeilBoostError)), key=lambda cls: cls.code))


# --- 10xx: parameters -------------------------------------------------------------------------------------


class ParameterError(VeilBoostError, ValueError):
    """What was asked for cannot be."""


class UnknownProtocol(ParameterError):
    code = "VB-1001"
    summary = "a protocol is not known"
    fix = "`veilboost protocols` lists the names"


class InvalidParameter(ParameterError):
    code = "VB-1002"
    summary = "a parameter is outside its range"
    fix = "choose a value in the stated range"


class MissingExtra(ParameterError):
    code = "VB-1003"
    summary = "an optional part of VeilBoost is not installed"
    fix = "install the optional part it names"


class UnsupportedCombination(ParameterError):
    code = "VB-1004"
    summary = "two settings do not go together"
    fix = "change one of the two"


class UnknownDataset(ParameterError):
    code = "VB-1005"
    summary = "a data set is not known"
    fix = "`veilboost datasets` lists the names"


# --- 11xx: a party's table --------------------------------------------------------------------------------


class DataError(VeilBoostError, ValueError):
    """A party's table is not fit for training or prediction."""


class UnreadableFile(DataError):
    code = "VB-1101"
    summary = "the party's data cannot be read"
    fix = "check that the path exists, is readable and holds the format its name says"


class UnknownFormat(DataError):
    code = "VB-1102"
    summary = "the party's data is in a format that is not known"
    fix = "use parquet, csv, libsvm, arrow, a pandas or polars frame, or an SQL query"


class DuplicateIds(DataError):
    code = "VB-1103"
    summary = "an id occurs more than once in the party's table"
    fix = "keep one row per id"


class MissingLabel(DataError):
    code = "VB-1104"
    summary = "the label is missing"
    fix = "name the label column of the active party"


class LabelNotANumber(DataError):
    code = "VB-1105"
    summary = "a row has no label"
    fix = "drop or fill the rows without a label"


class LabelOutOfRange(DataError):
    code = "VB-1106"
    summary = "a label does not fit the objective"
    fix = "recode the labels or choose another objective"


class ConstantColumn(DataError):
    code = "VB-1107"
    summary = "a column of the party has one value only"
    fix = "drop the column (it cannot split anything) or allow constant columns"


class EmptyColumn(DataError):
    code = "VB-1108"
    summary = "a column of the party is empty"
    fix = "drop the column, every value of it is missing"


class MixedTypes(DataError):
    code = "VB-1109"
    summary = "a column of the party mixes numbers and text"
    fix = "make the column all numbers or all text, or declare it categorical"


class InfiniteValues(DataError):
    code = "VB-1110"
    summary = "a column of the party has infinite values"
    fix = "replace infinite values by a large number or by a missing value"


class IdIsFeature(DataError):
    code = "VB-1111"
    summary = "the id column of the party is also a feature"
    fix = "take the id column out of the features: it identifies people and cannot generalise"


class MissingColumn(DataError):
    code = "VB-1112"
    summary = "a column that the party's settings or model name is missing"
    fix = "check the column's name"


class EmptyTable(DataError):
    code = "VB-1113"
    summary = "the party's table has no row or no feature"
    fix = "give at least one row and, for a passive party, one feature"


class MissingId(DataError):
    code = "VB-1114"
    summary = "a row of the party has no id"
    fix = "give every row an id"


class DuplicateColumns(DataError):
    code = "VB-1115"
    summary = "two columns have the same name"
    fix = "give every column of every party a name of its own"


# --- 12xx: alignment --------------------------------------------------------------------------------------


class AlignmentError(VeilBoostError, ValueError):
    """The parties' rows do not belong together."""


class EmptyIntersection(AlignmentError):
    code = "VB-1201"
    summary = "the parties have no rows in common"
    fix = "check that all parties use the same kind of id, written the same way"


class RowsDiffer(AlignmentError):
    code = "VB-1202"
    summary = "the parties' rows differ"
    fix = "give every party the same rows, or ids to align them by"


class FalseIntersection(AlignmentError):
    code = "VB-1203"
    summary = "the common rows that were sent are not common"
    fix = "do not train on this: ask whoever computes the common rows, and align again"


# --- 13xx: models -----------------------------------------------------------------------------------------


class ModelError(VeilBoostError):
    """A stored or trained model cannot be used as asked."""


class UnreadableModel(ModelError):
    code = "VB-1301"
    summary = "the party's model cannot be read"
    fix = "point to a folder that `--save` or `save()` wrote"


class DamagedModel(ModelError):
    code = "VB-1302"
    summary = "the party's model is damaged"
    fix = "restore the file from a copy: its checksum does not fit its content"


class ModelVersion(ModelError):
    code = "VB-1303"
    summary = "the party's model was written by another release"
    fix = "use the VeilBoost release that wrote the model, or train again"


class MissingShare(ModelError):
    code = "VB-1304"
    summary = "a part of the model is missing"
    fix = "bring the parts of all parties together first"


class NotExportable(ModelError):
    code = "VB-1305"
    summary = "the model cannot be exported"
    fix = "predict with VeilBoost itself"


class ForeignColumns(ModelError, ValueError):
    code = "VB-1306"
    summary = "the party's columns are not those of its model"
    fix = "give the party's columns as they were in training"


# --- 14xx: messages ---------------------------------------------------------------------------------------


class WireError(VeilBoostError):
    """A message is not what it should be; the receiver refused it."""


class MalformedMessage(WireError):
    code = "VB-1401"
    summary = "a message does not have the form that the protocol asks for"
    fix = "the sender must speak the same protocol version"


class UnknownMessage(WireError):
    code = "VB-1402"
    summary = "a message is of a type that is not known"
    fix = "both sides must run the same protocol and version"


class UnexpectedMessage(WireError):
    code = "VB-1403"
    summary = "a message came out of its turn"
    fix = "start the session again: the two sides are out of step"


class WireVersion(WireError):
    code = "VB-1404"
    summary = "the two sides speak different wire versions"
    fix = "install the same VeilBoost release at both parties"


class DamagedPacket(WireError):
    code = "VB-1405"
    summary = "a packet was damaged on its way"
    fix = "the request is sent again by itself; if it goes on, check the network between the parties"


class OversizedMessage(WireError):
    code = "VB-1406"
    summary = "a message is larger than the receiver allows"
    fix = "raise the receiver's limit on message size, or train with fewer bins"


class ReplayedRequest(WireError):
    code = "VB-1407"
    summary = "a request was repeated with other content, or came too late"
    fix = "start the session again: a request came twice with different content, or long after its turn"


class StaleSession(WireError):
    code = "VB-1408"
    summary = "the session is not known to the party"
    fix = "resume the job, or start it anew"


class PeerUnreachable(WireError):
    code = "VB-1409"
    summary = "a party that is needed cannot be reached"
    fix = "check that the party runs, and the address and firewall between the two"


class PeerRefused(WireError):
    code = "VB-1410"
    summary = "a party that is needed refused"
    fix = "ask the party's owner: the log of its daemon and `veilboost jobs show` there say why"


class InconsistentSplit(WireError):
    code = "VB-1411"
    summary = "a split does not add up to the sums by which it was chosen"
    fix = "ask the party it names to check its software and its data, then start the job anew under another name"


# --- 15xx: arithmetic -------------------------------------------------------------------------------------


class ArithmeticRange(VeilBoostError, ValueError):
    """Numbers that exact sums cannot hold."""


class GradientRange(ArithmeticRange):
    code = "VB-1501"
    summary = "a gradient is outside the range of exact sums"
    fix = "scale labels and weights down, or check a custom objective for NaN and infinity"


# --- 16xx: parties: certificates, settings, policy --------------------------------------------------------


class PartyError(VeilBoostError):
    """A party's certificates, settings or policy refuse it."""


class UnreadableCertificate(PartyError):
    code = "VB-1601"
    summary = "a certificate or key of the party cannot be read"
    fix = "check the path, and that the user who runs this may read it"


class NotACertificate(PartyError):
    code = "VB-1602"
    summary = "a file is not a certificate or key"
    fix = "use the files that `veilboost certs` writes"


class CertificateExpired(PartyError):
    code = "VB-1603"
    summary = "a certificate has expired or is not valid yet"
    fix = "issue a new certificate, and check this machine's clock"


class KeyMismatch(PartyError):
    code = "VB-1604"
    summary = "a key does not belong to its certificate"
    fix = "use the key that was written together with the certificate"


class ExposedKey(PartyError):
    code = "VB-1605"
    summary = "a private file of the party can be read by others"
    fix = "chmod 600 the file; if others could have read it, revoke its certificate and issue a new one"


class ForeignCertificate(PartyError):
    code = "VB-1606"
    summary = "a certificate is of another authority"
    fix = "all parties of a federation need certificates of one authority"


class UnknownPeer(PartyError):
    code = "VB-1607"
    summary = "the party's policy does not name this peer"
    fix = "the owner can add the certificate's fingerprint under [policy.peers]"


class CertificateRevoked(PartyError):
    code = "VB-1608"
    summary = "a certificate is revoked"
    fix = "ask the authority for a new certificate"


class WouldOverwrite(PartyError):
    code = "VB-1609"
    summary = "a file would be overwritten"
    fix = "choose another place, or say --force to replace it"


class UnreadableSettings(PartyError):
    code = "VB-1610"
    summary = "settings cannot be read"
    fix = "check the path and the TOML; `veilboost init` writes a file to start from"


class ImpossibleSetting(PartyError, ValueError):
    code = "VB-1611"
    summary = "a setting is not possible"
    fix = "`veilboost init` writes a file that explains every key"


class AgainstPolicy(PartyError):
    code = "VB-1612"
    summary = "the owner's policy forbids it"
    fix = "only the owner of the policy can allow it"


# --- 17xx: jobs -------------------------------------------------------------------------------------------


class JobError(VeilBoostError):
    """A job between parties cannot go on."""


class TableBusy(JobError):
    code = "VB-1701"
    summary = "the party's table is in use by another job"
    fix = "wait for the other job to end, or cancel it"


class CheckpointFailed(JobError):
    code = "VB-1702"
    summary = "the party cannot write to its disk"
    fix = "free space in the runs folder, then resume the job: everything up to the last checkpoint is kept"


class NothingToResume(JobError):
    code = "VB-1703"
    summary = "the party has nothing to resume"
    fix = "start the job without --resume"


class JobExists(JobError):
    code = "VB-1704"
    summary = "the party has a run of this name already"
    fix = "resume it, give the new job another name, or remove the run folder"


class JobCancelled(JobError):
    code = "VB-1705"
    summary = "the job was cancelled"
    fix = "resume it when it should go on"


class UnknownRun(JobError):
    code = "VB-1706"
    summary = "the party has no such run"
    fix = "`veilboost jobs list` shows the runs of a party"


class PeerBroken(JobError):
    code = "VB-1707"
    summary = "the party met an unexpected error"
    fix = "look into that party's own log, which says more, and resume the job"


class WorkersLost(JobError):
    code = "VB-1708"
    summary = "the party lost its workers"
    fix = "look after the cluster (`ray status`), then resume the job; the engine local needs none"


# --- 18xx: privacy ----------------------------------------------------------------------------------------


class PrivacyError(VeilBoostError):
    """What was released cannot be booked, or its book cannot be believed."""


class DamagedLedger(PrivacyError):
    code = "VB-1801"
    summary = "the party's privacy ledger cannot be used"
    fix = "do not train on this table before its owner has looked: restore the ledger with its .head file from a copy"
