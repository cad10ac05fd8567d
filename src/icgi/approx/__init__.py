"""Classical approximations: mean field, loopy and tree-reweighted belief propagation, TAP."""
