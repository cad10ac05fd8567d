"""Monte-Carlo engines: parallel tempering and population annealing on any factor graph."""
