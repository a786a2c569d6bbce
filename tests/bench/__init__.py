"""`make bench`: what the design promises, measured as ratios within one run."""
