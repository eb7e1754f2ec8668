"""Engines under load: how long requests take that share the iterations of one replica. Pure, and not yet used by a scenario."""
