"""The edges that both programs share: the Kubernetes API, and how a program is started and logs.

`client` speaks HTTP to the API server, `reflector` keeps a local view of a collection up to date, `leases`
lets one replica of several lead, `settings` reads flags, environment and the file of `configfile`, `files`
notices what has changed on disk, `logs` writes key=value lines. Knows nothing of cards.
"""
