"""The paper's own numbers, table by table: (mean, standard deviation) over its five seeds, and where to find one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..config import Config
from ..runs.catalogue import LENGTHS

SEEDS = 5
NAMES = {
    "sgd-scan": "SGD-Scan",
    "sgd-uni": "SGD-Uni",
    "rais": "RAIS",
    "presampling": "Presampling-IS",
    "confidence": "Confidence",
    "confvar": "ConfVar",
    "self-paced": "Self-paced",
    "emais": "EMAIS",
    "emais-auto": "EMAIS-auto",
}
OURS = ("emais-auto",)  # not in the paper
ALL = tuple(method for method in NAMES if method not in OURS)
MULTI_LABEL = ("sgd-scan", "sgd-uni", "rais", "presampling", "self-paced", "emais")
ADAM = ("sgd-scan", "sgd-uni", "rais", "emais")
STANDS_FOR = {"fmnist": "fmnist", "cinic10": "cinic10", "cifar10": "cinic10", "chestxray14": "chestxray14"}
COMPARABLE = ("fmnist", "cinic10")  # the others are not the paper's data
NETWORKS = {
    "lenet5": "LeNet5",
    "lenet5-relu": "LeNet5-ReLU",
    "resnet18": "ResNet18",
    "resnet18-gn": "ResNet18-GN",
    "resnet50": "ResNet50",
    "perceptron": "perceptron",
}
TITLES = {"fmnist": "Fashion-MNIST", "cinic10": "CINIC-10", "cifar10": "CIFAR-10", "chestxray14": "ChestX-ray14"}

Pair = tuple[float, float]


@dataclass(frozen=True)
class Block:
    """Rows of a table with one data set, optimizer and weight decay; `printed`: the weight decay as the table has it.

    tab:setup says 5e-4 for the second block of CINIC-10 where tab:res_cinic10 prints 1e-5 and tab:adam 5e-5.
    """

    label: str
    data: str
    optimizer: str
    weight_decay: float
    printed: str
    methods: tuple[str, ...]
    rows: dict[int, tuple[Pair, ...]]


# fmt: off
BLOCKS = (
    Block("tab:res_fmnist", "fmnist", "sgd", 1e-3, "1e-3", ALL, {
        6250: ((12.02, 0.45), (12.05, 0.07), (10.90, 0.26), (11.50, 0.13), (10.78, 0.31), (12.30, 0.20), (22.54, 3.34),
               (10.52, 0.10)),
        12500: ((10.32, 0.11), (10.30, 0.19), (9.59, 0.26), (10.22, 0.23), (9.35, 0.33), (10.28, 0.16), (13.24, 0.92),
                (9.05, 0.22)),
        25000: ((9.21, 0.23), (9.37, 0.25), (8.84, 0.18), (9.04, 0.18), (9.11, 0.25), (9.09, 0.25), (9.72, 0.26),
                (8.83, 0.22)),
    }),
    Block("tab:res_cinic10", "cinic10", "sgd", 1e-4, "1e-4", ALL, {
        17500: ((16.69, 0.09), (16.89, 0.05), (16.66, 0.13), (16.76, 0.13), (17.08, 0.19), (16.92, 0.21), (17.86, 0.21),
                (16.42, 0.15)),
        35000: ((15.25, 0.15), (15.52, 0.13), (14.98, 0.20), (16.00, 1.75), (15.39, 0.09), (15.57, 0.09), (15.77, 0.10),
                (14.88, 0.11)),
        70000: ((14.14, 0.08), (14.32, 0.15), (14.02, 0.09), (14.76, 0.50), (14.44, 0.07), (14.32, 0.16), (14.56, 0.13),
                (13.86, 0.09)),
        140000: ((13.49, 0.08), (13.55, 0.11), (13.31, 0.09), (13.80, 0.10), (13.79, 0.13), (13.52, 0.11),
                 (13.66, 0.09), (13.13, 0.03)),
    }),
    Block("tab:res_cinic10", "cinic10", "sgd", 5e-4, "1e-5", ALL, {
        17500: ((15.27, 0.06), (15.52, 0.13), (15.23, 0.03), (15.26, 0.11), (15.61, 0.11), (15.51, 0.07), (16.18, 0.25),
                (15.19, 0.15)),
        35000: ((13.99, 0.11), (14.21, 0.08), (13.83, 0.08), (14.64, 1.07), (14.18, 0.13), (14.05, 0.08), (14.55, 0.16),
                (13.82, 0.14)),
        70000: ((13.15, 0.05), (13.33, 0.07), (13.06, 0.10), (16.28, 2.85), (13.26, 0.06), (13.36, 0.05), (13.40, 0.05),
                (12.99, 0.06)),
        140000: ((12.67, 0.09), (12.86, 0.04), (12.75, 0.07), (16.82, 3.19), (13.03, 0.06), (12.89, 0.08),
                 (12.84, 0.07), (12.70, 0.07)),
    }),
    Block("tab:res_nih", "chestxray14", "sgd", 1e-4, "1e-4", MULTI_LABEL, {
        17500: ((18.66, 0.16), (18.71, 0.03), (20.30, 0.10), (19.69, 0.14), (17.08, 0.71), (20.76, 0.10)),
        35000: ((22.07, 0.10), (21.92, 0.07), (23.52, 0.17), (23.43, 0.05), (21.35, 0.23), (23.72, 0.16)),
        70000: ((24.69, 0.12), (24.72, 0.14), (25.39, 0.33), (25.35, 0.04), (24.35, 0.23), (25.74, 0.07)),
    }),
    Block("tab:adam", "fmnist", "adam", 1e-3, "1e-3", ADAM, {
        6250: ((10.99, 0.31), (10.96, 0.14), (10.20, 0.09), (10.00, 0.13)),
        12500: ((9.75, 0.10), (9.81, 0.17), (9.18, 0.22), (8.92, 0.07)),
        25000: ((9.09, 0.16), (9.00, 0.25), (8.94, 0.21), (8.82, 0.17)),
    }),
    Block("tab:adam", "cinic10", "adam", 1e-4, "1e-4", ADAM, {
        17500: ((17.46, 0.08), (17.90, 0.11), (17.32, 0.11), (17.43, 0.07)),
        35000: ((17.02, 0.15), (17.01, 0.11), (16.78, 0.13), (16.74, 0.09)),
        70000: ((16.42, 0.14), (16.56, 0.09), (16.12, 0.06), (16.13, 0.10)),
    }),
    Block("tab:adam", "cinic10", "adam", 5e-4, "5e-5", ADAM, {
        17500: ((18.86, 0.23), (18.87, 0.15), (18.36, 0.07), (18.45, 0.16)),
        35000: ((17.73, 0.10), (17.72, 0.16), (17.55, 0.13), (17.49, 0.15)),
        70000: ((17.28, 0.22), (17.40, 0.13), (17.18, 0.09), (17.23, 0.11)),
    }),
    Block("tab:adam", "chestxray14", "adam", 1e-4, "1e-4", ADAM, {
        17500: ((15.14, 0.21), (15.19, 0.15), (15.47, 0.24), (15.98, 0.10)),
        35000: ((16.90, 0.13), (17.03, 0.08), (17.10, 0.24), (17.59, 0.14)),
        70000: ((18.59, 0.19), (18.46, 0.14), (18.38, 0.23), (19.08, 0.14)),
    }),
)

# tab:per_iter_time, seconds a step on a Tesla V100; without standard deviations
STEP_SECONDS: dict[str, dict[str, float]] = {
    "fmnist": dict(zip(ALL, (8.60e-3, 8.62e-3, 1.08e-2, 5.22e-2, 6.21e-3, 9.13e-3, 8.66e-3, 7.32e-3), strict=True)),
    "cinic10": dict(zip(ALL, (6.62e-2, 6.63e-2, 6.63e-2, 1.98e-1, 6.35e-2, 6.70e-2, 6.50e-2, 6.67e-2), strict=True)),
    "chestxray14": dict(zip(MULTI_LABEL, (4.45e-1, 4.45e-1, 4.50e-1, 1.36, 4.45e-1, 4.46e-1), strict=True)),
}

# tab:res_time_*, seconds a run on a Tesla V100
RUN_SECONDS = (
    Block("tab:res_time_fmnist", "fmnist", "sgd", 1e-3, "1e-3", ALL, {
        6250: ((53.1, 0.2), (53.5, 0.3), (68.6, 0.7), (321.8, 1.6), (40.4, 0.9), (58.1, 1.5), (53.4, 0.4), (48.0, 1.2)),
        12500: ((108.0, 0.8), (107.8, 0.9), (135.3, 6.4), (656.0, 1.5), (76.6, 1.2), (114.3, 3.8), (108.2, 0.4),
                (90.1, 2.3)),
        25000: ((216.2, 2.4), (216.9, 2.2), (262.3, 14.5), (1316.2, 12.2), (151.2, 2.4), (223.7, 4.2), (219.3, 1.1),
                (176.9, 3.6)),
    }),
    Block("tab:res_time_cinic10", "cinic10", "sgd", 1e-4, "1e-4", ALL, {
        17500: ((1169.3, 76.4), (1111.3, 13.7), (1188.2, 65.4), (3496.6, 139.2), (1116.2, 30.7), (1167.5, 29.6),
                (1137.5, 33.2), (1153.6, 47.7)),
        35000: ((2329.3, 167.3), (2322.7, 151.5), (2327.2, 50.1), (7140.6, 397.3), (2250.7, 68.3), (2342.5, 66.6),
                (2272.0, 39.9), (2280.6, 87.5)),
        70000: ((4693.2, 168.4), (4498.9, 27.3), (4552.2, 38.5), (13596.8, 287.9), (4416.5, 115.1), (4591.8, 49.6),
                (4601.4, 91.5), (4546.3, 88.0)),
        140000: ((9202.0, 303.0), (9068.9, 165.7), (9071.8, 94.4), (28065.0, 802.4), (8838.7, 275.4), (9318.1, 156.0),
                 (9123.9, 228.8), (9065.2, 205.7)),
    }),
    Block("tab:res_time_cinic10", "cinic10", "sgd", 5e-4, "1e-5", ALL, {
        17500: ((1164.0, 54.2), (1174.8, 63.4), (1183.8, 61.2), (3443.2, 120.3), (1114.6, 39.3), (1185.3, 27.3),
                (1112.9, 21.3), (1237.2, 29.2)),
        35000: ((2250.6, 50.7), (2415.6, 163.2), (2307.8, 43.3), (6885.3, 211.3), (2219.1, 63.6), (2364.7, 58.1),
                (2254.2, 36.4), (2473.4, 37.8)),
        70000: ((4697.9, 170.7), (4605.3, 304.8), (4631.1, 79.8), (13595.9, 285.0), (4405.0, 121.9), (4724.7, 151.7),
                (4617.2, 52.1), (4620.0, 223.4)),
        140000: ((9124.9, 361.5), (9739.0, 712.0), (9328.6, 195.0), (27772.9, 306.7), (8867.0, 338.4), (9433.2, 268.2),
                 (9087.3, 211.2), (9195.6, 357.6)),
    }),
    Block("tab:res_time_nih", "chestxray14", "sgd", 1e-4, "1e-4", MULTI_LABEL, {
        17500: ((7768.5, 14.2), (7758.2, 2.0), (7866.1, 43.1), (23824.4, 25.7), (7759.7, 3.1), (7773.8, 3.1)),
        35000: ((15580.2, 5.1), (15587.5, 2.4), (15724.8, 62.4), (47792.9, 42.5), (15583.7, 6.7), (15608.3, 7.2)),
        70000: ((31223.1, 7.7), (31223.7, 13.7), (31487.9, 115.0), (95637.2, 92.0), (31222.2, 13.2), (31268.2, 10.2)),
    }),
)
# fmt: on


class Value(NamedTuple):
    """A value of the paper; num_steps and printed: the row it stands in."""

    mean: float
    sd: float
    num_steps: int
    printed: str


def block_of(data: str, optimizer: str, weight_decay: float) -> Block | None:
    """The part of a table that holds such runs, or None."""
    for block in BLOCKS:
        if (block.data, block.optimizer, block.weight_decay) == (STANDS_FOR.get(data), optimizer, weight_decay):
            return block
    return None


def length_in_paper(data: str, num_steps: int) -> int:
    """The paper's length for one of ours: the same, but for the chest subset the one of the same rank.

    >>> length_in_paper("fmnist", 6250), length_in_paper("chestxray14", LENGTHS["chestxray14"][0])
    (6250, 17500)
    """
    ours = LENGTHS["chestxray14"]
    if data == "chestxray14" and num_steps in ours and len(ours) == 3:
        return (17500, 35000, 70000)[ours.index(num_steps)]
    return num_steps


def find(config: Config) -> Value | None:
    """What the paper has for this configuration, or None. Only data, optimizer, weight decay, length, method count.

    >>> find(Config("fmnist", "lenet5", "emais", num_steps=12500))
    Value(mean=9.05, sd=0.22, num_steps=12500, printed='1e-3')
    """
    block = block_of(config.data, config.optimizer, config.weight_decay)
    length = length_in_paper(config.data, config.num_steps)
    if block is None or config.method not in block.methods or length not in block.rows:
        return None
    return Value(*block.rows[length][block.methods.index(config.method)], length, block.printed)
