"""Bayesian networks that several tests read, write and ask."""

import numpy as np

import icgi

SPRINKLER = """
network "a garden" { property author = somebody; }
// comments of both kinds
variable Rain { type discrete [ 2 ] { yes, no }; property position = (1, 2); }
variable "Wet grass" { type discrete [ 3 ] { dry, damp, "very wet" }; }
variable Sprinkler { type discrete[2]{on,off}; }
/* tables in both forms */
probability ( Rain ) { table 0.2, 0.8; }
probability ( Sprinkler | Rain ) { table 0.01, 0.4, 0.99, 0.6; }
probability ( "Wet grass" | Sprinkler, Rain ) {
  (on, yes) 0.01, 0.09, 0.9;
  (off, yes) 0.1, 0.3, 0.6;
  (on, no) 0.1, 0.5, 0.4;
  default 0.98, 0.01, 0.01;
}
"""


def network(seed: int = 0) -> icgi.FactorGraph:
    """Random Bayesian network with a zero, its factors and axes in no particular order."""
    rng = np.random.default_rng(seed)
    cards = {"Rain": 2, "Wet": 3, "Sun": 2, "Mood": 4}
    factors = []
    for scope in (("Mood", "Wet", "Sun"), ("Sun",), ("Wet", "Rain"), ("Rain", "Sun")):
        table = rng.dirichlet(np.ones(cards[scope[0]]), [cards[name] for name in scope[1:]])
        table = np.moveaxis(table, -1, 0)
        if scope == ("Wet", "Rain"):
            table[:, 1] = [0.5, 0.0, 0.5]
            factors.append((scope[::-1], table.T))
        else:
            factors.append((scope, table))
    return icgi.from_factors(factors, states={"Wet": ["dry", "damp", "soaked"]})
