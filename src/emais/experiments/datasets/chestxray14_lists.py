"""ChestX-ray14's table of findings and its two lists of images, read and checked against each other."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import EmaisError
from .base import Bytes

FINDINGS = (
    "Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax",
    "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia",
)  # fmt: skip
NOTHING = "No Finding"
COLUMNS = ("Image Index", "Finding Labels", "Patient ID")


@dataclass(frozen=True)
class Split:
    """Which images train and which test, and each one's 14 zeros and ones."""

    train: list[str]
    test: list[str]
    labels: dict[str, Bytes]

    @property
    def images(self) -> list[str]:
        """All images, those to train on first."""
        return self.train + self.test


def read_split(texts: Sequence[bytes], where: str) -> Split:
    """From the contents of the table, the training list and the test list."""
    table, train, test = (text.decode("utf-8-sig", errors="replace") for text in texts)
    labels, patients = read_table(table, where)
    split = Split(train.split(), test.split(), labels)
    check_lists(split, where)
    both = {patients[image] for image in split.train} & {patients[image] for image in split.test}
    if both:
        raise EmaisError(
            f"{where}: {len(both)} patients are in both lists, {min(both)} for one: a test on them would flatter"
        )
    return split


def read_table(text: str, where: str) -> tuple[dict[str, Bytes], dict[str, str]]:
    """Findings and patient of every image."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    absent = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if absent:
        raise EmaisError(f"{where}: the table of findings has no column {absent[0]!r}; it has {rows.fieldnames}")
    labels, patients = {}, {}
    for row in rows:
        image, findings, patient = (row[column] or "" for column in COLUMNS)
        labels[image], patients[image] = encode(findings, f"{where}: {image}"), patient
    return labels, patients


def encode(findings: str, where: str) -> Bytes:
    """Findings joined by | as 14 zeros and ones.

    >>> encode("Cardiomegaly|Hernia", "").nonzero()[0].tolist(), int(encode("No Finding", "").sum())
    ([1, 13], 0)
    """
    row = np.zeros(len(FINDINGS), dtype=np.uint8)
    for finding in findings.split("|"):
        if finding in FINDINGS:
            row[FINDINGS.index(finding)] = 1
        elif finding != NOTHING:
            raise EmaisError(f"{where} has the unknown finding {finding!r}: there are {', '.join(FINDINGS)}, {NOTHING}")
    return row


def check_lists(split: Split, where: str) -> None:
    """Refuse empty lists, images listed twice, and images that the table does not know."""
    if not split.train or not split.test:
        raise EmaisError(f"{where}: the lists name {len(split.train)} training and {len(split.test)} test images")
    twice = len(split.images) - len(set(split.images))
    if twice:
        raise EmaisError(f"{where}: {twice} images are listed twice, in one list or in both")
    unknown = [image for image in split.images if image not in split.labels]
    if unknown:
        raise EmaisError(
            f"{where}: {len(unknown)} listed images are not in the table of findings, {unknown[0]} for one"
        )
