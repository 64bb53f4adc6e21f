"""How often does the interval of a gain hold the truth, and how soon does it prove one? On synthetic studies."""
