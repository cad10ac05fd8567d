"""Structure inside factors: sums of few products, products of smaller factors, barren variables."""
