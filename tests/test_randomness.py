import numpy as np

from icgi.randomness import LazyStreams


def test_streams_made_late_are_those_of_spawn() -> None:
    rng = np.random.default_rng(3)
    rng.spawn(2)
    late = LazyStreams(rng, 5)
    drawn = [late[k].random() for k in (4, 0, 2, 4)]
    early = rng.spawn(5)
    assert drawn == [early[k].random() for k in (4, 0, 2, 4)]
    assert [each is late[k] for k, each in enumerate(late)] == [True] * 5
