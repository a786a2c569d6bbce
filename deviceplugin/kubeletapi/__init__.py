"""kubelet's two gRPC APIs, generated from `proto/` by `make proto`.

`deviceplugin_v1beta1_pb2` and `..._pb2_grpc`: Registration (kubelet serves it) and DevicePlugin (the plugin does).
`podresources_v1_pb2` and `..._pb2_grpc`: PodResourcesLister (kubelet serves it).
Nothing here is written by hand but this sentence; `tests/test_proto.py` fails when the rest is stale.
"""
