"""Error of a marginal against Σ ε_t and the bound with the division by Z, by graph and coupling.

    python benchmarks/theory.py          prints the table of docs/theory.md (a minute)

Binary models of twelve variables, 40 draws a row, random orders. `rank r`: every eliminated factor
is rounded to a tensor train of that rank; `mix s`: a share s of a random distribution is mixed in.
"""

import numpy as np

from icgi.bench.propagation import mixing, propagate, rounding
from icgi.data.families import FAMILIES

N, DRAWS = 12, 40
GRAPHS = {
    "tree": {"n": N, "arity": 2},
    "grid": {"rows": 3, "columns": 4},
    "er": {"n": N, "p": 0.4},
}


def main() -> None:
    print("| graph | β | factors | error | Σ ε_t | with division | violations of Σ ε_t | worst |")
    print("|---" * 8 + "|")
    for family, sizes in GRAPHS.items():
        for beta in (0.3, 1.0, 3.0):
            for name in ("rank 1", "rank 2", "mix 0.01"):
                row(family, sizes, beta, name)


def row(family: str, sizes: dict, beta: float, name: str) -> None:
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        model = FAMILIES[family].sample(rng, beta=beta, **sizes)
        kind, _, value = name.partition(" ")
        worse = rounding(int(value)) if kind == "rank" else mixing(float(value), rng)
        found.append(propagate(model, rng.permutation(N).tolist(), worse))
    assert all(each.error <= each.divided + 1e-9 for each in found)
    error, linear, divided = (
        np.median([getattr(each, word) for each in found])
        for word in ("error", "linear", "divided")
    )
    seen = [each for each in found if each.linear > 1e-9]
    over = [each.error / each.linear for each in seen if each.error > each.linear]
    worst = f"{max(over):.1f} ×" if over else "–"
    numbers = f"{error:.1e} | {linear:.1e} | {divided:.1e} | {len(over)} of {len(found)}"
    print(f"| {family} | {beta:g} | {name} | {numbers} | {worst} |")


if __name__ == "__main__":
    main()
