import dataclasses
import pickle

import pytest

import zoo
from icgi.engines import ENGINES, engine_class, parse_engine
from icgi.errors import IcgiError
from icgi.exact.junction_tree import JunctionTree


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_a_frozen_bag_of_settings(name: str) -> None:
    engine = zoo.engine_or_skip(name)
    assert dataclasses.is_dataclass(engine)
    assert engine_class(name).__doc__
    assert engine == parse_engine(name), "settings compare by value"
    assert pickle.loads(pickle.dumps(engine)) == engine
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        engine.anything = 1


def test_options_are_read_by_their_type() -> None:
    assert parse_engine("jt:arithmetic=log,search_share=0.5") == JunctionTree(0.5, "log")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loopy", "unknown engine 'loopy'; there are"),
        ("lpb", r"unknown engine 'lpb' \(did you mean 'lbp'\?\)"),
        ("jt:speed=9", "no option 'speed'; its options are"),
        ("jt:serch_share=0.5", r"no option 'serch_share' \(did you mean 'search_share'\?\)"),
        ("jt:arithmetic=exotic", "one of auto, linear, log"),
        ("jt:arithmetic=liner", r"did you mean 'linear'\?"),
        ("icgi:fast,rest=trees", r"one of tree, sum \(did you mean 'tree'\?\)"),
        ("jt:search_share=much", "a number"),
        ("jt:fast", "no option 'fast'"),
        ("tap:tolerance=nan", "should be a number"),
        ("mf:restarts=99999999999999999999", "should be a whole number"),
        ("pt:threads=0", "threads=0; give 1 or more"),
        ("pa:threads=0", "threads=0; give 1 or more"),
        ("pa:population=0", "at least 2"),
        (
            "bpnn:network=fast",
            "no option 'network'; its options are: variant, seed, weights, device",
        ),
    ],
)
def test_mistakes_are_explained(text: str, words: str) -> None:
    with pytest.raises(IcgiError, match=words):
        parse_engine(text)
