"""Parts in files: they come back whole, and nothing else comes in."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_joined import OBJECTIVES, people, trained

from veilboost.errors import (
    DamagedModel,
    InvalidParameter,
    MissingShare,
    ModelError,
    ModelVersion,
    UnreadableModel,
)
from veilboost.model.joined import join
from veilboost.model.share import ModelShare, SplitRecords
from veilboost.model.store import FORMAT_VERSION, load_model, load_share, save_model, save_share

pytestmark = pytest.mark.fast

ACTIVE, PASSIVE = "party1", "party0"


@pytest.fixture(scope="module")
def parts() -> dict[str, ModelShare]:
    return trained("multiclass", n_estimators=2)


def assert_equal_parts(one: ModelShare, other: ModelShare) -> None:
    def arrays(part: ModelShare) -> list[tuple[str, np.ndarray]]:
        found = [(item.name, getattr(part.records, item.name)) for item in fields(part.records)]
        if part.skeleton is not None:
            found.append(("base_margin", part.skeleton.base_margin))
            for tree in part.skeleton.trees:
                found.extend((item.name, getattr(tree, item.name)) for item in fields(tree))
        return found

    assert (one.party, one.columns, one.share_names) == (other.party, other.columns, other.share_names)
    for (name, a), (_, b) in zip(arrays(one), arrays(other), strict=True):
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name
    if one.skeleton is None or other.skeleton is None:
        assert one.skeleton is other.skeleton
        return
    for name in ("protocol", "objective", "classes", "parties", "trees_per_round", "config"):
        assert getattr(one.skeleton, name) == getattr(other.skeleton, name)


# --- there and back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("categories", ["ordinal", "onehot", "sets"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_models_come_back_as_they_were(objective: str, categories: str, tmp_path: Path) -> None:
    parts = trained(objective, categories=categories, n_estimators=2, base_score=0.3)
    parts[PASSIVE] = replace(parts[PASSIVE], share_names=False)
    save_model(parts, tmp_path / "deep" / "model")
    loaded = load_model(tmp_path / "deep" / "model")
    assert list(loaded) == list(parts)
    for name in parts:
        assert_equal_parts(parts[name], loaded[name])
    assert join(loaded).sha256() == join(parts).sha256()
    assert np.array_equal(join(loaded).margins(people(30)), join(parts).margins(people(30)))


def test_parts_stand_alone(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    for name, part in parts.items():
        save_share(part, tmp_path / name)
        assert_equal_parts(load_share(tmp_path / name), part)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["arrays.npz", "manifest.json"]


def test_class_names_and_single_leaves(tmp_path: Path) -> None:
    parts = trained(gamma=1e9)
    skeleton = parts[ACTIVE].skeleton
    assert skeleton is not None
    parts[ACTIVE] = replace(parts[ACTIVE], skeleton=replace(skeleton, classes=("no", "yes")))
    save_model(parts, tmp_path)
    assert_equal_parts(load_model(tmp_path)[ACTIVE], parts[ACTIVE])
    assert_equal_parts(load_model(tmp_path)[PASSIVE], parts[PASSIVE])


def test_saving_over_an_older_model(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(trained(), tmp_path)
    save_model(parts, tmp_path)
    assert join(load_model(tmp_path)).sha256() == join(parts).sha256()


def test_the_same_model_gives_the_same_bytes(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    for folder in ("one", "two"):
        save_share(parts[ACTIVE], tmp_path / folder)
    for file in ("arrays.npz", "manifest.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_other(
    parts: dict[str, ModelShare], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_share(parts[ACTIVE], tmp_path)

    def no_space(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="no space"):
        save_share(parts[PASSIVE], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "manifest.json"]
    assert_equal_parts(load_share(tmp_path), parts[ACTIVE])


# --- names of parties --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../up", "/etc", "..", ".", "a/b", "c:\\d", "nul\0l", "%2F", "zwei Wörter", "\ud800", ".hidden"]
)
def test_unsafe_names_stay_inside(name: str, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    folder = tmp_path / "inner" / "model"
    save_model({name: replace(parts[PASSIVE], party=name)}, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["model"]
    assert len(list(folder.iterdir())) == 2
    assert not any(path.name.startswith(".") for path in folder.iterdir())
    assert list(load_model(folder)) == [name]


def test_plain_names_are_the_folders_names(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(parts, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "party0", "party1", "party2"]


def test_refuses_names_that_are_no_folders(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    part = parts[PASSIVE]
    for names in (("",), ("x" * 300,), ("Bank", "bank")):
        with pytest.raises(InvalidParameter):
            save_model({name: replace(part, party=name) for name in names}, tmp_path)


@pytest.mark.parametrize("parties", [["../elsewhere"], [""], ["x" * 300], "party0", [1], None, ["a", "a"], {}])
def test_an_index_cannot_point_elsewhere(parties: object, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[PASSIVE], tmp_path / "elsewhere")
    save_model(parts, tmp_path / "model")
    index = {"format": "veilboost-model", "version": FORMAT_VERSION, "parties": parties}
    (tmp_path / "model" / "index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError):
        load_model(tmp_path / "model")


# --- what is not a model -----------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "file", "nul\0l"):
        with pytest.raises(UnreadableModel):
            load_share(folder)
        with pytest.raises(UnreadableModel):
            load_model(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"format": "other", "version": 1}', "[" * 100_000, "1" * 5000, "\ud800"],
)
def test_manifests_that_are_none(text: str, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(parts, tmp_path)
    for file, load in ((tmp_path / "index.json", load_model), (tmp_path / PASSIVE / "manifest.json", load_model)):
        file.write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(UnreadableModel):
            load(tmp_path)
        save_model(parts, tmp_path)


def test_a_part_is_not_a_model(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(parts, tmp_path)
    with pytest.raises(UnreadableModel):
        load_model(tmp_path / PASSIVE)
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)


def test_a_party_is_gone_or_swapped(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(parts, tmp_path)
    (tmp_path / PASSIVE).rename(tmp_path / "moved")
    with pytest.raises(MissingShare, match=PASSIVE):
        load_model(tmp_path)
    (tmp_path / "party2").rename(tmp_path / PASSIVE)
    with pytest.raises(UnreadableModel, match="another party"):
        load_model(tmp_path)


def test_later_versions(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_model(parts, tmp_path)
    rewrite_manifest(tmp_path / PASSIVE, lambda manifest: manifest.update(version=FORMAT_VERSION + 1))
    with pytest.raises(ModelVersion):
        load_model(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps({**index, "version": 99}))
    with pytest.raises(ModelVersion):
        load_model(tmp_path)


def test_damaged_arrays(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[ACTIVE], tmp_path)
    file = tmp_path / "arrays.npz"
    content = file.read_bytes()
    for damaged in (
        b"",
        content[:-1],
        content[:100],
        content + b"x",
        content[:500] + bytes([content[500] ^ 1]) + content[501:],
    ):
        file.write_bytes(damaged)
        with pytest.raises(DamagedModel):
            load_share(tmp_path)
    file.unlink()
    with pytest.raises(DamagedModel):
        load_share(tmp_path)


# --- made up to do harm ------------------------------------------------------------------------------------


def rewrite_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite_arrays(folder: Path, content: bytes) -> None:
    """Replace the arrays and make the checksum fit."""
    (folder / "arrays.npz").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite_manifest(folder, lambda manifest: manifest.update(arrays_sha256=digest))


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "arrays.npz") as loaded:
        return dict(loaded)


def _set(name: str, value: Any, at: int = 0) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays[name].__setitem__(at, value)


def _put(name: str, make: Callable[[np.ndarray], Any]) -> Callable[[dict[str, np.ndarray]], object]:
    return lambda arrays: arrays.update({name: make(arrays[name])})


HOSTILE_ARRAYS: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "an array lacks": lambda arrays: arrays.pop("threshold"),
    "an array too many": lambda arrays: arrays.update(extra=np.zeros(3)),
    "objects": _put("threshold", lambda a: a.astype(object)),
    "another type": _put("tree", lambda a: a.astype(np.int64)),
    "another byte order": _put("tree", lambda a: a.astype(">i4")),
    "another shape": _put("tree", lambda a: a[np.newaxis]),
    "a scalar": _put("tree", lambda a: a[0]),
    "flat sets": _put("left_sets", np.ravel),
    "sets by columns": _put("left_sets", np.asfortranarray),
    "sets without width": _put("left_sets", lambda a: np.zeros((10**15, 0), dtype=np.bool_)),
    "sets without rows": _put("left_sets", lambda a: np.zeros((0, 10**15), dtype=np.bool_)),
    "neither true nor false": _put("default_left", lambda a: np.full(len(a), 7, np.uint8).view(np.bool_)),
    "a record short": _put("feature", lambda a: a[:-1]),
    "records out of order": _put("node", lambda a: a[::-1].copy()),
    "records twice": _set("node", 0, at=1),
    "a negative tree": _set("tree", -1),
    "a negative node": _set("node", -1),
    "a foreign feature": _set("feature", 2),
    "a negative feature": _set("feature", -1),
    "a foreign set": _set("set_of", 10_000),
    "no such set": _set("set_of", -2),
    "a set of numbers": _set("feature", 0),
    "a NaN threshold": _set("threshold", np.nan),
    "an infinite threshold": _set("threshold", np.inf),
    "unknown categories": _put("left_sets", lambda a: np.ones((len(a), 13), dtype=np.bool_)),
    "a cycle": _set("left", 0),
    "a child before": lambda arrays: arrays["left"].__setitem__(int(np.flatnonzero(arrays["left"] > 2)[0]), 1),
    "a child outside": _set("left", 10_000),
    "the last child outside": lambda arrays: arrays["left"].__setitem__(0, arrays["tree_nodes"][0] - 1),
    "a huge child": _set("left", 2**31 - 1),
    "a negative child": _set("left", -7),
    "a node twice": lambda arrays: arrays["left"].__setitem__(1, arrays["left"][2]),
    "a node nowhere": lambda arrays: (_set("left", -1)(arrays), _set("owner", -1)(arrays)),
    "a foreign owner": _set("owner", 3),
    "a split without an owner": _set("owner", -1),
    "a leaf with an owner": _set("owner", 0, at=-1),
    "another owner": lambda arrays: arrays["owner"].__setitem__(arrays["owner"] == 1, 0),
    "a NaN weight": _set("weight", np.nan),
    "an infinite base": _set("base_margin", np.inf),
    "a base too many": _put("base_margin", lambda a: np.append(a, 0.0)),
    "a tree without nodes": _put("tree_nodes", lambda a: np.concatenate((a, [0, 0, 0]))),
    "sizes that overflow": _put("tree_nodes", lambda a: np.concatenate((a, [2**62, 2**62, 2**63 - 1]))),
    "a negative size": lambda arrays: arrays["tree_nodes"].__iadd__([-100, 100, 0, 0, 0, 0]),
    "weights short": _put("weight", lambda a: a[:-1]),
}


@pytest.mark.parametrize("harm", HOSTILE_ARRAYS)
def test_hostile_arrays(harm: str, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[ACTIVE], tmp_path)
    arrays = arrays_of(tmp_path)
    rewrite_arrays(tmp_path, archive(arrays))
    assert_equal_parts(load_share(tmp_path), parts[ACTIVE])  # unchanged, it loads
    HOSTILE_ARRAYS[harm](arrays)
    rewrite_arrays(tmp_path, archive(arrays))
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)


@pytest.mark.parametrize("harm", ["records out of order", "records twice", "a negative tree", "a negative node"])
def test_hostile_records_without_a_skeleton_to_compare_with(
    harm: str, parts: dict[str, ModelShare], tmp_path: Path
) -> None:
    save_share(parts[PASSIVE], tmp_path)
    arrays = arrays_of(tmp_path)
    HOSTILE_ARRAYS[harm](arrays)
    rewrite_arrays(tmp_path, archive(arrays))
    with pytest.raises(UnreadableModel, match=r"not in order|negative"):
        load_share(tmp_path)


def test_half_a_round(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    skeleton, records = parts[ACTIVE].skeleton, parts[ACTIVE].records
    assert skeleton is not None
    whole = len(skeleton.trees) - 1
    kept = {(int(records.tree[k]), int(records.node[k])): records.rule(k) for k in range(records.count)}
    shorter = replace(
        parts[ACTIVE],
        skeleton=replace(skeleton, trees=skeleton.trees[:whole]),
        records=SplitRecords.of({key: rule for key, rule in kept.items() if key[0] < whole}),
    )
    save_share(shorter, tmp_path)
    with pytest.raises(UnreadableModel, match="round"):
        load_share(tmp_path)


def test_an_unknown_objective(tmp_path: Path) -> None:
    save_share(trained(n_estimators=1)[ACTIVE], tmp_path)
    for objective in ("auto", "ranking"):
        rewrite_manifest(tmp_path, lambda m, name=objective: m["skeleton"].update(objective=name))
        with pytest.raises(UnreadableModel, match="objective"):
            load_share(tmp_path)


def test_trees_deeper_than_their_parameters(parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[ACTIVE], tmp_path)
    rewrite_manifest(tmp_path, lambda manifest: manifest["skeleton"]["config"].update(max_depth=3))
    with pytest.raises(UnreadableModel, match="depth"):
        load_share(tmp_path)


def test_shared_nodes_do_not_multiply(tmp_path: Path) -> None:
    """Nodes whose children are shared would be walked 2^16 times per tree."""
    parts = trained(max_depth=16, n_estimators=1)
    save_share(parts[ACTIVE], tmp_path)
    arrays = arrays_of(tmp_path)
    chain = np.repeat(np.arange(1, 32, 2), 2)[:31].astype(np.int32)
    left = np.concatenate(([1], chain[2:], [-1, -1, -1])).astype(np.int32)
    trees = 2000
    arrays["left"] = np.tile(left, trees)
    arrays["tree_nodes"] = np.full(trees, len(left))
    arrays["owner"] = np.where(arrays["left"] == -1, -1, 0).astype(np.int32)
    for name, dtype in (("weight", np.float32), ("gain", np.float64), ("cover", np.float64)):
        arrays[name] = np.zeros(len(arrays["left"]), dtype=dtype)
    rewrite_arrays(tmp_path, archive(arrays))
    with pytest.raises(UnreadableModel, match="two parents"):
        load_share(tmp_path)


def _zip_of(arrays: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def _npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x09\x00",
        _npy("{'descr': '<i4', 'fortran_order': False, 'shape': (10**15,)}"),
        _npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000,)}"),
        _npy("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}", b"123"),
        _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n"),
        _npy("__import__('os').system('true')"),
        _npy("{'descr': " + "(" * 3000),
        _npy("{'descr': '<i4', 'fortran_order': False, 'shape': " + "-" * 5000 + "1}"),
    ],
)
def test_hostile_headers(content: bytes, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[PASSIVE], tmp_path)
    with zipfile.ZipFile(tmp_path / "arrays.npz") as file:
        members = {name.removesuffix(".npy"): file.read(name) for name in file.namelist()}
    rewrite_arrays(tmp_path, _zip_of(members))
    load_share(tmp_path)
    rewrite_arrays(tmp_path, _zip_of({**members, "tree": content}))
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)
    rewrite_arrays(tmp_path, content)
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)
    rewrite_arrays(tmp_path, _zip_of(members, zipfile.ZIP_DEFLATED))
    with pytest.raises(UnreadableModel, match="compressed"):
        load_share(tmp_path)


HOSTILE_MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no party": lambda m: m.pop("party"),
    "a party that is a number": lambda m: m.update(party=3),
    "another party": lambda m: m.update(party="party0"),
    "a foreign party": lambda m: m.update(party="stranger"),
    "share_names as text": lambda m: m.update(share_names="yes"),
    "columns as text": lambda m: m.update(columns="abc"),
    "a column as text": lambda m: m["columns"].append("abc"),
    "a column without a name": lambda m: m["columns"].append({"categories": None}),
    "columns with one name": lambda m: m["columns"].append(m["columns"][0]),
    "categories twice": lambda m: m["columns"][1].update(categories=["a"] * 12),
    "categories as numbers": lambda m: m["columns"][1].update(categories=list(range(12))),
    "categories gone": lambda m: m["columns"][1].update(categories=None),
    "fewer columns": lambda m: m["columns"].pop(),
    "a version as text": lambda m: m.update(version="1"),
    "a version that is true": lambda m: m.update(version=True),
    "a skeleton as text": lambda m: m.update(skeleton="abc"),
    "an empty skeleton": lambda m: m.update(skeleton={}),
    "no skeleton": lambda m: m.update(skeleton=None),
    "no parameters": lambda m: m["skeleton"].pop("config"),
    "parameters as a list": lambda m: m["skeleton"].update(config=[["a"]]),
    "an unknown parameter": lambda m: m["skeleton"]["config"].update(speed=9),
    "an impossible parameter": lambda m: m["skeleton"]["config"].update(max_depth=-1),
    "a huge parameter": lambda m: m["skeleton"]["config"].update(base_score=10**400),
    "a NaN parameter": lambda m: m["skeleton"]["config"].update(base_score=float("nan")),
    "an objective as a list": lambda m: m["skeleton"].update(objective=[]),
    "an objective for one tree": lambda m: m["skeleton"].update(objective="binary"),
    "no protocol": lambda m: m["skeleton"].pop("protocol"),
    "no trees per round": lambda m: m["skeleton"].update(trees_per_round=0),
    "half a tree per round": lambda m: m["skeleton"].update(trees_per_round=1.5),
    "other trees per round": lambda m: m["skeleton"].update(trees_per_round=2),
    "too few classes": lambda m: m["skeleton"].update(classes=["a"]),
    "parties twice": lambda m: m["skeleton"].update(parties=["party1"] * 3),
    "fewer parties": lambda m: m["skeleton"].update(parties=["party0", "party1"]),
    "parties swapped": lambda m: m["skeleton"].update(parties=["party1", "party0", "party2"]),
}


@pytest.mark.parametrize("harm", HOSTILE_MANIFESTS)
def test_hostile_manifests(harm: str, parts: dict[str, ModelShare], tmp_path: Path) -> None:
    save_share(parts[ACTIVE], tmp_path)
    rewrite_manifest(tmp_path, HOSTILE_MANIFESTS[harm])
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)


def test_no_trees_per_round_at_all(tmp_path: Path) -> None:
    parts = trained(n_estimators=1)
    save_share(parts[ACTIVE], tmp_path)
    arrays = arrays_of(tmp_path)
    arrays["base_margin"] = np.empty(0)
    rewrite_arrays(tmp_path, archive(arrays))
    rewrite_manifest(tmp_path, lambda manifest: manifest["skeleton"].update(trees_per_round=0))
    with pytest.raises(UnreadableModel):
        load_share(tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_are_refused_or_harmless(
    data: st.DataObject, parts: dict[str, ModelShare], tmp_path: Path
) -> None:
    save_share(parts[ACTIVE], tmp_path)
    file = tmp_path / data.draw(st.sampled_from(["arrays.npz", "manifest.json"]))
    content = bytearray(file.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    if file.name == "arrays.npz":
        rewrite_arrays(tmp_path, bytes(content))
    else:
        file.write_bytes(content)
    with suppress(ModelError):
        loaded = load_share(tmp_path)
        join({**parts, ACTIVE: loaded}).sha256()
