"""Whole studies in worlds of their own: machines from first principles, on which a search is judged and never tuned.

``physics`` holds what all worlds share: seconds by phase, memory by moment, starts and noise of a configuration. Each
world is a small module with its constants, and what differs from the physics. ``arms`` says who proposes, ``best`` what
could be reached. Who changes the search reads none of the worlds.
"""
