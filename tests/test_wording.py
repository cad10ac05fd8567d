import ast
import re
from pathlib import Path

import pytest

import icgi
from icgi.wording import did_you_mean, shown, some

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rain", "rain"),
        ("Größe β", "Größe β"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_near_words_are_offered_and_far_ones_are_not() -> None:
    assert did_you_mean("lpb", ["lbp", "jt"]) == " (did you mean 'lbp'?)"
    assert did_you_mean("Rain", ["rain", "snow"]) == " (did you mean 'rain'?)"
    assert did_you_mean("magic", ["lbp", "jt"]) == ""
    assert did_you_mean("x", []) == ""


def test_long_lists_are_cut() -> None:
    assert some("abc") == "a, b, c"
    assert some(map(str, range(5)), 3) == "0, 1, 2, … (2 more)"


# What only insiders would read, and the word that stands for it (docs/glossary.md).
PRIVATE = {
    r"wreck(s|ed)?": "unusable",
    r"crews?": "ensembles",
    r"peel(s|ed|ing)?": "pre-elimination",
    r"loudest": "branching variable",
    r"heard|hears": "context, boundary, message, input",
    r"(the )?python door": "Python interface",
    r"saying no well": "refusals",
}
PAGES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.js"),
    *(p for p in (ROOT / "docs").rglob("*.md") if p.name != "log.md"),  # the log quotes the past
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


@pytest.mark.parametrize("word", PRIVATE, ids=str)
def test_private_words_stay_out(word: str) -> None:
    pattern = re.compile(rf"\b({word})\b(?!\"])", re.I)
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"say: {PRIVATE[word]}"


FLAG = re.compile(r"(^|[\s(`])--?[a-z][a-z-]+")
OTHER_PROGRAMS = {
    "data/jobs/slurm.py",
    "bench/render.py",
    "report/html.py",
}  # sbatch, icgi bench, CSS


def test_messages_below_the_command_line_do_not_speak_in_flags() -> None:
    """Who calls `icgi.marginals` has no flags; the command line says its own."""
    package = Path(icgi.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith("cli/") or name in OTHER_PROGRAMS:
            continue
        for raised in ast.walk(ast.parse(path.read_text())):
            if not isinstance(raised, ast.Raise):
                continue
            for part in ast.walk(raised):
                words = part.value if isinstance(part, ast.Constant) else None
                if isinstance(words, str) and FLAG.search(words) and "pip install" not in words:
                    found.append(f"{name}:{part.lineno}: {words}")
    assert not found
