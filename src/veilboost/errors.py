"""All user-facing errors, each with a stable code.

The text is always `VB-nnnn: what is wrong; what to do`. `docs/reference/errors/` has a page for each code. The text is
for the owner of the data: it may name columns, files and tables. A peer receives only the code and the fixed `summary`
of the class, unless the raising code marks its text as public.

Errors about input are also `ValueError`, so that scikit-learn and other callers can handle them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class VeilBoostError(Exception):
    """The base class. Subclasses that are raised define a `code`, a `summary` and a default `fix`.

    Parameters
    ----------
    what
        What is wrong.
    fix
        What to do; by default the `fix` of the class.
    public
        Whether `what` and `fix` may be sent to a peer, or a text to send instead. It must hold no data of the owner:
        no name of a column, table, file or class, no value, no id, no count that the job does not reveal.
    """

    code: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    names_data: ClassVar[bool] = False  # whether the text may name columns or quote values: then no log repeats it

    def __init__(self, what: str, fix: str | None = None, public: bool | str = False) -> None:
        self.what = what
        self.remedy = fix or self.fix
        self.public = public
        super().__init__(f"{self.code}: {what}; {self.remedy}")

    def __reduce__(self) -> tuple[type[VeilBoostError], tuple[str, str, bool | str]]:
        return type(self), (self.what, self.remedy, self.public)  # workers send errors pickled

    def for_peer(self) -> tuple[str, str]:
        """What is wrong and what to do, as sent to a peer; the second text is empty if only the owner can act."""
        if isinstance(self.public, str):
            return self.public, ""
        return (self.what, self.remedy) if self.public else (self.summary, "")


def printable(text: str) -> str:
    """Text of a peer for a person: control and direction characters, which a terminal obeys, are shown as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def coded_errors() -> Iterator[type[VeilBoostError]]:
    """All error classes with a code, ordered by code."""

    def walk(cls: type[VeilBoostError]) -> Iterator[type[VeilBoostError]]:
        if cls.code:
            yield cls
        for child in cls.__subclasses__():
            yield from walk(child)

    return iter(sorted(set(walk(VeilBoostError)), key=lambda cls: cls.code))


# --- 10xx: parameters -------------------------------------------------------------------------------------


class ParameterError(VeilBoostError, ValueError):
    """A parameter or a combination of parameters is invalid."""


class UnknownProtocol(ParameterError):
    code = "VB-1001"
    summary = "the protocol does not exist"
    fix = "run `veilboost protocols` to list the names"


class InvalidParameter(ParameterError):
    code = "VB-1002"
    summary = "a parameter is invalid"
    fix = "correct the parameter that the message names; docs/reference/parameters.md lists types and ranges"


class MissingExtra(ParameterError):
    code = "VB-1003"
    summary = "an optional dependency is not installed"
    fix = "run pip install 'veilboost[all]'"


class UnsupportedCombination(ParameterError):
    code = "VB-1004"
    summary = "two settings cannot be combined"
    fix = "change or remove one of the settings that the message names"


class UnknownDataset(ParameterError):
    code = "VB-1005"
    summary = "the data set does not exist"
    fix = "run `veilboost datasets` to list the names"


# --- 11xx: a party's table --------------------------------------------------------------------------------


class DataError(VeilBoostError, ValueError):
    """A party's table cannot be used for training or prediction."""

    names_data = True


class UnreadableFile(DataError):
    code = "VB-1101"
    summary = "the party's data cannot be read"
    fix = "check that the path exists, that you may read it, and that its content matches its file extension"


class UnknownFormat(DataError):
    code = "VB-1102"
    summary = "the format of the party's data is not supported"
    fix = "use parquet, csv, libsvm, arrow, a pandas or polars frame, or an SQL query"


class DuplicateIds(DataError):
    code = "VB-1103"
    summary = "an id occurs more than once in the party's table"
    fix = "keep one row per id"


class MissingLabel(DataError):
    code = "VB-1104"
    summary = "the label is missing"
    fix = "name the label column: --label COLUMN, or label under [data] in the settings of the active party"


class LabelNotANumber(DataError):
    code = "VB-1105"
    summary = "a row has no label"
    fix = "drop the rows without a label, or fill in their labels"


class LabelOutOfRange(DataError):
    code = "VB-1106"
    summary = "a label does not fit the objective"
    fix = "recode the labels, or set another objective (--objective, or objective under [training])"


class ConstantColumn(DataError):
    code = "VB-1107"
    summary = "a column of the party is constant"
    fix = 'drop the column with --constant drop (constant = "drop" under [data]), or keep it with --constant keep'


class EmptyColumn(DataError):
    code = "VB-1108"
    summary = "a column of the party is empty"
    fix = 'drop the column with --constant drop (constant = "drop" under [data]), or keep it with --constant keep'


class MixedTypes(DataError):
    code = "VB-1109"
    summary = "a column of the party mixes numbers and text"
    fix = (
        "convert the column to numbers or to text, list markers of missing values in missing_values under [data], or "
        "name it in --categorical (categorical under [data])"
    )


class InfiniteValues(DataError):
    code = "VB-1110"
    summary = "a column of the party has infinite values"
    fix = "replace infinite values by a finite number or by a missing value"


class IdIsFeature(DataError):
    code = "VB-1111"
    summary = "the id column of the party is also a feature"
    fix = "remove the id column from the features: an id identifies a record and does not generalise"


class MissingColumn(DataError):
    code = "VB-1112"
    summary = "a column that the party's settings or model name is missing"
    fix = "check the name of the column in the command, the settings or the table"


class EmptyTable(DataError):
    code = "VB-1113"
    summary = "the party's table has no row or no feature"
    fix = "provide at least one row and, for a passive party, at least one feature"


class MissingId(DataError):
    code = "VB-1114"
    summary = "a row of the party has no id"
    fix = "fill in the missing ids, or drop these rows"


class DuplicateColumns(DataError):
    code = "VB-1115"
    summary = "two columns have the same name"
    fix = "rename one of the columns: names must be unique across all parties"


# --- 12xx: alignment --------------------------------------------------------------------------------------


class AlignmentError(VeilBoostError, ValueError):
    """The rows of the parties cannot be aligned."""


class EmptyIntersection(AlignmentError):
    code = "VB-1201"
    summary = "the parties have no rows in common"
    fix = "check that all parties use the same kind of id in the same format"


class RowsDiffer(AlignmentError):
    code = "VB-1202"
    summary = "the parties' rows differ"
    fix = "give every party the same rows, or an id column to align them by (--id, or id under [data])"


class FalseIntersection(AlignmentError):
    code = "VB-1203"
    summary = "the received intersection is wrong"
    fix = "do not train on these rows: ask the operator of the csp, then run the job again"


# --- 13xx: models -----------------------------------------------------------------------------------------


class ModelError(VeilBoostError):
    """A stored or trained model cannot be used as asked."""


class UnreadableModel(ModelError):
    code = "VB-1301"
    summary = "the party's model cannot be read"
    fix = "give a folder that `--save` or `save()` wrote"


class DamagedModel(ModelError):
    code = "VB-1302"
    summary = "the party's model is damaged"
    fix = "restore the file from a backup: its checksum does not match its content"


class ModelVersion(ModelError):
    code = "VB-1303"
    summary = "the party's model was written by another release"
    fix = "install the VeilBoost release that wrote the model, or train again"


class MissingShare(ModelError):
    code = "VB-1304"
    summary = "a model share is missing"
    fix = "put the model shares of all parties into one folder, with the index.json beside them"


class NotExportable(ModelError):
    code = "VB-1305"
    summary = "the model cannot be exported"
    fix = "predict with VeilBoost"


class ForeignColumns(ModelError, ValueError):
    code = "VB-1306"
    names_data = True
    summary = "the party's columns are not those of its model"
    fix = "provide the columns of training, with the same names and types"


# --- 14xx: messages ---------------------------------------------------------------------------------------


class WireError(VeilBoostError):
    """The receiver refused a message, or a peer did not answer."""


class MalformedMessage(WireError):
    code = "VB-1401"
    summary = "a message does not have the format that the protocol requires"
    fix = "install the same VeilBoost release at all parties"


class UnknownMessage(WireError):
    code = "VB-1402"
    summary = "the type of a message is unknown"
    fix = "use the same protocol and the same VeilBoost release at both parties"


class UnexpectedMessage(WireError):
    code = "VB-1403"
    summary = "a message arrived out of order"
    fix = "start the job again: the states of the two parties differ"


class WireVersion(WireError):
    code = "VB-1404"
    summary = "the two parties use different wire versions"
    fix = "install the same VeilBoost release at both parties"


class DamagedPacket(WireError):
    code = "VB-1405"
    summary = "a packet was damaged in transit"
    fix = "the request is repeated automatically; if the error persists, check the network between the parties"


class OversizedMessage(WireError):
    code = "VB-1406"
    summary = "a message is larger than the receiver allows"
    fix = "raise max_message_mb under [limits] in the receiver's settings, or lower max_bin in the job"


class ReplayedRequest(WireError):
    code = "VB-1407"
    summary = "a request was repeated with different content, or arrived too late"
    fix = "start or resume the job, which opens a new session"


class StaleSession(WireError):
    code = "VB-1408"
    summary = "the party does not know the session"
    fix = "a driver that still runs resumes by itself; otherwise run `veilboost train JOB --config FILE --resume` there"


class PeerUnreachable(WireError):
    code = "VB-1409"
    summary = "a required party cannot be reached"
    fix = "check that `veilboost party serve` runs at that party, then its address and the firewall in between"


class PeerRefused(WireError):
    code = "VB-1410"
    summary = "a required party refused the request"
    fix = "ask the owner of that party: its daemon log and `veilboost jobs show` there have the full reason"


class InconsistentSplit(WireError):
    code = "VB-1411"
    summary = "a split is inconsistent with the sums by which it was chosen"
    fix = "ask the named party to check its software and its data, then start the job again with another name"


class LimitReached(WireError):
    code = "VB-1412"
    summary = "a peer uses as much of the party as the party allows"
    fix = "end other jobs and predictions of this peer, or raise the limit under [limits] in the settings of the party"


class StaleIndex(WireError):
    code = "VB-1413"
    summary = "the rows of a deployment have changed"
    fix = "ask again: the changes are fetched by themselves"


class DeploymentEnded(WireError):
    code = "VB-1414"
    summary = "a deployment was withdrawn, or its time is over"
    fix = "run `veilboost deploy RUN --config FILE` at the active party, if the owners agree to a new deployment"


class ApprovalPending(WireError):
    code = "VB-1415"
    summary = "a person at the party decides about the proposal"
    fix = "run the same command again later, or train with --wait"


class ApprovalRefused(WireError):
    code = "VB-1416"
    summary = "the owner of the party refused the proposal, or the time for its approval is over"
    fix = "ask the owner of that party; then change the job, or propose it again when the refusal is over"


# --- 15xx: arithmetic -------------------------------------------------------------------------------------


class ArithmeticRange(VeilBoostError, ValueError):
    """A number is outside the range of exact sums."""


class GradientRange(ArithmeticRange):
    code = "VB-1501"
    summary = "a gradient is outside the range of exact sums"
    fix = "scale labels and weights down, or check a custom objective for NaN and infinity"


# --- 16xx: parties: certificates, settings, policy --------------------------------------------------------


class PartyError(VeilBoostError):
    """A party's certificates, settings or policy prevent the operation."""


class UnreadableCertificate(PartyError):
    code = "VB-1601"
    summary = "a certificate or key of the party cannot be read"
    fix = "check the path, and that the user who runs VeilBoost may read the file"


class NotACertificate(PartyError):
    code = "VB-1602"
    summary = "a file is not a certificate or key"
    fix = "use the files that `veilboost certs issue` wrote"


class CertificateExpired(PartyError):
    code = "VB-1603"
    summary = "a certificate has expired or is not valid yet"
    fix = "get a new one with `veilboost certs renew NAME`, and check this machine's clock"


class KeyMismatch(PartyError):
    code = "VB-1604"
    summary = "a key does not match its certificate"
    fix = "use the .key file that was issued together with the .crt file"


class ExposedKey(PartyError):
    code = "VB-1605"
    summary = "other users can read a private file of the party"
    fix = "run chmod 600 on the file; if others may have read it, revoke its certificate and issue a new one"


class ForeignCertificate(PartyError):
    code = "VB-1606"
    summary = "another authority issued the certificate"
    fix = "use certificates of one authority at all parties of the federation"


class UnknownPeer(PartyError):
    code = "VB-1607"
    summary = "the party's policy does not admit this peer"
    fix = "the owner can add the fingerprint of the certificate under [policy.peers]"


class CertificateRevoked(PartyError):
    code = "VB-1608"
    summary = "a certificate is revoked"
    fix = "ask the operator of the authority for a new certificate"


class WouldOverwrite(PartyError):
    code = "VB-1609"
    summary = "a file would be overwritten"
    fix = "choose another path, or add --force to overwrite it"


class UnreadableSettings(PartyError):
    code = "VB-1610"
    summary = "a settings file cannot be read"
    fix = "check the path and the TOML syntax; `veilboost init` writes a file to start from"


class ImpossibleSetting(PartyError, ValueError):
    code = "VB-1611"
    summary = "a setting is invalid"
    fix = "correct the key that the message names; `veilboost init` writes a file that explains every key"


class AgainstPolicy(PartyError):
    code = "VB-1612"
    summary = "the owner's policy refuses the request"
    fix = "only the owner can allow it, under [policy] in that party's settings"


class WrongPassphrase(PartyError):
    code = "VB-1613"
    summary = "the passphrase of the party's private key is missing or wrong"
    fix = (
        "name the file with the passphrase: passphrase_file under [certificates], or the environment variable "
        "VEILBOOST_KEY_PASSPHRASE_FILE"
    )


class WrongStorageKey(PartyError):
    code = "VB-1614"
    summary = "a file of the party is encrypted with another key"
    fix = (
        "name the key with which the file was written: key_file under [storage], with --config FILE, or the "
        "environment variable VEILBOOST_STORAGE_KEY_FILE"
    )


class ClockDiffers(PartyError):
    code = "VB-1615"
    summary = "the clocks of two parties differ by more than five minutes"
    fix = "set the clocks of both machines (NTP): they decide whether a certificate is valid, and date the ledger"


# --- 17xx: jobs -------------------------------------------------------------------------------------------


class JobError(VeilBoostError):
    """A job cannot start or continue."""


class TableBusy(JobError):
    code = "VB-1701"
    summary = "as many other jobs use the party's table as it allows"
    fix = (
        "wait until another job ends, or end one with `veilboost jobs cancel JOB --config FILE`; a job whose driver "
        "has crashed is parked after wait_seconds ([limits] in the settings of the party)"
    )


class CheckpointFailed(JobError):
    code = "VB-1702"
    summary = "the party cannot write to its disk"
    fix = "free space in the runs folder, then resume the job with --resume: it continues at the last checkpoint"


class NothingToResume(JobError):
    code = "VB-1703"
    summary = "the party has no run to resume"
    fix = "run `veilboost train JOB --config FILE` at the driver without --resume: training starts at the first round"


class JobExists(JobError):
    code = "VB-1704"
    summary = "the party already has a run with this name"
    fix = "change name in the job file; or delete this run folder at every party, which deletes the old model"


class JobCancelled(JobError):
    code = "VB-1705"
    summary = "the job was cancelled"
    fix = "to continue, run `veilboost train JOB --config FILE --resume` at the driver"


class UnknownRun(JobError):
    code = "VB-1706"
    summary = "the party has no run with this name"
    fix = "run `veilboost jobs list --config FILE` to list the runs of a party"


class PeerBroken(JobError):
    code = "VB-1707"
    summary = "an unexpected error occurred at the party"
    fix = "read the log of that party's daemon, then resume the job with --resume"


class WorkersLost(JobError):
    code = "VB-1708"
    summary = "the party lost its workers"
    fix = 'check the cluster with `ray status`, then resume the job with --resume; engine = "local" needs no workers'


class FolderLocked(JobError):
    code = "VB-1709"
    summary = "another process of the party uses its run folder"
    fix = "wait until that process ends, or stop it; its lock ends with it"


class StateDiffers(JobError):
    code = "VB-1710"
    summary = "the party's table, job or checkpoint is not the one with which the job began"
    fix = (
        "restore the table, the job file and the run folder of the named party as they were when the job stopped; or "
        "run train without --resume at the driver: training starts at the first round"
    )


class DamagedState(JobError):
    code = "VB-1711"
    summary = "a file with the party's state is damaged"
    fix = "restore the file from a backup; or delete the run folder, which deletes this party's share of the model"


class NewerFormat(JobError):
    code = "VB-1712"
    summary = "a newer release has written the party's files"
    fix = "install the VeilBoost release that wrote the file, or a later one"


class UnusableBackup(JobError):
    code = "VB-1713"
    summary = "the party's backup cannot be restored"
    fix = "use another backup of this party"


class UnknownDeployment(JobError):
    code = "VB-1714"
    summary = "the party has no deployment with this name"
    fix = "run `veilboost deployments list --config FILE` to list the deployments of a party"


class UnknownProposal(JobError):
    code = "VB-1715"
    summary = "the party has no proposal with this id"
    fix = "run `veilboost jobs proposals --config FILE` to list the proposals of a party"


class InvalidDecision(JobError):
    code = "VB-1716"
    summary = "the party cannot verify a decision about a proposal"
    fix = (
        "find out who changed the files in approvals in the runs folder; then delete the folder of this proposal, and "
        "decide when it is proposed again"
    )


class StateUnavailable(JobError):
    code = "VB-1717"
    summary = "a file with the party's state cannot be read now"
    fix = (
        "check the permissions, the disk and the limit of open files at that party, then repeat the command: the file "
        "may be whole, so do not delete it or replace it by a backup"
    )


# --- 18xx: privacy ----------------------------------------------------------------------------------------


class PrivacyError(VeilBoostError):
    """A release cannot be recorded, or the ledger cannot be trusted."""


class DamagedLedger(PrivacyError):
    code = "VB-1801"
    summary = "the party's privacy ledger cannot be used"
    fix = "do not train on this table; its owner must restore the ledger and its .head file from a backup"


class LedgerUnavailable(PrivacyError):
    code = "VB-1802"
    summary = "the party's privacy ledger cannot be read or written now"
    fix = (
        "check the free space, the permissions and the disk of the ledger's folder, then repeat the command: nothing "
        "that was booked is lost, so do not replace the ledger by a backup"
    )


class LedgerRestored(PrivacyError):
    code = "VB-1803"
    summary = "the party's privacy ledger was restored from a backup and may lack releases"
    fix = "its owner runs `veilboost ledger reconcile --config FILE`"
