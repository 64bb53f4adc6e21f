"""Shared code of the frameworks on transformers' ``Trainer``: TRL, Open-R1, ms-swift. Imports none of them."""
