"""All structure of a model that exact inference can use, found once and said in words."""

from icgi.model.graph import FactorGraph
from icgi.model.structure.collapse import Collapsed, collapse
from icgi.model.structure.split import split_products


def find_structure(model: FactorGraph) -> Collapsed | None:
    """Signed network of a model after its products are split; None where no sum is found.

    The model should carry its evidence already (`condition`): that is when most products split.
    """
    return collapse(split_products(model))
