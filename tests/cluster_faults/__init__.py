"""Faults by script on a Ray cluster of four nodes with made-up GPUs: ``python -m tests.cluster_faults --help``.

``machines`` is the cluster, ``network`` a node's own network, ``study`` what runs there, ``faults`` what happens to it.
What must hold all the same is mostly that of ``tests.campaign``.
"""
