"""Measurements that were made once for a chapter, one module for each record in benchmarks/results."""
