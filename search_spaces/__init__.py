"""What may be tried: knobs, the spaces made of them, and the rules that make a combination legal."""
