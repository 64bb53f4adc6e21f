"""Questions people ask of the tool, each with its right answer: ``python -m benchmarks.cases FOLDER``."""
