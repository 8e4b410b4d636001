"""Probes answered by the hosts of a cluster that somebody else runs (Dask distributed).
docs/clusters.md says how it is used.

``executor`` is the session's end, ``host`` what runs in a worker of the cluster, ``parcels`` which
files travel.
"""
