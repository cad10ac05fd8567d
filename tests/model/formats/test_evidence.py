"""Files of evidence by name."""

import json
from pathlib import Path

import pytest

import icgi
from icgi.model.formats.evidence import read_findings
from some_networks import network


def test_json_and_csv_and_evid_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text('{"Wet": "damp", "Mood": 3}')
    (tmp_path / "e.csv").write_text("Variable, State\nWet, damp\n\nMood,3\n")
    (tmp_path / "case.csv").write_text("Wet,Rain,Mood\ndamp,,3\n")
    model = network()
    i, j = model.names.index("Wet"), model.names.index("Mood")
    (tmp_path / "e.evid").write_text(f"2 {i} 1 {j} 3")
    for name in ("e.json", "e.csv", "case.csv", "e.evid"):
        assert icgi.load_evidence(tmp_path / name, model) == {i: 1, j: 3}


def test_json_holds_every_kind_of_finding(tmp_path: Path) -> None:
    path, model = tmp_path / "e.json", network()
    content = {
        "observe": {"Mood": 1},
        "likely": {"Wet": {"dry": 1, "damp": 2, "soaked": 0}},
        "exclude": {"Rain": [0]},
    }
    path.write_text(json.dumps(content))
    found = read_findings(path, model)
    assert found.observed == {model.names.index("Mood"): 1}
    assert found.likelihood[model.names.index("Wet")].tolist() == [1, 2, 0]
    assert found.excluded == {model.names.index("Rain"): (0,)}
    with pytest.raises(icgi.EvidenceError, match="likelihood="):
        icgi.load_evidence(path, model)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.json", "{", "line 1: no JSON"),
        ("e.json", "[1]", "an object"),
        ("e.json", '{"Wet": [1]}', "a name or a number"),
        ("e.json", '{"Wet": "dry", "Wet": "damp"}', "twice"),
        ("e.json", '{"Wett": "dry"}', "did you mean 'Wet'"),
        ("e.json", '{"exclude": {"Wet": [[1]]}}', "names or numbers"),
        ("e.csv", "Wet\n", "line 1 is no pair"),
        ("e.csv", "Wet,Mood\ndamp,3\ndry,2\n", "holds 2 cases"),
        ("e.csv", "Wet,Mood\ndamp\n", "1 states under 2 names"),
        ("e.csv", "Wet,dri\n", "did you mean 'dry'"),
        ("e.csv", "Wet,dry\nWet,damp\n", "line 2 observes 'Wet' once more"),
        ("x.json", '{"observe": {"HR": "HIGH"}, "likly": {}}', "did you mean 'likely'"),
    ],
)
def test_mistakes_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(icgi.EvidenceError, match=message) as caught:
        read_findings(tmp_path / name, network())
    assert name in str(caught.value)
