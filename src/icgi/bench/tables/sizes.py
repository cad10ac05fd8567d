"""Rows of `speed`: what grows, and under which key of a line it is."""

GROWING = {
    "variables (trees)": "n",
    "pairs (SK)": "pairs",
    "width (grids of 12 columns)": "width",
    "states (Potts 4×4)": "states",
}
