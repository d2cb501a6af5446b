"""Model shares in files, readable only by their owner.

A share is a folder with `manifest.json` (names, parameters) and `arrays.npz` (numbers); a model is a folder
with `index.json` and the shares of all parties. Files may come from anywhere: all content is validated, and nothing is
ever unpickled.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import quote

import numpy as np
from numpy.lib import format as npy

from veilboost import at_rest
from veilboost.boost.grower import LEAF, Tree
from veilboost.config import OBJECTIVES, TrainingConfig
from veilboost.durable import make_folder
from veilboost.errors import DamagedModel, InvalidParameter, MissingShare, ModelVersion, UnreadableModel
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton, SplitRecords
from veilboost.privacy.statement import Noise
from veilboost.types import AnyArray, PartyName

FORMAT_VERSION = 3  # 2: a skeleton states its noise source; 3: a part is a share, `seed` is `random_state`
# In format 1 the estimators and `simulate` drew the noise of these protocols from the seed that is stored in the model.
# Horizontal protocols always drew theirs from the operating system.
ONCE_SEEDED = ("masked", "ldp", "federboost", "elxgb", "sealed")
_SHARE, _MODEL = "veilboost-share", "veilboost-model"
_OLD_NAMES = {_SHARE: "veilboost-part"}  # until format 2
_MANIFEST, _ARRAYS, _INDEX = "manifest.json", "arrays.npz", "index.json"
_NOT_OURS = "VeilBoost did not write these files; get them from their owner again"
_LONGEST_FOLDER = 200  # file systems allow 255 bytes
_RECORDS = ("tree", "node", "feature", "set_of", "threshold", "default_left", "left_sets")
_PER_NODE = ("left", "owner", "weight", "gain", "cover")
_SKELETON = (*_PER_NODE, "tree_nodes", "base_margin")
_ABOUT = ("protocol", "objective", "classes", "parties", "trees_per_round")
_TYPES = {
    **dict.fromkeys(("tree", "node", "feature", "set_of", "left", "owner"), "<i4"),
    **dict.fromkeys(("default_left", "left_sets"), "|b1"),
    **dict.fromkeys(("threshold", "weight"), "<f4"),
    **dict.fromkeys(("gain", "cover", "base_margin"), "<f8"),
    "tree_nodes": "<i8",
}
StrPath: TypeAlias = str | os.PathLike[str]
_Arrays: TypeAlias = dict[str, AnyArray]


def save_model(shares: Mapping[PartyName, ModelShare], folder: StrPath) -> None:
    """Write the model shares of all parties, each into its own subfolder. Files are readable by their owner only.

    Parameters
    ----------
    shares : mapping of party name to ModelShare
        The shares to write, for example `shares_` of a fitted estimator.
    folder : str or path-like
        The folder to write.

    Raises
    ------
    InvalidParameter
        If a party's name is empty or too long, or two names differ only in case.
    """
    folders = {name: _folder_name(name) for name in shares}
    if len({name.casefold() for name in folders.values()}) < len(folders):
        raise InvalidParameter("two parties' names differ only in case", "rename one of the parties")
    for name, share in shares.items():
        save_share(share, Path(folder) / folders[name])
    _write_json(Path(folder), _INDEX, {"format": _MODEL, "version": FORMAT_VERSION, "parties": list(shares)})


def load_shares(folder: StrPath) -> dict[PartyName, ModelShare]:
    """The shares in a folder of `save_model`, or the share in a run folder (the full model in horizontal training)."""
    own = Path(folder) / "share"
    if (Path(folder) / _INDEX).exists() or not own.is_dir():
        return load_model(folder)
    share = load_share(own, of_run=True)
    return {share.party: share}


def load_model(folder: StrPath) -> dict[PartyName, ModelShare]:
    """Read the model shares that `save_model` wrote.

    Parameters
    ----------
    folder : str or path-like
        A folder written by `save_model`, by an estimator's `save` or by `veilboost simulate --save`.

    Returns
    -------
    dict of party name to ModelShare
        The share of each party; `join` combines them.

    Raises
    ------
    UnreadableModel, ModelVersion, DamagedModel
        If a file is not a model, is of a newer format, or does not match its checksum.
    MissingShare
        If a party's subfolder is missing.
    """
    shares: dict[PartyName, ModelShare] = {}
    for name in _texts(_read_json(Path(folder), _INDEX, _MODEL).get("parties"), "parties"):
        try:
            # The folder name is derived from the party name alone, so an index cannot point elsewhere.
            own = Path(folder) / _folder_name(name)
        except InvalidParameter as error:
            raise UnreadableModel(f"the index of {folder} contains an invalid party name") from error
        if not own.is_dir():
            raise MissingShare(f"{folder} has no folder {own.name} for {name}")
        shares[name] = load_share(own)
        _check(shares[name].party == name, f"the folder of {name} contains another party's share")
    return shares


def save_share(share: ModelShare, folder: StrPath) -> None:
    """Write one party's share.

    Each file is replaced atomically. If an older share is replaced and writing stops between the two files,
    the checksum detects it.
    """
    manifest, content = packed(share)
    make_folder(Path(folder))
    at_rest.write(Path(folder) / _ARRAYS, content)
    _write_json(Path(folder), _MANIFEST, manifest)


def packed(share: ModelShare) -> tuple[dict[str, Any], bytes]:
    """A share as its manifest, with the hash of its arrays, and the arrays as bytes."""
    arrays: _Arrays = {name: getattr(share.records, name) for name in _RECORDS}
    about: dict[str, Any] | None = None
    if share.skeleton is not None:
        trees = share.skeleton.trees
        about = {name: getattr(share.skeleton, name) for name in _ABOUT}
        about["config"] = share.skeleton.config.to_dict()
        about["noise"] = share.skeleton.noise
        arrays["base_margin"] = share.skeleton.base_margin
        arrays["tree_nodes"] = np.array([tree.nodes for tree in trees])
        for name in _PER_NODE:
            arrays[name] = np.concatenate([np.empty(0), *(getattr(tree, name) for tree in trees)])
    typed = {name: np.asarray(array, _TYPES[name], "C") for name, array in arrays.items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **typed)
    manifest = {
        "format": _SHARE,
        "version": FORMAT_VERSION,
        "library": importlib.metadata.version("veilboost"),
        "party": share.party,
        "share_names": share.share_names,
        "columns": [{"name": info.name, "categories": info.categories} for info in share.columns],
        "skeleton": about,
        "arrays_sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    return manifest, buffer.getvalue()


def load_share(folder: StrPath, *, of_run: bool = False) -> ModelShare:
    """Read one party's share. Warns if other parties may know its noise.

    `of_run`: a daemon or a driver wrote it into a run folder; these never drew noise from a seed. Raises
    `UnreadableModel` if there is no share or it is inconsistent, `DamagedModel` if the arrays were changed after
    writing, and `ModelVersion` if a later release wrote it.
    """
    manifest = _read_json(Path(folder), _MANIFEST, _SHARE)
    try:
        content = at_rest.read(Path(folder) / _ARRAYS)
    except OSError as error:
        raise DamagedModel(f"{Path(folder) / _ARRAYS} cannot be read", "restore it from a copy") from error
    return unpacked(manifest, content, Path(folder) / _ARRAYS, of_run=of_run)


def unpacked(manifest: Mapping[str, Any], content: bytes, file: Path, *, of_run: bool) -> ModelShare:
    """The share of a manifest and its arrays, which `file` contains."""
    if hashlib.sha256(content).hexdigest() != manifest.get("arrays_sha256"):
        raise DamagedModel(f"{file} was changed after it was written")
    about = manifest.get("skeleton")
    arrays = _read_arrays(content, _RECORDS if about is None else _RECORDS + _SKELETON)
    party, share_names = _texts([manifest.get("party")], "party")[0], manifest.get("share_names")
    _check(isinstance(share_names, bool), "share_names is not true or false")
    columns = _columns(manifest.get("columns"))
    records = _records(arrays, columns)
    skeleton = None if about is None else _skeleton(about, arrays, party, records)
    if skeleton is not None:
        skeleton = replace(skeleton, noise=_noise(cast("dict[str, Any]", about), manifest["version"], of_run))
        if skeleton.noise.warning is not None:
            warnings.warn(f"{file.parent}: a {skeleton.protocol} model: {skeleton.noise.warning}", stacklevel=2)
    return ModelShare(party, columns, records, skeleton, share_names is True)


def _check(fits: object, what: str) -> None:
    if not fits:
        raise UnreadableModel(what, _NOT_OURS)


def _texts(value: object, what: str) -> tuple[str, ...]:
    texts = cast("list[object]", value) if isinstance(value, list) else [None]
    found = tuple(text for text in texts if isinstance(text, str))
    _check(len(found) == len(texts) == len(set(found)), f"{what}: a text is missing or repeated")
    return found


def _columns(value: object) -> tuple[ColumnInfo, ...]:
    infos: list[ColumnInfo] = []
    for item in cast("list[object]", value) if isinstance(value, list) else [None]:
        entry = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, categories = _texts([entry.get("name")], "name")[0], entry.get("categories")
        infos.append(ColumnInfo(name, None if categories is None else _texts(categories, "categories")))
    _check(len({info.name for info in infos}) == len(infos), "two columns have the same name")
    return tuple(infos)


def _records(arrays: _Arrays, columns: tuple[ColumnInfo, ...]) -> SplitRecords:
    records = SplitRecords(**{name: arrays[name] for name in _RECORDS})
    lengths = {len(arrays[name]) for name in _RECORDS if name != "left_sets"}
    _check(len(lengths) == 1, "the records' arrays differ in length")
    _check((records.tree >= 0).all() and (records.node >= 0).all(), "a record's node is negative")
    key = (records.tree.astype(np.int64) << 32) + records.node
    _check((np.diff(key) > 0).all(), "the records are not in order")
    _check(_within(records.feature, 0, len(columns)), "a record's feature does not exist")
    _check(np.isfinite(records.threshold).all(), "a threshold is not finite")
    sizes = np.array([-1 if c.categories is None else len(c.categories) for c in columns], dtype=np.int64)
    (sets, width), by_set = records.left_sets.shape, np.flatnonzero(records.set_of >= 0)
    _check(_within(records.set_of, -1, sets), "a record's set does not exist")
    _check(sets <= records.count and width <= sizes.max(initial=1), "there are more sets than the records need")
    needed = np.where(records.left_sets, np.arange(1, width + 1, dtype=np.int64), 0).max(axis=1, initial=0)
    known = needed[records.set_of[by_set]] <= sizes[records.feature[by_set]]
    _check(known.all(), "a set has categories that its column lacks")
    return records


def _within(values: AnyArray, low: int, high: int) -> bool:
    return bool(((values >= low) & (values < high)).all())


def _skeleton(value: object, arrays: _Arrays, party: PartyName, records: SplitRecords) -> Skeleton:
    about = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    protocol, objective = (_texts([about.get(key)], key)[0] for key in ("protocol", "objective"))
    parties = _texts(about.get("parties"), "parties")
    classes = None if about.get("classes") is None else _texts(about["classes"], "classes")
    per_round = about.get("trees_per_round")
    try:
        config = TrainingConfig.from_dict(about["config"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableModel("the training parameters cannot be read", _NOT_OURS) from error
    multiclass, base = objective == "multiclass", arrays["base_margin"]
    _check(objective in (*OBJECTIVES[1:], "custom"), "the objective is unknown")
    if type(per_round) is not int or per_round < 1 or (per_round > 1) != multiclass or len(base) != per_round:
        raise UnreadableModel("the number of trees per round is inconsistent", _NOT_OURS)
    _check(not multiclass or classes is None or len(classes) == per_round, "the classes are inconsistent")
    _check(len(arrays["tree_nodes"]) % per_round == 0, "the last round is incomplete")
    _check(np.isfinite(arrays["weight"]).all() and np.isfinite(base).all(), "a weight is not finite")
    _check(party in parties, "the party is not one of the job's")
    trees = _trees(arrays, len(parties), config.max_depth)
    skeleton = Skeleton(protocol, objective, classes, parties, per_round, trees, base, config)
    own_tree, own_node = skeleton.nodes_of(party)
    fits = np.array_equal(records.tree, own_tree) and np.array_equal(records.node, own_node)
    _check(fits, "the records do not match the skeleton")
    return skeleton


def _noise(about: Mapping[str, Any], version: int, of_run: bool) -> Noise:
    if version < 2:
        return Noise.UNKNOWN if about["protocol"] in ONCE_SEEDED and not of_run else Noise.SYSTEM
    try:
        return Noise(about.get("noise"))
    except ValueError as error:
        raise UnreadableModel("the source of the noise is missing", _NOT_OURS) from error


def _trees(arrays: _Arrays, parties: int, max_depth: int) -> tuple[Tree, ...]:
    """Divide the nodes into trees; every node must be reachable from its root exactly once."""
    sizes, left, owner = arrays["tree_nodes"], arrays["left"].astype(np.int64), arrays["owner"]
    total = len(left)
    _check(all(len(arrays[name]) == total for name in _PER_NODE), "the trees' arrays differ in length")
    _check(_within(sizes, 1, total + 1) and sizes.sum() == total, "the trees' sizes do not match their nodes")
    ends = np.cumsum(sizes)
    begin = np.repeat(ends - sizes, sizes)
    inner = left != LEAF
    follows = (left + begin > np.arange(total)) & (left + 1 < np.repeat(sizes, sizes))
    _check(follows[inner].all(), "a node's child is before the node or outside its tree")
    _check(_within(owner[inner], 0, parties) and (owner[~inner] == LEAF).all(), "a split has no owner")
    reached = level = ends - sizes
    for _ in range(max_depth):
        parents = level[inner[level]]
        level = np.concatenate((left[parents] + begin[parents], left[parents] + begin[parents] + 1))
        reached = np.concatenate((reached, level))
        _check(len(reached) <= total, "a node has two parents")
    _check(np.array_equal(np.sort(reached), np.arange(total)), "the nodes do not form trees of this depth")
    pieces = {name: np.split(arrays[name], ends[:-1]) for name in _PER_NODE}
    return tuple(Tree(**{name: pieces[name][t] for name in _PER_NODE}) for t in range(len(sizes)))


def _folder_name(party: PartyName) -> str:
    """A party's folder: its name, percent-encoded so that it cannot leave the folder or be hidden."""
    name = quote(party, safe="", errors="surrogatepass")
    name = name.replace(".", "%2E", 1) if name.startswith(".") else name
    if not 0 < len(name) <= _LONGEST_FOLDER:
        raise InvalidParameter("a party's name is empty or too long", "give the party a short name")
    return name


def _write_json(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    make_folder(folder)
    at_rest.write(folder / name, json.dumps(content, indent=1, allow_nan=False).encode())


def _read_json(folder: Path, name: str, kind: str) -> dict[str, Any]:
    try:
        content = json.loads(at_rest.read(folder / name))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModel(f"{folder / name} does not exist or is not JSON") from error
    manifest = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    version = manifest.get("version")
    if manifest.get("format") not in (kind, _OLD_NAMES.get(kind)) or type(version) is not int:
        raise UnreadableModel(f"{folder / name} does not describe a {kind}")
    if version > FORMAT_VERSION:
        raise ModelVersion(f"{folder} has format {version}; this release reads formats up to {FORMAT_VERSION}")
    return _upgraded(manifest, version)


def _upgraded(manifest: dict[str, Any], version: int) -> dict[str, Any]:
    """Convert a manifest of an earlier format to the names of the current one."""
    about = manifest.get("skeleton")
    config = cast("dict[str, Any]", about).get("config") if isinstance(about, dict) else None
    if version < 3 and isinstance(config, dict) and "seed" in config:
        config["random_state"] = cast("dict[str, Any]", config).pop("seed")
    return manifest


def _read_arrays(content: bytes, names: tuple[str, ...]) -> _Arrays:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check(sorted(archive.namelist()) == sorted(f"{name}.npy" for name in names), "unexpected arrays")
            # Stored without compression: a compressed file could expand to any size.
            _check(all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist()), "compressed")
            return {name: _array(archive.read(f"{name}.npy"), name) for name in names}
    except Exception as error:  # zipfile and NumPy raise many kinds of errors on invalid input
        raise UnreadableModel(f"the arrays cannot be read: {getattr(error, 'what', error)}", _NOT_OURS) from error


def _array(raw: bytes, name: str) -> AnyArray:
    """Read one .npy file. NumPy's own reader would allocate whatever size the header states."""
    stream = io.BytesIO(raw)
    _check(npy.read_magic(stream) == (1, 0), "unsupported version of .npy")
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    _check(dtype == np.dtype(_TYPES[name]) and not fortran, f"{name} has the wrong type")
    _check(len(shape) == (2 if name == "left_sets" else 1), f"{name} has the wrong shape")
    array = np.frombuffer(raw[stream.tell() :], dtype=dtype).reshape(shape)
    _check(dtype != np.bool_ or array.view(np.uint8).max(initial=0) <= 1, f"{name} is not boolean")
    return array.copy()
