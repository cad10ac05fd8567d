"""Variable elimination with tensor-train factors."""
