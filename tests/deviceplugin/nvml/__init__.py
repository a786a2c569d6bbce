"""NVML as the real `pynvml` loads it: a library built from `stub.c`, and tests of the plugin over it."""
