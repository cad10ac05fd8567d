from collections import Counter

import numpy as np
import pytest

from icgi.data.families import FAMILIES, PRESETS
from icgi.data.splits import (
    SPLITS,
    Draw,
    Role,
    configuration_role,
    draws,
    leave_one_out,
    stratified,
)
from icgi.errors import IcgiError

SEEN = {Role.TRAIN, Role.VALIDATION}
UNSEEN = {Role.TEST, Role.OOD}


def topology(preset: str, parameters: dict) -> tuple:
    """What two presets may share under different names: a 2D glass is a planar grid."""
    family = PRESETS[preset].family
    values = dict(FAMILIES[family].parameters) | parameters
    for weak in ("field", "h"):
        values.pop(weak, None)
    if family == "ea2d" and not values.pop("periodic"):
        length = values.pop("L")
        return "grid", tuple(sorted((values | {"rows": length, "columns": length}).items()))
    return family, tuple(sorted(values.items()))


def configurations() -> list[tuple[str, dict, set[Role]]]:
    return [
        (name, parameters, {Role.TRAIN, Role.VALIDATION, Role.IN_DISTRIBUTION})
        if (role := configuration_role(name, parameters)) is Role.TRAIN
        else (name, parameters, {role})
        for name, preset in PRESETS.items()
        for parameters in preset.configurations()
    ]


class TestNothingLeaks:
    def test_no_configuration_is_both_seen_and_unseen(self) -> None:
        seen, unseen = set(), set()
        for name, parameters, roles in configurations():
            key = topology(name, parameters)
            if roles & SEEN:
                seen.add(key)
            if roles & UNSEEN:
                unseen.add(key)
        assert seen
        assert unseen
        assert not seen & unseen

    def test_test_topologies_are_in_no_training_set(self) -> None:
        trained = {PRESETS[name].family for name, _, roles in configurations() if roles & SEEN}
        assert trained == {"grid", "tree", "er", "sk", "ea2d", "ea3d"}
        for name in ("ba-paper", "ws-paper"):
            assert {draw.role for draw in draws(name)} == {Role.OOD}

    def test_no_training_is_as_cold_or_large_as_the_test(self) -> None:
        for name, parameters, roles in configurations():
            if roles & SEEN:
                assert parameters["beta"] <= 1.5
                assert parameters.get("n", 0) <= 200
                family = PRESETS[name].family
                assert parameters.get("L", 0) <= {"ea2d": 30, "ea3d": 8}.get(family, 0)

    @pytest.mark.parametrize("name", ["sk-paper", "er-paper", "ea2d-paper"])
    def test_every_draw_has_its_own_random_numbers(self, name: str) -> None:
        found = list(draws(name))
        assert len(found) == len(PRESETS[name])
        assert len({draw.digest for draw in found}) == len(found)
        roles = Counter(draw.role for draw in found)
        assert roles[Role.TRAIN] == 7 * roles[Role.VALIDATION]
        assert roles[Role.IN_DISTRIBUTION] == 2 * roles[Role.VALIDATION]

    def test_the_role_is_part_of_the_identity(self) -> None:
        one = Draw("er-paper", (("n", 50),), 3, Role.TRAIN)
        other = Draw("er-paper", (("n", 50),), 3, Role.VALIDATION)
        assert one.digest != other.digest
        assert (one.sample().log_tables[0] != other.sample().log_tables[0]).any()


class TestThePapersLists:
    @pytest.mark.parametrize(
        ("name", "parameters", "role"),
        [
            ("sk-paper", {"n": 100, "beta": 1.0, "h": 0.1}, Role.TRAIN),
            ("sk-paper", {"n": 200, "beta": 1.5, "h": 0.0}, Role.TRAIN),
            ("sk-paper", {"n": 500, "beta": 2.0, "h": 0.1}, Role.OOD),
            ("sk-paper", {"n": 1000, "beta": 0.5, "h": 0.1}, Role.OOD),
            ("sk-paper", {"n": 50, "beta": 3.0, "h": 0.1}, Role.OOD),
            ("ea2d-paper", {"L": 30, "beta": 1.5}, Role.TRAIN),
            ("ea2d-paper", {"L": 50, "beta": 1.0}, Role.TEST),
            ("ea2d-paper", {"L": 10, "beta": 2.0}, Role.OOD),
            ("ea3d-paper", {"L": 8, "beta": 0.5}, Role.TRAIN),
            ("ea3d-paper", {"L": 10, "beta": 1.5}, Role.TEST),
            ("ea3d-paper", {"L": 12, "beta": 3.0}, Role.OOD),
        ],
    )
    def test_roles(self, name: str, parameters: dict, role: Role) -> None:
        assert configuration_role(name, parameters) is role

    def test_every_preset_has_a_split(self) -> None:
        assert set(SPLITS) == set(PRESETS)

    def test_rules_name_values_that_exist(self) -> None:
        for name, rules in SPLITS.items():
            for rule in rules:
                for key, values in rule.where.items():
                    assert set(values) & set(PRESETS[name].grid[key])


def test_draws_are_reproducible_and_chosen_by_role() -> None:
    first = next(draws("ws-paper", Role.OOD))
    assert first.role is Role.OOD
    a, b = first.sample(), first.sample()
    assert a.scopes == b.scopes
    np.testing.assert_array_equal(a.log_tables[5], b.log_tables[5])
    assert not list(draws("ws-paper", Role.TRAIN))
    with pytest.raises(IcgiError, match="there are: sk-paper"):
        next(draws("nothing"))


FILES = {f"{family}-{k}": family for family in ("grid", "bn") for k in range(40)}


class TestFiles:
    def test_stratified_by_family(self) -> None:
        roles = stratified(FILES)
        assert set(roles) == set(FILES)
        for family in ("grid", "bn"):
            count = Counter(roles[name] for name in roles if FILES[name] == family)
            assert count == {Role.TRAIN: 28, Role.VALIDATION: 4, Role.IN_DISTRIBUTION: 8}

    def test_does_not_depend_on_the_order_of_files(self) -> None:
        assert stratified(dict(reversed(FILES.items()))) == stratified(FILES)

    def test_reserved_files_are_for_testing(self) -> None:
        reserved = ["grid-1", "grid-2"]
        roles = stratified(FILES, only_test=reserved)
        assert {roles[name] for name in reserved} == {Role.TEST}
        assert len(roles) == 80

    def test_leave_one_out(self) -> None:
        found = list(leave_one_out("abc"))
        assert [test for _, test in found] == list("abc")
        assert all(test not in train and len(train) == 2 for train, test in found)
