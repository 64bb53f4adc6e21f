"""The public JSON of studies, trials and recommendations."""
