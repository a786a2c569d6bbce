"""The node side: card inventory → announcements → allocation → kubelet.

Pure decisions lie at the bottom: `slots`, `announcement`, `holdings`, `answers`, `handover`, `matching`. What
depends on the resource that kubelet counts is a mode (`modes`). Around them are the edges: card sources
(`sources`, `nvmlcards`, `simulated`), the API server (`pods`, `node`, `marker`, `reconciler`) and kubelet
(`podresources`, `service`, `registration`). `allocator` joins them for one call, `plugin` for the process;
`uninstall` takes everything off the nodes again.
"""
