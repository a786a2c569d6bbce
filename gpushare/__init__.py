"""The shared vocabulary of gpushare: pure, typed, no I/O.

Names, quantities, demand, cards, the ledger, placement and errors. Both the scheduler extender and the
device plugin are built on this package; it imports neither of them, nor anything that talks to a network.
"""

__version__ = "0.1.0"
