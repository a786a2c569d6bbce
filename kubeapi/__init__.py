"""The edges that both programs share: the Kubernetes API, and how a program is started and logs.

`client` speaks HTTP to the API server, `reflector` keeps a local view of a collection up to date,
`settings` reads flags and environment, `logs` writes key=value lines. Knows nothing of cards.
"""
