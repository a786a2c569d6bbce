"""A real Kubernetes on loopback: etcd, kube-apiserver, kube-scheduler and, where one can run, a kubelet.

Nothing here makes or fetches a binary. `KUBEBUILDER_ASSETS` names the folder that has them; what is missing
is named by the tests that are skipped for it. Everything lives in one temporary folder and on free ports,
and is ended by its process ID.
"""
