"""Model files for the tests of the command line."""

from typing import Any

import icgi
from icgi.data.families import FAMILIES
from icgi.model.graph import FactorGraph
from icgi.randomness import generator


def make(family: str, path: str, seed: int = 0, **parameters: Any) -> FactorGraph:
    model = FAMILIES[family].sample(generator(seed), **parameters)
    icgi.save(model, path)
    return model
