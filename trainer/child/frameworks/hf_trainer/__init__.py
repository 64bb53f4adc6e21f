"""What trials of every framework on transformers' ``Trainer`` share: TRL, Open-R1, ms-swift. Imports none of them."""
