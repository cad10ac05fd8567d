"""The picture of the architecture stays true: imports point down only."""

import ast
from pathlib import Path

import icgi

ROOT = Path(icgi.__file__).parent
# room -> rooms it may import; a room may always import itself
BELOW = {
    "errors": set(),
    "wording": set(),
    "extras": {"errors"},
    "randomness": {"errors"},
    "clock": set(),
    "units": set(),
    "kernels": {"clock"},
    "model": {"errors", "wording", "extras", "randomness", "clock", "kernels", "units"},
    "inference": {"model", "errors", "clock"},
    "arrays": {"inference", "model", "errors"},
    "chained": {"inference", "model", "errors", "clock", "units"},
    "tt": {"errors", "kernels"},
}
FOUNDATION = {
    "arrays", "inference", "model", "errors", "wording", "extras", "randomness", "clock",
    "kernels", "units",
}  # fmt: skip
ROOMS = {"exact", "approx", "sampling", "conformal"}
BELOW |= {room: FOUNDATION for room in ROOMS}
BELOW["elimination"] = FOUNDATION | {"tt"}
BELOW["neural"] = FOUNDATION | {"tt", "exact"}
ENGINE_ROOMS = ROOMS | {"elimination", "neural", "tt"}
BELOW["portfolio"] = FOUNDATION | ENGINE_ROOMS | {"chained"}
BELOW["engines"] = FOUNDATION | ENGINE_ROOMS | {"portfolio"}
BELOW["metrics"] = {"errors", "model"}
BELOW["display"] = FOUNDATION | {"engines"}
BELOW["lookup"] = {"model", "errors", "wording"}
BELOW["joint"] = FOUNDATION | {"lookup", "chained"}
BELOW["answer"] = FOUNDATION | {"display", "lookup", "joint"}
BELOW["batch"] = BELOW["engines"] | {"engines", "answer"}
BELOW["data"] = BELOW["engines"] | {"engines", "metrics", "extras", "answer"}
BELOW["calibration"] = BELOW["data"] | {"data", "answer", "batch"}
BELOW["workers"] = BELOW["engines"] | {"data"}
BELOW["api"] = BELOW["engines"] | {"engines", "answer", "batch", "calibration", "workers"}
BELOW["queries"] = BELOW["api"] | {"api", "lookup", "joint"}
BELOW["torch"] = BELOW["api"] | {"api", "joint"}
BELOW["web"] = BELOW["api"] | {"api", "extras", "queries", "lookup", "joint"}
BELOW["report"] = BELOW["web"] | {"web", "metrics"}
BELOW["train"] = BELOW["data"] | {"data"}
BELOW["bench"] = BELOW["data"] | {"data", "api", "answer"}
BELOW["cli"] = set(BELOW) | {"train", "bench"}
BELOW["__init__"] = set(BELOW)
BELOW["__main__"] = {"cli"}
TYPES_ONLY = {("model", "inference"), ("display", "answer")}  # for annotations, under TYPE_CHECKING


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "icgi":
                names = [f"icgi.{a.name}" for a in node.names if not a.name.startswith("__")]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("icgi.")}
    return found


def test_imports_point_down() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        room = room_of(path)
        assert room in BELOW, f"{path.name}: a new room needs its place in the picture"
        for other in imported_rooms(path) - BELOW[room] - {room}:
            if (room, other) not in TYPES_ONLY:
                wrong.append(f"{path.relative_to(ROOT)} imports icgi.{other}")
    assert not wrong


def test_no_relative_imports_hide_from_this_test() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def test_engine_rooms_do_not_print_or_log() -> None:
    for room in ENGINE_ROOMS | {"model", "portfolio"}:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                assert not (called and node.func.id == "print"), path
