"""Classical approximations: mean field, loopy, tree-reweighted and generalised BP, TAP."""
