"""Prints all published figures that can be recomputed (paper | ours | baseline), and for the others why they cannot.

    python -m benchmarks.papers [--only PAPER] [--long]

Run it in the root of the repository.  PAPER is milp-albic, dyndl, lf, heterogeneity or elastic.  Everything but the
papers' figures is computed in this run, from fixed seeds.  The instances have the shapes of the papers, with our
numbers where the papers give none.  For figures that are only pictures, the text of the paper is compared.  Times are
CPU seconds of this single-threaded process.  --long adds sizes and shares of the collocation experiments that take
minutes.
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
    """Print the table, paper by paper."""
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
