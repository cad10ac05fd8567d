"""Published answers, where ICGI_DATA names the folder that holds them (never part of the project).

`benchmarks/golden.py` goes through all of them; these are the quick ones of every family.
"""

import math

import numpy as np
import pytest

import icgi
from icgi.data.collection import Instance, data_folder, instances

QUICK = (
    "Alchemy_11", "CSP_12", "DBN_11", "Grids_11", "ObjectDetection_11", "Pedigree_12",
    "Promedus_13", "Segmentation_11", "relational_2", "BN_31", "pdb1rh4",
)  # fmt: skip


@pytest.fixture(scope="module")
def collection() -> dict[str, Instance]:
    folder = data_folder()
    if folder is None:
        pytest.skip("set ICGI_DATA to the folder of manifest.csv to compare with published answers")
    return {instance.name: instance for instance in instances(folder)}


@pytest.mark.parametrize("name", QUICK)
def test_equals_the_published_answer_to_its_printed_digits(name: str, collection) -> None:
    instance = collection[name]
    assert instance.tractable
    answer = icgi.marginals(instance.model(), instance.evidence(), "jt")
    reference = instance.reference()
    assert reference is not None, "without a trustworthy reference there is nothing to compare"
    for found, published in zip(answer, reference, strict=True):
        assert np.abs(found - published).max() <= 1e-6
    published_z = instance.log10_z()
    if published_z is not None:  # six significant digits
        last_digit = 10.0 ** (math.floor(math.log10(abs(published_z))) - 5)
        assert answer.log_z / math.log(10) == pytest.approx(published_z, abs=0.51 * last_digit)
