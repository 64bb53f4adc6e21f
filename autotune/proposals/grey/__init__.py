"""The parts of the grey-box sampler: surfaces through what was measured, and the choice by them."""
