"""Benchmark items, contenders, rows, metrics, tables, speed."""
