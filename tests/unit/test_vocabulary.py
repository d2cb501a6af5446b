"""Names and phrases that may not come back: the field has its own words for them (docs/reference/glossary.md)."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# An old name -> the new one. Renamed public names are refused with a hint by `veilboost.fields.RENAMED`.
IDENTIFIERS = {
    "ImpossibleParameter": "InvalidParameter",
    "accept_exposed": "allow_unprotected",
    "preshared": "prealigned",
    "make_scene": "make_demo_data",
    "vertical_scene": "vertical_problem",
    "parts_": "shares_",
    "load_part": "load_share",
    "save_part": "save_share",
    "MissingPart": "MissingShare",
    "SidesRequest": "AssignmentsRequest",
    "MoreSides": "MoreAssignments",
    "LevelTold": "LevelResult",
    "NextLot": "NextBatch",
    "AnsweredLots": "PassiveBatches",
    "DealtIds": "BatchedIds",
    "Voucher": "Signer",
    "vouch": "sign",
    "ServiceWay": "ServiceChannel",
    "Patience": "IdleTimeout",
    "Couples": "ColumnPairs",
    "HelperSide": "HelperRole",
    "ParticipantSide": "ParticipantRole",
    "ServerSide": "ServerRole",
}
# A phrase (a regular expression, in any case) -> what the field says.
PHRASES = {
    r"in (different|one|other) hands?": "vertically or horizontally partitioned; centralised, pooled",
    r"what (crosses|crossed)": "data sent, data exchanged",
    r"(is|are|were|was) dealt": "partitioned",
    r"deals? (out|ids|rows|columns)": "partition",
    r"ways? to (a|the|its|other|third) (peers?|part(y|ies)|helpers?)": "channels, connections",
    r"vouch(es|ed|ing)?": "sign, verify",
    r"stands? together": "rows that share a node",
    r"rows that follow": "rows that are only routed",
    r"at the door": "on input, during validation",
    r"roll[- ]call": "health check",
    r"under way": "in transit, running",
    r"parts? of (a|the) model|model parts?": "model share",
    r"lots": "batches",
    r"choose a value in the stated range": "the range itself",
}
# History, quotations of old names, and this list.
EXCEPT = (
    "CHANGELOG.md",
    "docs/reference/errors/VB-1002.md",
    "src/veilboost/fields.py",
    "tests/golden/",
    "tests/unit/cli/test_usage.py",
    "tests/unit/test_vocabulary.py",
)
KINDS = (".py", ".pyi", ".md", ".html", ".cpp", ".hpp", ".toml", ".j2", ".svg")


def texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not listed:
        pytest.skip("this is not a checkout")
    names = [name for name in listed if name.endswith(KINDS) and not name.startswith(EXCEPT)]
    return {name: (ROOT / name).read_text() for name in names if (ROOT / name).exists()}


TEXTS = texts()


def places(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in TEXTS.items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("old", IDENTIFIERS)
def test_an_old_name_does_not_come_back(old: str) -> None:
    found = places(re.compile(rf"(?<![A-Za-z0-9_]){old}(?![A-Za-z0-9_])"))
    assert not found, f"say {IDENTIFIERS[old]}:\n" + "\n".join(found[:20])


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_private_phrase_does_not_come_back(phrase: str) -> None:
    spelled = phrase.replace(" ", "[ _]")  # names of functions are phrases too
    found = places(re.compile(rf"(?<![A-Za-z])(?:{spelled})(?![A-Za-z])", re.IGNORECASE))
    assert not found, f"say {PHRASES[phrase]}:\n" + "\n".join(found[:20])
