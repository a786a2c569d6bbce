"""Runs as long as one likes: what generated histories find only in the thousandth."""
