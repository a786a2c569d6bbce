"""The Helm chart: rendered by Helm's own engine, without a cluster."""
