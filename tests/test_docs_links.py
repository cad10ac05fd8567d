"""Links inside the docs and the README lead to a file that is there, and to a heading in it."""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]*)\)|<(?:img|a)[^>]*(?:src|href)=\"([^\":]+)\"")


def without_code(text: str) -> str:
    """Text of a page without blocks of code and pieces of it."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as the site names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = unicodedata.normalize("NFKD", re.sub(r"\]\([^)]*\)", "", heading))
        words = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode())
        found.add(re.sub(r"[-\s]+", "-", words.strip().lower()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for groups in LINK.findall(without_code(page.read_text())):
        target, _, anchor = (groups[0] or groups[1]).partition("#")
        place = (page.parent / target) if target else page
        assert place.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}: no such heading"


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading: `code`\n[there](#a-heading-code) [nowhere](no.md) `[x](y)`\n")
    assert anchors(page) == {"a-heading-code"}
    assert LINK.findall(without_code(page.read_text())) == [("#a-heading-code", ""), ("no.md", "")]
    with pytest.raises(AssertionError, match="no such file"):
        test_links_lead_somewhere(page)
