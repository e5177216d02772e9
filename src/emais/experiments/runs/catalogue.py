"""Every table and figure, the paper's and those beyond it, by its label: which runs `emais reproduce LABEL` makes."""

from __future__ import annotations

from ..config import choose
from .beyond_items import CHOSEN, EQUAL_PROGRESS, NORMALISATION, SPEED, TUNING, VARIANTS
from .item import HELD_OUT, LENGTHS, MAIN_METHODS, Item
from .paper_items import PAPER_FIGURES, PAPER_TABLES
from .relu_items import RELU_STUDY

__all__ = ["CHOSEN", "HELD_OUT", "ITEMS", "LENGTHS", "MAIN_METHODS", "Item", "find_item"]

ITEMS: dict[str, Item] = {
    item.label: item
    for item in (
        *PAPER_TABLES,
        *PAPER_FIGURES,
        *VARIANTS,
        *NORMALISATION,
        *TUNING,
        *EQUAL_PROGRESS,
        *SPEED,
        *RELU_STUDY,
    )
}


def find_item(label: str) -> Item:
    """The item with this label, or an error that lists the labels."""
    choose("table or figure", label, ITEMS)
    return ITEMS[label]
