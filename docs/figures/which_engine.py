"""Picture of the choice of an engine, as docs/figures/which_engine.svg.

python docs/figures/which_engine.py

Every number is read from a table of the docs, which names the command that measured it.
"""

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent.parent
WIDTH, TOP, STEP, HEIGHT = 560, 48, 94, 82
BLUE, INK, PALE, LINE = "#3f51b5", "#1d2330", "#eef0fb", "#b9bfd6"


def cell(page: str, row: str, column: int, engine: str = "") -> str:
    """One cell of the first table row of a page that begins so, without brackets and bold.

    Where a page has several rows of that name, `engine` says whose.
    """
    found = next(
        line
        for line in (DOCS / page).read_text().splitlines()
        if line.startswith(f"| {row} |") and (not engine or f"| `{engine}` |" in line)
    )
    return re.sub(r"[*()]", "", found.strip("| ").split(" | ")[column - 1].strip().split(" ")[0])


def choices() -> list[tuple[str, str, str, str]]:
    """What is wanted, in two lines; the engine; what was measured. From the top."""
    auto = cell("engines/auto.md", "all", 6)
    alone = cell("engines/auto.md", "all", 3)
    hard = "hard.md", "sk-500 β=2 h=0.5", 7
    small = "results.md", "`lbp`, best damping"
    return [
        (
            "The best answer in the time I give", "nothing else", "auto",
            f"mean error {auto} on 92 models; lbp alone {alone}",
        ),
        (
            "Exact, or the reason why not", "and what it would take", "exact",
            "agrees with all 93 published answers that fit",
        ),
        (
            "One large lattice, pedigree, noisy-or net", "sparse, beyond exact inference", "ttve",
            f"pedigree linkage_24: error {cell('engines/ttve.md', 'linkage_24', 2)}; "
            f"lbp {cell('engines/ttve.md', 'linkage_24', 3)}",
        ),
        (
            "One large dense or cold glass", "or a second opinion after ttve, lbp, icgi", "pt",
            f"500 spins (SK), 20 s: error {cell(*hard, 'pt')}; "
            f"ttve {cell(*hard, 'ttve')}",
        ),
        (
            "Thousands of models, milliseconds each", "trees or weak couplings", "lbp",
            "exact on trees; protein side chains: error "
            f"{cell('accuracy.md', 'uai2008-sidechain (28)', 3)} in 0.01 s",
        ),
        (
            "Thousands of models, milliseconds each", "binary, pairwise, with loops", "icgi",
            f"up to 24 spins: icgi:paper {cell('results.md', '`paper`', 2)}; lbp {cell(*small, 2)}",
        ),
        (
            "Thousands of models, and a CUDA device", "pairwise, up to 32 states", "pt-gpu",
            "3.6 to 7.1 × 10¹⁰ updates a second, one H200",
        ),
        ("Bounds on log Z", "from below · from above", "mf · trbp", "always hold at rest"),
        (
            "A second opinion after pt", "independent errors", "pa",
            "and log Z with a standard error",
        ),
    ]  # fmt: skip


def picture() -> str:
    """SVG: a card for every choice, with the engine at its right end and its measurement below."""
    rows = choices()
    height = TOP + STEP * len(rows)
    mono = 'font-family="ui-monospace, Menlo, Consolas, monospace"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        f'<text x="24" y="32" font-size="19" font-weight="700" fill="{INK}">'
        "I want … (the first that fits, from the top)</text>",
    ]
    for k, (first, second, engine, measured) in enumerate(rows):
        y, wide = TOP + STEP * k, 26 + 11 * len(engine)
        fill, ink = (BLUE, "#ffffff") if k == 0 else ("#ffffff", BLUE)
        if k < len(rows) - 1:
            parts.append(f'<path d="M40 {y + HEIGHT} v{STEP - HEIGHT}" stroke="{LINE}"/>')
        parts += [
            f'<rect x="12" y="{y}" width="{WIDTH - 24}" height="{HEIGHT}" rx="8" fill="{PALE}"/>',
            f'<text x="26" y="{y + 26}" font-size="17" font-weight="600" fill="{INK}">'
            f"{escape(first)}</text>",
            f'<text x="26" y="{y + 49}" font-size="15.5" fill="{INK}">{escape(second)}</text>',
            f'<text x="26" y="{y + 71}" font-size="15.5" fill="{BLUE}">{escape(measured)}</text>',
            f'<rect x="{WIDTH - 24 - wide}" y="{y + 9}" width="{wide}" height="28" rx="14" '
            f'fill="{fill}" stroke="{BLUE}"/>',
            f'<text x="{WIDTH - 24 - wide / 2}" y="{y + 29}" font-size="17" font-weight="700" '
            f'text-anchor="middle" {mono} fill="{ink}">{escape(engine)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    (DOCS / "figures" / "which_engine.svg").write_text(picture())
