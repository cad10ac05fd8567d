"""Flat forms: those that a source leaves behind are those that the factors make."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zoo
from icgi.data.families import FAMILIES
from icgi.model.condition import condition
from icgi.model.formats.uai import format_uai, parse_model
from icgi.model.graph import FactorGraph, flattened
from icgi.model.wiring import wiring


def parsed() -> FactorGraph:
    return parse_model("".join(format_uai(zoo.MODELS["mixed-cards"])).encode(), "here")


def generated() -> FactorGraph:
    return FAMILIES["ea2d"].sample(np.random.default_rng(0), L=4)


def conditioned() -> FactorGraph:
    return condition(parsed(), {0: 0}).model


def many() -> FactorGraph:
    pairs = tuple((i, i + 1) for i in range(12_000))
    tables = np.random.default_rng(0).normal(size=(len(pairs), 2, 2))
    return FactorGraph(np.full(12_001, 2), pairs, tuple(tables))


@pytest.mark.parametrize("made", [parsed, generated, conditioned, many])
def test_flat_arrays_of_the_source_say_what_the_factors_say(
    made: Callable[[], FactorGraph],
) -> None:
    model = made()
    assert model.flat is not None
    expected = flattened(model.scopes, model.log_tables)
    for field in dataclasses.fields(expected):
        found = getattr(model.flat, field.name)
        assert_array_equal(found, getattr(expected, field.name))
        assert found.dtype == getattr(expected, field.name).dtype


@pytest.mark.parametrize("made", [parsed, generated, conditioned, many])
def test_values_of_a_wiring_belong_to_the_caller(made: Callable[[], FactorGraph]) -> None:
    model = made()
    before = [table.copy() for table in model.log_tables]
    wiring(model).values[:] = 7.0
    for table, kept in zip(model.log_tables, before, strict=True):
        assert_array_equal(table, kept)
