"""Random faults at random points of random studies, and what must hold after each: ``python -m tests.campaign --help``.

``plans`` draws the studies, ``study`` runs and follows one, ``faults`` is what can happen to it, ``invariants`` is what
must hold all the same, ``mutants`` takes one guard of the product out, to see that its loss is noticed.
"""
