"""Semel for Python."""
