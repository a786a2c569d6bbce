"""The node side: card inventory → announcements → allocation → kubelet.

Pure decisions lie at the bottom: `slots`, `announcement`, `holdings`, `answers`, `matching`. Around them are
the edges: card sources (`nvml`, `simulated`), the API server (`pods`, `node`, `marker`) and kubelet
(`podresources`, `service`, `registration`). `allocator` joins them for one call, `plugin` for the process.
"""
