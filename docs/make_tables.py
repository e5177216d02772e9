"""Makes docs/tables.md from the result files under results/ and the step times under benchmarks/results/.

python docs/make_tables.py
"""

from __future__ import annotations

from pathlib import Path

from emais.experiments.report import write_markdown
from emais.experiments.results import Results
from emais.experiments.steptimes import read_timings

ROOT = Path(__file__).parent.parent
FILES = ("fmnist.jsonl", "cifar10.jsonl", "chestxray14.jsonl")

if __name__ == "__main__":
    target = ROOT / "docs" / "tables.md"
    records = [record for name in FILES for record in Results(ROOT / "results" / name).read()]
    write_markdown(records, target, read_timings(ROOT / "benchmarks" / "results"))
    print(target)
