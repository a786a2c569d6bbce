"""The scheduler side: watches the cluster, keeps the ledger, and answers kube-scheduler's verbs.

state     what is known: the ledger and the pods that wait, fed by two watches
verbs     filter and prioritize: pure answers from the state
binder    bind: choose, reserve, one write
inspect   what is on which card, for people
admission adds the slot to pods that ask for memory
wire      the bodies of kube-scheduler's requests and answers
app       HTTP routes
listeners which address answers which routes; tls: their certificates
settings  what it is told; reloading: what of it follows its files
server    the process, from taking its addresses to its last answer; cli: the command
"""
