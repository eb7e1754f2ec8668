"""A run that another executor recorded, gone on with in the simulator: its history, a scenario made of it, and a run."""
