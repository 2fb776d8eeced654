"""Drawn pictures and questions about them, made from nothing but a seed."""
