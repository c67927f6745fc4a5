"""Every published figure that can be recomputed: paper | ours | baseline; of the others, why not.

    python -m benchmarks.papers [--only PAPER] [--long]

Run it where this repository begins. PAPER is milp-albic, dyndl, lf, heterogeneity or elastic. Everything but the
paper's own figures is computed in this run, from fixed seeds; the instances have the papers' shapes and our numbers,
where the papers leave numbers out. What a paper shows in pictures only is compared by what its text says of them.
Times are CPU seconds of this one-threaded process. --long adds sizes and shares of the collocation experiments that
take minutes.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.papers import dyndl, elastic, heterogeneity, lf, milp_albic
from benchmarks.papers.row import print_cells

PAPERS = {
    "milp-albic": ("Madsen, Zhou, Cao, ICDE 2017: load balancing, scaling in, collocation", milp_albic.rows),
    "dyndl": ("Jin, An, Zhou, Tang, Xiong, Applied Sciences 2018: DynDL", dyndl.rows),
    "lf": ("Son, Moon, Electronics 2020: locality/fairness scheduler", lf.rows),
    "heterogeneity": ("Nasiri, Nasehi, Divband, Goudarzi, 2020: heterogeneity-aware scheduler", heterogeneity.rows),
    "elastic": ("Elastic Allocator, IEEE SOSE 2014", elastic.rows),
}


def main() -> None:
    """Prints the table, paper by paper."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PAPERS, metavar="PAPER", help=" | ".join(PAPERS))
    parser.add_argument("--long", action="store_true", help="all sizes and shares of figures 10, 11 and 13")
    args = parser.parse_args()
    for name, (title, rows) in PAPERS.items():
        if args.only not in (None, name):
            continue
        started = time.process_time()
        print(f"\n{title}")
        print_cells("figure", "what", "paper", "ours", "baseline")
        for row in rows(long=args.long):
            row.show()
        print(f"({time.process_time() - started:.0f} CPU seconds)")


if __name__ == "__main__":
    main()
