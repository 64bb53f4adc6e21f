"""What a study decides within a budget, on recorded costs: the real schedule, proposer and interval, a simulated clock.

``recorded`` holds what was measured, ``machine`` what a trial costs by it, ``runner`` runs trials on a clock
that only it moves, ``studies`` runs and judges one study, ``record`` keeps many, ``report`` puts them into a table.
"""
