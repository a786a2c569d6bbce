"""`kubectl inspect gpushare`: which pod sits on which card, and what is left.

cli         the command: flags, watching, exit codes
source      where the answer comes from: the extender, through the API server's proxy
lists       the same answer, computed from lists of nodes and pods
usage       memory really in use, from the device plugins' metrics
summary     the classic table
details     `-d`: pods by node and card
wide        `-o wide`: one row a card
problems    what needs saying besides: closed nodes, pods without a card, pods that wait
tabwriter   columns as Go's text/tabwriter aligns them
"""
