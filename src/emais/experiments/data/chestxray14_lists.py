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
TABLE_COLUMNS = ("Image Index", "Finding Labels", "Patient ID")


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


def read_split(texts: Sequence[bytes], where: str, name: str) -> Split:
    """From the contents of the table, the training list and the test list; name: of the table, for messages."""
    table, train, test = (text.decode("utf-8-sig", errors="replace") for text in texts)
    labels, patients = read_table(table, f"{where}: {name}")
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
    (_, header), *rows = read_rows(text, where)
    absent = [column for column in TABLE_COLUMNS if column not in header]
    if absent:
        raise EmaisError(f"{where} has no column {absent[0]!r}, it has {header}: get the table again")
    labels: dict[str, Bytes] = {}
    patients: dict[str, str] = {}
    for line, row in rows:
        check_fields(row, header, f"{where}, line {line},")
        image, findings, patient = (row[header.index(column)] for column in TABLE_COLUMNS)
        if image in labels:
            raise EmaisError(f"{where}, line {line}, is a second row of {image}: leave one row an image")
        labels[image], patients[image] = encode(findings, f"{where}, line {line}: {image}"), patient
    return labels, patients


def check_fields(row: list[str], header: list[str], where: str) -> None:
    """Refuse a row whose columns are not the header's, with or without the comma that ends the header of 2017."""
    named = len(header) if header[-1] else len(header) - 1
    if len(row) not in (named, len(header)) or any(row[named:]):
        raise EmaisError(
            f"{where} has {len(row)} fields, the header has {named}: put a field that has commas in quotes, or get "
            "the table again"
        )


def read_rows(text: str, where: str) -> list[tuple[int, list[str]]]:
    """Line number and fields of every row, the header first; a header without fields where there is nothing."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        return [(reader.line_num, row) for row in reader if row] or [(1, [])]
    except csv.Error as error:
        raise EmaisError(f"{where}, line {reader.line_num}, cannot be read ({error}): get the table again") from error


def encode(findings: str, where: str) -> Bytes:
    """Findings joined by | as 14 zeros and ones.

    >>> encode("Cardiomegaly|Hernia", "").nonzero()[0].tolist(), int(encode("No Finding", "").sum())
    ([1, 13], 0)
    """
    row = np.zeros(len(FINDINGS), dtype=np.uint8)
    names = findings.split("|")
    if NOTHING in names and set(names) != {NOTHING}:
        raise EmaisError(f"{where} has {findings!r}, which contradicts itself: correct the row, or get the table again")
    for finding in names:
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
